"""Derived lines join a page, are settled, and leave it; everybody's own lines stay as they are."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.knowledge.pages import (
    holds_nothing,
    merged,
    reopened,
    settled,
    stripped,
    superseded,
    without_emptied,
    without_empty,
)
from mcp_server.knowledge.reconstruct import delta
from mcp_server.knowledge.writing import FLUSHED
from mcp_server.text.destinations import Place, place_of
from mcp_server.text.entries import (
    Line,
    LineKind,
    Source,
    derived,
    entries,
    entry,
    is_derived,
    sources_of,
    without,
    without_sources,
)
from mcp_server.understanding.cues import overtaken_lines

FIRST, SECOND = "raw/conversations/2023/05/08/1356-a.md", "raw/conversations/2023/06/08/1356-b.md"
HEAD = "# Ana\n"


def line(text: str, day: str = "2023-05-08", turn: int = 1, path: str = FIRST, kind: str = "about") -> Line:
    return Line(kind, text, day, turn, path, person="Ana", said=day)  # type: ignore[arg-type]


def placed(*lines: Line) -> list[tuple[Place, Line]]:
    return [(place_of(one), one) for one in lines]


def test_a_line_stands_in_its_section_with_its_day_and_its_source() -> None:
    body = merged(HEAD, placed(line("Ana keeps bees.", turn=7)))
    assert body == f"# Ana\n\n## About\n\n- 2023-05-08: Ana keeps bees. [src: 7](/{FIRST})\n"


def test_reading_again_keeps_the_first_of_two_wordings_of_a_turn() -> None:
    """A turn gives two lines of different kinds, one of which contains the other."""
    lines = placed(line("Ana keeps eleven hives of bees in Oslo."), line("Ana keeps eleven hives.", kind="preference"))
    once = merged(HEAD, lines)
    assert "in Oslo" in once
    assert merged(once, lines, frozenset({FIRST})) == once


def test_a_rule_stands_beside_the_decision_that_quotes_it() -> None:
    rule = "No photos of children, ever."
    lines = [
        Line(kind, text, "2023-05-08", 3, FIRST, said="2023-05-08", project="atlas")  # type: ignore[arg-type]
        for kind, text in (("decision", f"Keep the child on the steps. {rule}"), ("rule", rule), ("fact", rule))
    ]
    once = merged("# atlas\n", placed(*lines))
    assert [(one.section, one.said) for one in entries(once)] == [
        ("Rules", rule),
        ("Key Decisions", f"Keep the child on the steps. {rule}"),
    ]
    assert merged(once, placed(*lines), frozenset({FIRST})) == once


def test_what_two_conversations_say_stands_there_once_with_both_sources_whichever_is_read_first() -> None:
    early, late = line("Ana keeps eleven hives of bees."), line("Ana keeps eleven bees hives.", "2023-06-08", 3, SECOND)
    forth = merged(merged(HEAD, placed(early)), placed(late))
    back = merged(merged(HEAD, placed(late)), placed(early))
    assert forth == back
    (entry,) = entries(forth)
    assert sources_of(entry.text) == (Source(FIRST, 1), Source(SECOND, 3))
    assert "2023-05-08: Ana keeps eleven hives of bees." in forth


def test_what_happened_on_two_days_happened_twice() -> None:
    ran = line("Ana ran the city marathon.", kind="event")
    body = merged(HEAD, placed(ran, replace(ran, day="2023-06-08", path=SECOND)))
    assert len(entries(body)) == 2


def test_what_a_person_wrote_is_said_already_and_keeps_its_bytes() -> None:
    own = "# Ana\n\n## About\n\n-   Ana keeps eleven hives of bees   \n- 2020-01-01: my own *line*\n"
    assert merged(own, placed(line("Ana keeps eleven hives of bees."))) == own


def test_a_closed_item_that_the_closing_turn_repeats_is_not_opened_again() -> None:
    item = "Map the eleven codes of the courier Bex."
    closed = f"{item} (done 2023-05-08) [src: 3](/{FIRST}) [src: 7](/{FIRST})"
    body = f"# atlas\n\n## Closed items\n\n- 2023-05-08: {closed}\n"
    first, repeated, again = (
        Line("open", item, "2023-05-08", turn, FIRST, said="2023-05-08", project="atlas") for turn in (3, 7, 9)
    )
    assert merged(body, placed(first, repeated), frozenset({FIRST})) == body
    assert "## Open items" in merged(body, placed(again))


def test_lines_stand_in_the_order_of_their_days_and_others_keep_their_places() -> None:
    body = merged(
        "# Ana\n\n## About\n- somebody's own line\n", placed(line("Ana sails boats.", "2023-06-01", 9, SECOND))
    )
    body = merged(body, placed(line("Ana keeps bees.", "2023-05-01")))
    rows = [entry.text[2:12] for entry in entries(body)]
    assert rows == ["somebody's", "2023-05-01", "2023-06-01"]


def test_sections_of_a_person_stand_in_one_order() -> None:
    body = merged(HEAD, placed(line("Ana ran home.", kind="event")))
    body = merged(body, placed(line("Ana keeps bees.")))
    assert body.index("## About") < body.index("## What happened")


def test_read_anew_what_only_the_earlier_reading_said_goes() -> None:
    old, other = line("Ana keeps bees.", turn=1), line("Ana likes figs.", "2023-06-08", 2, SECOND)
    body = merged(HEAD + "\n- by hand\n", placed(old, other))
    anew = merged(body, placed(line("Ana sails boats.", turn=4)), frozenset({FIRST}))
    assert "bees" not in anew
    assert all(word in anew for word in ("sails", "figs", "by hand"))
    assert merged(anew, placed(line("Ana sails boats.", turn=4)), frozenset({FIRST})) == anew


def test_settling_again_or_reading_again_with_the_same_rules_changes_nothing() -> None:
    said = line("Ana keeps bees."), line("Ana sails.", kind="preference"), line("Ana ran.", kind="event", turn=2)
    lines = placed(*said)
    body = merged(HEAD, lines)
    assert merged(body, lines) == merged(body, lines, frozenset({FIRST})) == body


TEXTS = st.lists(
    st.tuples(
        st.sampled_from(["Ana keeps bees", "Ana sails boats", "Ana sold 3 boats", "Ana met Bo"]), st.integers(1, 3)
    ),
    max_size=8,
)


@given(TEXTS, TEXTS)
def test_merging_is_idempotent_and_every_line_keeps_a_source(
    one: list[tuple[str, int]], two: list[tuple[str, int]]
) -> None:
    first = placed(*(line(text, f"2023-05-0{turn}", turn) for text, turn in one))
    second = placed(*(line(text, f"2023-06-0{turn}", turn, SECOND) for text, turn in two))
    body = merged(merged(HEAD + "\n- by hand\n", first), second)
    assert merged(merged(body, first), second) == body
    assert "\n- by hand\n" in body
    for found in entries(body):
        assert "by hand" in found.text or is_derived(found.text)
        assert "[src" not in without_sources(found.text)


SRC = "[src: raw/conversations/2026/02/16/1845-s-a.md#3]"
BODY = f"""# Ana

Her own page.

## Plans
- 2026-02-16: Ana moves to Zagreb. {SRC}

## Likes and dislikes
- Likes tea (I know that)
- 2026-02-16: Ana likes coffee. {SRC}
"""


def test_only_lines_with_provenance_are_taken_out() -> None:
    found = stripped(BODY)
    assert (found.removed, found.emptied) == (2, frozenset({"Plans"}))
    assert found.body == BODY.replace(f"- 2026-02-16: Ana moves to Zagreb. {SRC}\n", "").replace(
        f"- 2026-02-16: Ana likes coffee. {SRC}\n", ""
    )


def test_lines_of_the_journal_that_earlier_versions_wrote_stay() -> None:
    body = f"### Work\n- Decision: SQLite. {SRC}\n- 2026-02-16: Lesson: test first. {SRC}\n- We chose tea. {SRC}\n"
    assert stripped(body, FLUSHED).removed == 1


def test_a_heading_goes_only_if_it_was_emptied_and_stayed_so() -> None:
    found = stripped(BODY)
    assert "## Plans" not in without_empty(found.body, found.emptied)
    refilled = found.body.replace("## Plans\n", f"## Plans\n- 2026-03-01: Ana moves to Split. {SRC}\n")
    assert without_empty(refilled, found.emptied) == refilled
    assert "## Empty since ever" in without_empty("## Empty since ever\n\n## Plans\n", {"Plans"})


def test_the_programs_empty_headings_leave_a_page_and_those_with_text_of_a_person_stay() -> None:
    before = (
        f"# Atlas\n\n## Ideas\n\n## Facts\n\n- The oven is old. {SRC}\n\n## Ours\n\n- Rye. {SRC}\n\n"
        f"## Notes\n\nSee the wall.\n\n- Water. {SRC}\n\n## Open items\n\n### Of Ana\n\nAsk her.\n\n"
        f"## Rules\n\n- Salt last. {SRC}\n"
    )
    after = without(before, derived(before))
    assert without_emptied(before, after) == (
        "# Atlas\n\n## Ideas\n\n## Notes\n\nSee the wall.\n\n## Open items\n\n### Of Ana\n\nAsk her.\n"
    )
    assert without_emptied(f"# Atlas\n\n- Rye. {SRC}\n", "# Atlas\n") == "# Atlas\n"


def test_a_file_of_headings_alone_holds_nothing() -> None:
    assert holds_nothing("# Ana\n\n## Plans\n")
    assert not holds_nothing(stripped(BODY).body)


def test_two_versions_are_compared_by_what_their_lines_say() -> None:
    other = BODY.replace("#3]\n\n##", "#9]\n\n##").replace("Ana likes coffee", "Ana likes cocoa")
    found = delta({"a.md": BODY}, {"a.md": other})
    assert (found.second_lines, found.common) == (2, 1)
    assert [(one.only_first, one.only_second) for one in found.files] == [(1, 1)]
    assert found.own_lost == ()
    since = delta({"a.md": BODY}, {}, {"a.md": "Her own page.\n"})
    assert (since.own_lost, since.own_since) == (("a.md: Her own page.",), 1)
    assert delta({"a.md": BODY}, {}).own_lost == ("a.md: Her own page.", "a.md: - Likes tea (I know that)")


LINES = st.lists(st.sampled_from(["- own", f"- ours {SRC}", "## Head", "", "text", f"- 2026-01-01: x {SRC}", "  more"]))


@given(LINES)
def test_no_line_of_anybody_is_ever_lost(lines: list[str]) -> None:
    body = "\n".join(lines)
    after = stripped(body).body
    own = [line for line in lines if line and not is_derived(line) and not line.startswith("  ")]
    assert [line for line in after.split("\n") if line in own] == own
    assert stripped(after).body == after


A, B = "raw/conversations/2026/11/02/0900-s-a.md", "raw/conversations/2026/11/04/0900-s-b.md"
OLD = "Vault with the AppRole login, one role per service."
NEW = "scratch the AppRole login for Vault, we switch to JWT login instead"
OTHER = "Invoices are stored as PDF."
TASK = "call Ana about the winter berth"


def item(kind: LineKind, text: str, path: str = A, turn: int = 27, changes: float = 0.0) -> Line:
    day = path[18:28].replace("/", "-")
    return Line(kind, text, day, turn, path, said=day, project="atlas", changes=changes)


DECIDED = [item("decision", OLD), item("decision", OTHER, turn=30), item("open", TASK, turn=31)]
SETTLING = [item("decision", NEW, B, 86, 0.9), item("report", "Ana signed the winter berth", B, 90, 0.5)]


def extracted(body: str, lines: list[Line], stale: frozenset[str] = frozenset()) -> str:
    placed = [(place_of(one), one) for one in lines if one.kind != "report"]
    return settled(merged(body, placed, stale), lines)


def section(body: str, title: str) -> list[str]:
    after = body.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [row for row in after.splitlines() if row.strip()]


def test_a_replaced_decision_and_a_closed_item_move_to_their_sections_and_name_both_turns() -> None:
    body = extracted(extracted("# atlas\n", DECIDED), SETTLING)
    (replaced,) = section(body, "Replaced decisions")
    assert replaced == f"- 2026-11-02: {OLD} (replaced 2026-11-04) [src: 27](/{A}) [src: 86](/{B})"
    assert [sources_of(row)[0].turn for row in section(body, "Key Decisions")] == [30, 86]
    assert section(body, "Open items") == []
    assert section(body, "Closed items") == [f"- 2026-11-02: {TASK} (done 2026-11-04) [src: 31](/{A}) [src: 90](/{B})"]


LONG = (
    "We take Bell & Sons for the extension, £134k at a fixed price with two clinics as references, a penalty for each "
    "late day and Marek as the foreman, the old boiler stays, and they start on 6 July."
)
LATER = "Bell & Sons start the extension on 20 July now instead of 6 July."


def test_a_decision_of_which_a_part_changes_stays_in_force_with_a_note() -> None:
    first, later = [item("decision", LONG)], [item("decision", LATER, B, 86, 0.9)]
    before = extracted("# atlas\n", first)
    body = extracted(before, later)
    noted = f"- 2026-11-02: {LONG} (perhaps changed 2026-11-04) [src: 27](/{A}) [src: 86](/{B})"
    assert section(body, "Key Decisions") == [noted, f"- 2026-11-04: {LATER} [src: 86](/{B})"]
    assert section(body, "Replaced decisions") == []
    assert extracted(body, []) == extracted(body, later) == body
    assert extracted(body, [*first, *later], frozenset((A, B))) == body
    assert extracted("# atlas\n", [*first, *later]) == body, "at once or one after the other"
    assert extracted(body, [], frozenset((B,))) == before, "the newer line is gone"
    assert LONG not in extracted(body, [], frozenset((A,)))
    again = item("decision", LONG, "raw/conversations/2026/11/09/0900-s-c.md", 3, 0.9)
    assert entry("2026-11-09", LONG, (again.source,)) in section(extracted(body, [again]), "Key Decisions")
    (there, _) = derived(body)
    on_request = section(superseded(body, there, "2026-11-10"), "Replaced decisions")
    assert on_request == [f"- 2026-11-02: {LONG} (replaced 2026-11-10 on request) [src: 27](/{A})"]


def test_of_transcripts_that_one_session_begins_in_a_minute_the_one_with_the_later_turn_is_newer() -> None:
    first, second = (f"raw/conversations/2026/11/02/0900-a1de7d47-76a9-40ff-{name}.md" for name in ("vault", "scratch"))
    body = extracted("# atlas\n", [item("decision", OLD, first, 11), item("decision", NEW, second, 19, 0.9)])
    assert [sources_of(row)[0].turn for row in section(body, "Replaced decisions")] == [11]
    rows = "# atlas\n\n## Key Decisions\n\n{}\n{}\n".format(
        entry("2026-11-02", "Free shipping from 89 € instead of 79.", (Source(second, 19),)),
        entry("2026-11-02", "Flat shipping of 5,90 €, free above 79 €.", (Source(first, 11),)),
    )
    assert overtaken_lines(rows) == {5}


def test_doing_it_again_changes_no_byte() -> None:
    body = extracted(extracted("# atlas\n", DECIDED), SETTLING)
    assert extracted(body, []) == body
    assert extracted(body, SETTLING) == body
    assert extracted(body, [*DECIDED, *SETTLING], frozenset((A, B))) == body
    assert extracted("# atlas\n", [*DECIDED, *SETTLING]).split() == body.split(), "at once or one after the other"


def test_of_two_wordings_of_a_message_the_one_that_says_more_is_kept_also_when_it_is_closed_and_read_again() -> None:
    more = f"The marina wants to know who comes. I'll {TASK}."
    lines = [item("open", "The marina wants to know who comes.", turn=31), item("open", more, turn=31)]
    body = extracted("# atlas\n", lines)
    assert section(body, "Open items") == [f"- 2026-11-02: {more} [src: 31](/{A})"]
    closed = extracted(body, SETTLING)
    (row,) = section(closed, "Closed items")
    assert row == f"- 2026-11-02: {more} (done 2026-11-04) [src: 31](/{A}) [src: 90](/{B})"
    assert extracted(closed, [*lines, *SETTLING], frozenset((A, B))) == closed


def test_outside_any_project_only_a_conversation_about_the_same_subject_settles_an_item() -> None:
    talks = [f"raw/conversations/2026/11/0{n}/0900-s-{n}-talk.md" for n in range(1, 5)]
    old = item("decision", "The boat is kept in the north dock for the whole winter.", talks[0])
    others = [item("fact", "Snow is kept whole all winter.", talks[2])]
    others += [item("fact", "Kept bees need a whole winter of rest.", talks[3])]
    new = item("decision", "Scratch that, honey is kept for the whole winter in jars instead.", talks[1], 9, 0.95)
    same = item(
        "decision", "Scratch that, no boat of ours is kept for the whole winter in jars instead.", talks[1], 9, 0.95
    )

    def after(decision: Line, of_one_subject: bool) -> list[str]:
        lines = [old, *others, decision]
        body = merged("# General\n", [(place_of(replace(one, project=None)), one) for one in lines])
        return section(settled(body, lines, of_one_subject=of_one_subject), "Replaced decisions")

    assert len(after(new, True)) >= 1, "in a project, everything is about the project"
    assert after(new, False) == []
    assert len(after(same, False)) == 1


def test_items_move_back_when_their_settling_turn_is_gone() -> None:
    before = extracted("# atlas\n", DECIDED)
    body = extracted(extracted(before, SETTLING), [], frozenset((B,)))
    assert section(body, "Key Decisions") == section(before, "Key Decisions")
    assert section(body, "Open items") == section(before, "Open items")
    assert section(body, "Replaced decisions") == section(body, "Closed items") == []


def test_items_move_back_when_their_settling_turn_is_forgotten_and_go_with_their_own_turn() -> None:
    body = extracted(extracted("# atlas\n", DECIDED), SETTLING)
    back = reopened(body, lambda source: source.path == B)
    assert [sources_of(row)[0].turn for row in section(back, "Key Decisions")] == [27, 30, 86]
    assert section(back, "Replaced decisions") == []
    assert reopened(body, lambda source: source.path == A) == body, "the item itself is for `forget` to take out"
    gone = extracted(body, [], frozenset((A,)))
    assert OLD not in gone
    assert TASK not in gone


def test_a_decision_that_is_made_again_is_in_force_again() -> None:
    body = extracted(extracted("# atlas\n", DECIDED), SETTLING)
    again = item("decision", OLD, "raw/conversations/2026/11/09/0900-s-c.md", 3, 0.9)
    body = extracted(body, [again])
    assert entry("2026-11-09", OLD, (again.source,)) in section(body, "Key Decisions")
    assert [NEW in row or OLD in row for row in section(body, "Replaced decisions")] == [True, True]


def test_lines_that_a_person_wrote_or_moved_stay() -> None:
    own = "- by hand, no mark"
    continued = f"- 2026-11-02: {OLD} [src: 27](/{A})\n  and my own remark on it"
    moved = f"- 2026-11-02: {OTHER} [src: 30](/{A})"
    body = f"# atlas\n\nSome prose.\n\n## Key Decisions\n{own}\n{continued}\n\n## Replaced decisions\n{moved}\n"
    for lines, stale in ((SETTLING, frozenset[str]()), ([*DECIDED, *SETTLING], frozenset((A, B)))):
        after = extracted(body, lines, stale)
        for kept in ("Some prose.", own, continued, moved):
            assert kept in after
        assert moved in section(after, "Replaced decisions")
