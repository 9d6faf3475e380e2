"""What leaves a journal and a long page, what MEMORY.md repeats of other pages, and what an index says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.knowledge import summaries
from mcp_server.knowledge.pages import with_entry
from mcp_server.knowledge.summaries import (
    JOURNAL_LINES,
    LEAST_DERIVED,
    MOST,
    Summary,
    derived_lines,
    outdated,
    renewed,
    shortened,
    within_the_day,
)
from mcp_server.storage.files import is_untouched_template, templates
from mcp_server.text.entries import Source, entries

SRC = "[src: 1](/raw/conversations/2026/02/16/1845-s-talk.md)"
LATER = SRC.replace("src: 1", "src: 9")
DAY = "2026-02-16"


def journal(**lines: list[str]) -> str:
    """Returns a journal with derived lines by heading. The lines of a heading were said one after another."""
    parts = [f"# {DAY}\n"]
    for minute, (heading, texts) in enumerate(lines.items(), start=10):
        path = f"raw/conversations/2026/02/16/18{minute}-s-{heading}.md"
        rows = [f"- {text} {Source(path, turn).mark}" for turn, text in enumerate(texts, start=1)]
        parts.append("\n".join([f"## {heading}", "", *rows, ""]))
    return "\n".join(parts)


def said_in(body: str) -> list[str]:
    return [one.said for one in entries(body)]


def test_a_full_day_keeps_decisions_and_finished_work_before_facts() -> None:
    walks = [f"Ana walked to harbor number {number}." for number in range(JOURNAL_LINES)]
    left = said_in(within_the_day(journal(Atlas=["Decided: keep Postgres 15.", *walks, "Done: the copy ran."])))
    assert len(left) == JOURNAL_LINES
    assert (left[0], left[-1]) == ("Decided: keep Postgres 15.", "Done: the copy ran.")
    assert left[1] == walks[2], "the oldest facts leave"


def test_many_decisions_of_a_day_hide_neither_open_items_nor_other_projects() -> None:
    decisions = [f"Decided: rule number {number}." for number in range(20)]
    body = journal(Atlas=["Open: call the mason.", *decisions], Bakery=["Decided: rye only."], Harbor=["Ana waved."])
    left = within_the_day(body)
    assert said_in(left) == ["Open: call the mason.", *decisions[-8:], "Decided: rye only."]
    assert "## Harbor" not in left, "a heading without lines leaves"
    assert within_the_day(left) == left


def test_lines_by_people_count_and_never_leave_a_journal() -> None:
    own = "".join(f"- by hand {number}\n" for number in range(JOURNAL_LINES + 2))
    body = journal(Atlas=[f"Decided: rule number {number}." for number in range(JOURNAL_LINES)])
    one_own = within_the_day(f"{body}\n## Mine\n\n- by hand\n")
    assert len(said_in(one_own)) == JOURNAL_LINES
    many = within_the_day(f"{body}\n## Mine\n\n{own}")
    assert many.endswith(f"## Mine\n\n{own}")
    assert len(said_in(many)) == JOURNAL_LINES + 2 + LEAST_DERIVED


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from(["Decided: ", "Done: ", "Open: ", ""])), max_size=40))
def test_a_journal_is_the_same_whether_its_lines_come_one_by_one_or_together(lines: list[tuple[str, str]]) -> None:
    at_once = by_steps = f"# {DAY}\n"
    for turn, (heading, prefix) in enumerate(lines):
        row = f"- {prefix}{turn} loaves. {Source('raw/conversations/2026/02/16/1810-s-x.md', turn).mark}"
        at_once, by_steps = with_entry(at_once, heading, row), within_the_day(with_entry(by_steps, heading, row))
    assert sorted(said_in(within_the_day(at_once))) == sorted(said_in(by_steps))


def test_a_short_form_is_the_sentences_that_say_most() -> None:
    said = "I have the answer. Keys of the ledger are kept for 35 days in the vault. Change it."
    assert shortened(said, 54) == "Keys of the ledger are kept for 35 days in the vault"
    assert shortened(said, 90) == said.rstrip(".")
    chosen = "The old press is slow, loud, heavy and broken. I'd take the new press in the yard."
    assert shortened(chosen, 50) == "I'd take the new press in the yard"
    aside = "I'd switch it. Printed lists of every shelf stay on paper for the first two days of the move."
    assert shortened(aside, 65) == "Printed lists of every shelf stay on paper for the first two days of the move"
    assert shortened("and there are no coroutines and no books; we stay on threads.", 80) == (
        "There are no coroutines and no books; we stay on threads"
    )


@pytest.mark.parametrize(
    ("kind", "said", "short"),
    [
        (
            "rule",
            "Two cooks of the second shift are allergic to nuts; see box G4. Always name nuts and sesame first.",
            "Always name nuts and sesame first",
        ),
        (
            "open",
            "The old press in the yard is slow, loud, heavy and broken since May. Somebody has to oil the wheels.",
            "Somebody has to oil the wheels",
        ),
    ],
)
def test_a_short_form_has_the_sentence_that_states_the_line(kind: str, said: str, short: str) -> None:
    assert shortened(said, 70, kind) == short


def test_a_short_form_has_the_sentence_that_is_known_to_state_the_line() -> None:
    said = "The old press in the yard is slow, loud, heavy and broken since May. Lena gets the new one."
    assert shortened(said, 60, core="Lena gets the new one.") == "Lena gets the new one"
    told = f"{'and then she told us about her aunt in the old town ' * 3}so Lena gets the new one"
    assert shortened(told, 80, core="so Lena gets the new one") == "Lena gets the new one"


def test_a_short_form_is_cut_at_a_clause_and_not_after_an_abbreviation() -> None:
    late = "The cooks meet on Thursday at 6 p.m. in the library, where the big table stands, and not in the yard."
    assert shortened(late, 60) == "The cooks meet on Thursday at 6 p.m. in the library…"
    doctor = "The cooks of the second shift wait for Dr. Novak in the big library of the old school. They are three."
    assert shortened(doctor, 70).startswith("The cooks of the second shift wait for Dr. Novak")
    assert shortened(late, 80) == late.rstrip("."), "a line that is longer by a third at most stays whole"


def test_a_short_form_of_an_amended_proposal_is_the_amendment_with_the_proposal_if_it_is_short() -> None:
    rounding = (
        "Rounding is HALF_UP. (amended: Yes. Rounding is HALF_EVEN in every module of the ledger, shop and printer.)"
    )
    assert shortened(rounding, 80) == "Yes. Rounding is HALF_EVEN in every module of the ledger, shop and printer"
    bytes_left = "I suggest the packed layout. (amended: do the 11. drop the crc8, and byte 10 is the uptime in days.)"
    assert shortened(bytes_left, 100) == (
        "I suggest the packed layout (amended: do the 11. drop the crc8, and byte 10 is the uptime in days)"
    ), "there is room for the proposal"
    refused = "Liquibase stays. (refused: Flyway would be somewhat lighter here.)"
    assert shortened(refused, 80) == "Liquibase stays (refused: Flyway would be somewhat lighter here)"
    assert shortened("Keep three copies of each backup. (amended: Five.)", 80) == (
        "Keep three copies of each backup (amended: Five)"
    )


LOOM = (
    "Hey there. We build a mobile loom for the fair in May. "
    "Second, the oak frame must come apart into four pieces that two people can carry up the narrow stairs."
)
PAGES = {
    "knowledge/people/user.md": f"# The user\n\n## About\n- {DAY}: I'm a nurse in Split. {SRC}\n",
    "knowledge/reference/general.md": f"## Rules\n- {DAY}: Write dates as 2026-02-16. {SRC}\n"
    f"## Key Decisions\n- {DAY}: Pay by invoice only. {SRC}\n"
    f"## Lessons\n- {DAY}: Back up before an upgrade. {SRC}\n## Facts\n- {DAY}: Tea is at four. {SRC}\n",
    "knowledge/projects/atlas/context.md": f"## Key Decisions\n- 2026-02-01: Use Redis. {SRC}\n"
    f"- 2026-02-20: Use Postgres 15. {LATER}\n## Rules\n- {DAY}: No emoji in commits. {SRC}\n"
    f"## Open items\n- {DAY}: Renew the key. {SRC}\n",
    "knowledge/projects/loom/context.md": f"## Facts\n- {DAY}: {LOOM} {SRC}\n"
    f"## Open items\n- {DAY}: Call Ana about the berth. {SRC}\n",
}


def test_memory_says_who_the_user_is_what_holds_everywhere_where_projects_are_and_what_was_learned() -> None:
    own = "# Core Memory\n\n## Facts\n- 2020-01-01: by hand\n"
    body = renewed(own, derived_lines(PAGES))
    atlas, loom = "[[atlas/context|atlas]]", "[[loom/context|loom]]"
    for line in (
        f"- {DAY}: I'm a nurse in Split. {SRC}",
        f"- {DAY}: Write dates as 2026-02-16. {SRC}",
        f"- 2026-02-20: {atlas} — decided: Use Postgres 15; next: Renew the key {LATER}",
        f"- {DAY}: {loom} — We build a mobile loom for the fair in May; next: Call Ana about the berth {SRC}",
        f"- {DAY}: Pay by invoice only. {SRC}",
        f"- {DAY}: Back up before an upgrade. {SRC}",
    ):
        assert line in body.split("\n")
    assert body.index(atlas) < body.index(loom), "the project of the newest day comes first"
    assert "emoji" not in body, "a rule of one project is on the project's page"
    assert "Tea" not in body
    assert "Redis" not in body
    titles = [row.removeprefix("## ") for row in body.split("\n") if row.startswith("## ")]
    assert titles == ["About the user", "Rules", "Projects", "Key Decisions", "Lessons Learned", "Facts"]
    assert "- 2020-01-01: by hand" in body.split("\n")
    assert renewed(body, derived_lines(PAGES)) == body


def test_a_derived_line_of_memory_goes_when_its_page_changes_and_a_line_by_hand_never_does() -> None:
    body = renewed("## Active Context\n- 2020-01-01: by hand\n", derived_lines(PAGES))
    newer = {**PAGES, "knowledge/projects/atlas/context.md": f"## Open items\n- 2026-03-01: Renew the key. {SRC}\n"}
    body = renewed(body, derived_lines(newer))
    assert "Postgres" not in body
    assert "[[atlas/context|atlas]] — next: Renew the key" in body
    assert renewed(body, derived_lines({})) == "## Active Context\n- 2020-01-01: by hand\n"


def test_what_somebody_wrote_into_memory_is_not_repeated_below_it() -> None:
    own = "## Rules\n- Write dates as 2026-02-16.\n"
    assert renewed(own, {"Rules": [f"- {DAY}: Write dates as 2026-02-16. {SRC}"]}) == own


def test_memory_has_at_most_120_lines() -> None:
    many = {
        f"knowledge/projects/p{number}/context.md": f"## Key Decisions\n- {DAY}: Use colour {number}. {SRC}\n"
        for number in range(99)
    }
    rules = "".join(f"- {DAY}: Rule number {number} of the house. {SRC}\n" for number in range(99))
    general = "".join(f"## {title}\n{rules}" for title in ("Rules", "Key Decisions", "Lessons"))
    user = f"## About\n{rules}"
    lines = derived_lines({**many, "knowledge/reference/general.md": general, "knowledge/people/user.md": user})
    assert {section: len(some) for section, some in lines.items()} == MOST
    shipped = templates()["knowledge/memory/MEMORY.md"]
    assert 100 < renewed(shipped, lines).count("\n") < 120


def test_a_shipped_memory_of_an_earlier_version_counts_as_not_filled_in() -> None:
    path, earlier = "knowledge/memory/MEMORY.md", "---\ntype: memory\n---\n\n# Core Memory\n\n## Active Context\n"
    assert is_untouched_template(path, f"{earlier}\n<!-- What is going on right now? -->\n")
    assert not is_untouched_template(path, f"{earlier}- by hand\n")


def test_old_plans_and_of_a_long_file_what_happened_longest_ago_go_cold() -> None:
    plans = f"## Plans\n- 2025-01-01: sail {SRC}\n- 2026-01-01: row {SRC}\n- 2025-01-01: by hand\n"
    assert [left.text for left in outdated(plans, "2025-06-01")] == [f"- 2025-01-01: sail {SRC}"]
    rows = [f"- 2026-01-{day:02}: walk {number} {SRC}\n" for number in range(101) for day in (3, 1, 2)]
    left = outdated("## About\n- 2020-01-01: by hand\n## What happened\n" + "".join(rows), "2025-06-01")
    assert [one.date for one in left] == ["2026-01-01"] * 3


def test_an_index_names_everybody_once_and_leaves_what_is_by_hand() -> None:
    source = Source("raw/conversations/2026/02/16/1845-s-talk.md", 1)
    ana, bo = Summary(DAY, "bees", source), Summary(DAY, "x", source)
    body = summaries.index_with("# People\n\n- [[bo]] — my own words\n", {"[[ana]]": ana, "[[bo]]": bo})
    assert body == f"# People\n\n- [[bo]] — my own words\n- [[ana]] — bees {SRC}\n"
    assert summaries.index_with(body, {"[[ana]]": ana}) == body
    assert summaries.index_with(body, {}) == "# People\n\n- [[bo]] — my own words\n"


def test_a_description_is_the_first_line_of_the_section_that_says_who_somebody_is() -> None:
    body = f"# Ana\n\n## What happened\n- 2026-02-01: Ana: I ran. {SRC}\n"
    body += f"## About\n- 2026-02-01: Ana: I keep bees in Oslo. {SRC}\n- Ana: I sing. {SRC}\n"
    found = summaries.of_person(body)
    assert found is not None
    assert found.text == "I keep bees in Oslo"
    assert summaries.of_person("## About\n- by hand\n") is None


def test_a_short_form_of_an_accepted_proposal_is_the_proposal() -> None:
    text = (
        "I'd keep three copies of each backup. (agreed: That saves us a lot of money, and Vera is happy with it, too.)"
    )
    assert shortened(text, 60) == "I'd keep three copies of each backup"
    quotes = "Holt & Sons, 134k, fixed price. Cumbria Build, 148k, with a penalty for each late day. Your cousin, 112k."
    assert shortened(f"{quotes} (agreed: holts)", 60).endswith(" (agreed: holts)")
