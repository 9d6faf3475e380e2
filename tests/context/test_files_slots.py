"""P0 and P1: identity, memory, journal, projects; and how the budget is shared."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.inputs import CompilerSettings
from mcp_server.context.sections import tight
from mcp_server.context.slots.session import LINE
from mcp_server.model import SourceFile, Withheld
from tests.context.states import candidate, inputs, knowledge, passage, tokens, turn

FULL = {
    path: SourceFile(
        path, "# Title\n\n" + "\n".join(f"- Line {n} of a file that somebody filled in." for n in range(900))
    )
    for path in (
        "knowledge/identity/SOUL.md",
        "knowledge/identity/USER.md",
        "knowledge/memory/MEMORY.md",
        "knowledge/journal/2026-05-03.md",
        "knowledge/journal/2026-05-04.md",
        "knowledge/projects/_active.md",
        "knowledge/projects/tea/context.md",
    )
}
HITS = tuple(
    candidate(passage(f"Fact {n} of Ana: {'tea and rain, ' * n}.", start=n, path=f"raw/{n % 9}.md")) for n in range(200)
)


def compiled(budget: int = 8192, **more: Any) -> Compiled:
    return compile_inputs(inputs(budget=budget, **more), tokens().count)


def slots(of: Compiled) -> dict[str, int]:
    return {slot.name: slot.tokens for slot in of.receipt.slots}


def file(path: str, text: str, **more: Any) -> SourceFile:
    return SourceFile(path, text, **more)


def test_the_safety_line_comes_first_and_is_short() -> None:
    assert compiled().text == LINE
    assert tokens().count(LINE) <= 40


@pytest.mark.parametrize("budget", [1024, 2048, 8192])
@pytest.mark.parametrize("delivery", ["add", "replace"])
def test_caps_and_floors_hold_with_everything_full(budget: int, delivery: str) -> None:
    turns = tuple(turn(n, "user" if n % 2 else "agent", "We talk about tea. " * 20) for n in range(1, 200))
    result = compiled(budget, files=tuple(FULL.values()), hits=HITS, delivery=delivery, session="ses_now", turns=turns)
    taken = slots(result)
    assert taken["identity"] <= 0.15 * budget
    assert sum(taken[name] for name in ("memory", "journal", "active projects", "project")) <= 0.20 * budget
    assert taken["knowledge"] >= (0.35 if delivery == "add" else 0.25) * budget * 0.9
    assert taken["history"] >= 0.25 * budget * 0.7 if delivery == "replace" else taken["history"] == 0
    assert result.tokens > 0.9 * budget


def test_every_file_of_p1_gets_something_even_if_the_first_would_take_all() -> None:
    found = compiled(4096, files=tuple(FULL.values()), hits=HITS)
    for name in ("memory", "journal", "active projects", "project"):
        assert f"<!-- {name}: " in found.text
        assert " of a file that" in found.text.partition(f"<!-- {name}: ")[2].partition("<!--")[0]


def test_a_file_of_which_only_a_heading_would_fit_is_left_out() -> None:
    found = compiled(1024, files=tuple(FULL.values()), hits=HITS)
    blocks = [block for block in found.text.split("<!-- ")[1:] if "[cut: " in block]
    assert blocks
    assert all(" of a file that" in block for block in blocks)
    assert any(one.slot == "journal" and not one.included for one in found.receipt.considered)


def test_the_kilobyte_caps_hold_while_other_slots_need_the_room() -> None:
    text = compiled(20_000, files=tuple(FULL.values()), hits=HITS).text
    sections = text.split("<!-- ")[1:]
    sizes = {part.split(":")[0]: 0 for part in sections}
    for part in sections:
        sizes[part.split(":")[0]] += len(f"<!-- {part}".strip().encode())
    assert sizes["memory"] <= 3 * 1024
    assert sizes["journal"] <= 4 * 1024
    assert sizes["active projects"] <= 1024
    assert sizes["identity"] <= 17 * 1024
    assert sizes["memory"] > 2.5 * 1024


def test_what_files_leave_knowledge_may_use() -> None:
    assert slots(compiled(1024, hits=HITS))["knowledge"] > 0.9 * 1024


def test_sections_stand_in_the_order_of_how_rarely_they_change() -> None:
    turns = (turn(1, "user", "Hello."),)
    text = compiled(files=tuple(FULL.values()), hits=HITS, delivery="replace", session="ses_now", turns=turns).text
    labels = [line.removeprefix("<!-- ").split(":")[0] for line in text.splitlines() if line.startswith("<!-- ")]
    wanted = [
        "identity",
        "identity",
        "memory",
        "active projects",
        "project",
        "journal",
        "journal",
        "history",
        "knowledge",
    ]
    assert labels == wanted


def test_each_block_says_which_file_it_is() -> None:
    text = compiled(files=(file("knowledge/identity/USER.md", "I am Ana."),)).text
    assert text.endswith("<!-- identity: knowledge/identity/USER.md -->\nI am Ana.")


def test_soul_comes_before_user_and_yesterday_before_today() -> None:
    text = compiled(
        files=tuple(
            file(path, "x y z")
            for path in (
                "knowledge/journal/2026-05-04.md",
                "knowledge/journal/2026-05-03.md",
                "knowledge/identity/USER.md",
                "knowledge/identity/SOUL.md",
            )
        )
    ).text
    order = ["SOUL.md", "USER.md", "2026-05-03.md", "2026-05-04.md"]
    assert sorted(order, key=text.index) == order


def test_a_journal_of_another_day_is_not_shown() -> None:
    assert "tea" not in compiled(files=(file("knowledge/journal/2026-05-01.md", "We had tea."),)).text


def test_templates_and_empty_files_take_no_token_and_say_why() -> None:
    result = compiled(
        files=(
            file("knowledge/identity/SOUL.md", "Write here who you are.", untouched=True),
            file("knowledge/identity/USER.md", "<!-- Who are you? -->\n\n"),
            file("knowledge/identity/TOOLS.md", "  \n"),
        )
    )
    assert result.text == LINE
    assert sorted(one.reason for one in result.receipt.considered) == ["empty", "empty", "template, not filled in"]


def test_the_memory_file_is_for_main_sessions() -> None:
    memory = (file("knowledge/memory/MEMORY.md", "- 2026-05-01: The safe is behind the picture."),)
    assert "safe" in compiled(files=memory, kind="main").text
    assert "safe" not in compiled(files=memory, kind="shared").text
    assert "safe" not in compiled(files=memory, kind="subagent").text


def test_a_cut_file_says_which_lines_are_left_out_and_how_to_read_them() -> None:
    lines = "\n".join(f"- Entry {n} is about something." for n in range(11, 411))
    text = compiled(2048, files=(file("knowledge/memory/MEMORY.md", lines, first_line=11),)).text
    last = text.splitlines()[-2]
    number = int(last.split()[2])
    assert text.splitlines()[-1] == f"[cut: lines {number + 1}-410 are left out; read knowledge/memory/MEMORY.md]"


LESSONS = [
    f"- 2026-{1 + n // 28:02}-{1 + n % 28:02}: Lesson {n} about the boiler, the tea and the rain." for n in range(120)
]
MEMORY = "knowledge/memory/MEMORY.md"


def lessons(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"Lesson (\d+) about", text)]


@pytest.mark.parametrize("budget", [512, 1024, 2048])
def test_the_oldest_dated_entries_are_cut_first(budget: int) -> None:
    shuffled = Random(7).sample(LESSONS, len(LESSONS))
    text = compiled(budget, files=(file(MEMORY, "# Core\n\n- Undated.\n\n## Lessons\n\n" + "\n".join(shuffled)),)).text
    shown = sorted(lessons(text))
    assert 0 < len(shown) < 120
    assert shown == list(range(120 - len(shown), 120))
    assert "- Undated." in text
    left = 120 - len(shown)
    which = "the oldest entries without a word of the message"
    assert text.endswith(f"[cut: {left} lines are left out, {which} first; read {MEMORY}]")


def test_an_old_entry_with_words_of_the_message_is_cut_after_newer_ones_without() -> None:
    text = "\n".join(["- 2025-01-01: The spare key hangs in the pantry.", *LESSONS])
    assert "pantry" not in compiled(1024, files=(file(MEMORY, text),)).text
    shown = compiled(1024, files=(file(MEMORY, text),), message="where does the spare key hang?").text
    assert "pantry" in shown
    assert "the oldest entries without a word of the message first" in shown


def test_an_anchored_entry_is_cut_last() -> None:
    text = "\n".join(["- 2025-01-01: Release 7 of ClaraCore was a bad one.", *LESSONS])
    assert "ClaraCore" not in compiled(1024, files=(file(MEMORY, text),)).text
    for anchor in (f"{MEMORY}#4", "claracore"):
        shown = compiled(1024, files=(file(MEMORY, text, first_line=4),), anchors=(anchor,)).text
        assert "ClaraCore" in shown
        assert "Lesson 119 " in shown
        assert "Lesson 0 " not in shown


def test_the_newest_entries_survive_beside_undated_text_that_is_too_long() -> None:
    text = "\n".join(f"- Fact {n} that has no date." for n in range(500)) + "\n" + "\n".join(LESSONS)
    shown = compiled(1024, files=(file(MEMORY, text),)).text
    assert "- Fact 0 that" in shown
    assert "Lesson 119 " in shown


def test_the_entries_of_a_journal_are_as_old_as_their_place() -> None:
    path = "knowledge/journal/2026-05-04.md"
    text = "## General\n\n" + "\n".join(f"- Lesson {n} about the boiler and the rain of today." for n in range(400))
    assert lessons(compiled(1024, files=(file(path, text),)).text)[-1] == 399


def test_a_cut_file_grows_into_tokens_that_no_other_slot_uses() -> None:
    files = (file(MEMORY, "\n".join(LESSONS)),)
    assert len(lessons(compiled(8192, files=files).text)) == 120
    crowded = compiled(8192, files=files, hits=HITS)
    assert len(lessons(crowded.text)) < 120
    assert slots(crowded)["knowledge"] == slots(compiled(8192, files=files, hits=HITS))["knowledge"]
    assert compiled(1024, files=files).tokens > 0.75 * 1024


def test_comments_of_a_template_are_not_shown() -> None:
    text = compiled(files=(file("knowledge/identity/USER.md", "# User\n<!-- Fill in\nyour name -->\nI am Ana."),)).text
    assert "Fill in" not in text
    assert "I am Ana." in text


def test_small_files_stay_whole_beside_a_large_one() -> None:
    files = (
        FULL["knowledge/identity/SOUL.md"],
        file("knowledge/identity/USER.md", "I am Ana and I prefer bullet lists."),
    )
    assert "I prefer bullet lists." in compiled(1024, files=files).text


def test_shares_are_settings() -> None:
    none = compiled(files=tuple(FULL.values()), settings=CompilerSettings(identity_share=0.0, memory_share=0.0))
    assert none.text == LINE


def test_below_the_least_budget_a_context_is_cut_and_says_so() -> None:
    result = compiled(60, files=tuple(FULL.values()), hits=HITS)
    assert result.receipt.too_small
    assert result.text.startswith("Memory, cut:")
    assert "below 128 tokens" in result.receipt.markdown
    assert compiled(3).tokens <= 3
    assert compiled(0).text == ""


def test_headings_that_nothing_stands_under_are_not_shown() -> None:
    assert tight("# Core\n\n\n\n## A\n\n- x\n\n## B\n\n\n## C\n") == "# Core\n\n## A\n\n- x"
    assert tight("# Core\n## A\n### B\ntext\n") == "# Core\n## A\n### B\ntext"


SRC = "[src: raw/conversations/2026/05/03/0900-s-talk.md#1]"


def test_a_line_that_extractors_wrote_into_several_files_is_shown_once() -> None:
    result = compiled(
        files=(
            file("knowledge/memory/MEMORY.md", f"## Key Decisions\n- 2026-05-03: tea: Green tea it is. {SRC}\n"),
            file(
                "knowledge/projects/tea/context.md",
                f"# tea\n\n## Key Decisions\n- 2026-05-03: Green tea it is. {SRC}\n",
            ),
            file("knowledge/projects/tea/progress.md", f"# tea\n\n## Done\n- 2026-05-03: Two pots came. {SRC}\n"),
            file(
                "knowledge/journal/2026-05-03.md",
                f"### tea\n- Decision: Green tea it is. {SRC}\n- Two pots came. {SRC}\n- It rained. {SRC}\n",
            ),
        ),
        hits=(candidate(knowledge(f"- Decision: Green tea it is. {SRC}", "knowledge/journal/2026-04-01.md")),),
    )
    assert result.text.count("Green tea it is.") == 1
    assert result.text.count("Two pots came.") == 1
    assert "It rained." in result.text
    assert "Key Decisions" not in result.text, "nothing is left under it"
    assert "<!-- project: knowledge/projects/tea/context.md" not in result.text, "nothing is left of the file"
    reasons = {one.source: one.reason for one in result.receipt.considered if not one.included}
    assert reasons["knowledge/projects/tea/context.md"] == "shown above"
    rows = [one.id for one in result.receipt.considered if one.reason == "shown above"]
    assert "knowledge/journal/2026-05-03.md:2-3" in rows, "lines of a file that is shown without them"
    assert sum(row.startswith("knowledge/projects/tea/context.md") for row in rows) == 1
    assert reasons["knowledge/journal/2026-04-01.md"] == "shown above"


def test_what_a_person_wrote_twice_stands_twice() -> None:
    paths = ("knowledge/memory/MEMORY.md", "knowledge/projects/tea/context.md")
    result = compiled(files=tuple(file(path, "# Tea\n- Green tea it is.\n") for path in paths))
    assert result.text.count("Green tea it is.") == 2


def test_a_projects_file_is_shown_without_what_a_later_line_takes_back() -> None:
    streams, instead = "Redis streams for the retry queue.", "No Redis: we use Postgres for the retry queue instead."
    rows = [f"- 2026-05-03: {instead} {SRC}", f"- 2026-05-02: {streams} {SRC}", f"- 2026-05-01: {streams}"]
    context = file("knowledge/projects/tea/context.md", "\n".join(["# tea", "", "## Key Decisions", *rows]))
    result = compiled(files=(context,))
    assert f"Decided:\n- {instead}\n- {streams}" in result.text, "a person's own line stays"
    assert result.text.count(streams) == 1
    (gone,) = [one for one in result.receipt.considered if one.id == f"{context.path}:5-5"]
    assert gone.reason == "no longer so: a newer line says otherwise"


def test_lines_that_a_person_or_an_agent_wrote_hold_as_derived_ones_do() -> None:
    tasks = ["## Open items", "- [ ] Call Ana", "- [x] Call Bo"]
    page = ["# tea", "", "## Key Decisions", f"- 2026-05-01: Black tea. {SRC}", "- 2026-05-02: Green tea.", *tasks]
    context = file("knowledge/projects/tea/context.md", "\n".join(page))
    result = compiled(files=(context,), message="which tea?", page_order=(f"{context.path}:4",))
    assert "Decided:\n- Black tea.\n- Green tea.\nOpen:\n- [ ] Call Ana\n" in result.text
    assert result.text.index("- [x] Call Bo") > result.text.index("## Open items"), "a checked task is not open"


def test_a_line_stays_whose_words_and_numbers_another_one_has_in_another_order() -> None:
    bands = ("I suggest 1,200 for the band and 900 for food, the rest as a reserve.", "1,900 for the band.")
    stores = ("Use Redis, not Postgres.", "Use Postgres, not Redis.")
    again = "The kitchen closes at nine. Use Redis, not Postgres."
    rows = [f"- 2026-05-0{day}: {said} {SRC}" for day, said in enumerate((*bands, *stores, again), 1)]
    context = file("knowledge/projects/tea/context.md", "\n".join(["# tea", "", "## Key Decisions", *rows]))
    result = compiled(files=(context,), message="what is decided?", page_order=(f"{context.path}:8",))
    for said in (*bands, stores[1], again):
        assert f"- {said}\n" in f"{result.text}\n"
    assert result.text.count(stores[0]) == 1, "another line says it"


def test_facts_of_no_project_come_in_by_search_if_there_is_a_message() -> None:
    rows = ["# General", "", "## Rules", f"- Write in English. {SRC}", "", "## Facts", f"- The oven is red. {SRC}"]
    page = file("knowledge/reference/general.md", "\n".join(rows))
    assert "The oven is red." in compiled(files=(page,), message="").text
    asked = compiled(files=(page,), message="which day is it?")
    assert "Write in English." in asked.text
    assert "The oven is red." not in asked.text
    (fact,) = [candidate(passage(rows[-1], start=7, path=page.path, category="reference"))]
    assert "The oven is red." in compiled(files=(page,), message="what color is the oven?", hits=(fact,)).text


def test_outside_any_project_the_core_memory_does_not_repeat_the_general_page() -> None:
    days = range(10, 30)
    rows = [f"- 2026-05-{day}: Tea number {day} it is, in the large pot. {SRC.replace(']', f'{day}]')}" for day in days]
    page = file("knowledge/reference/general.md", "\n".join(["# General", "", "## Key Decisions", *rows]))
    memory = file(MEMORY, "\n".join(["# Core", "", "## Key Decisions", "- Coffee never.", *rows]))
    text = compiled(512, files=(page, memory), message="which day is it?").text
    holds, _, core = text.partition(f"{MEMORY} -->")
    assert 0 < holds.count("Tea number") < len(days), "the budget is too small for all of them"
    assert "Coffee never." in core
    assert "Tea number" not in core


def test_a_journal_is_shown_without_short_forms_of_its_pages_lines() -> None:
    sources = [SRC.replace("]", f"{n}]") for n in range(5)]
    page = ["# tea", "", "## Key Decisions", f"- 2026-05-04: Sencha, two tins. It keeps. {sources[0]}"]
    page += [f"- 2026-05-04: Twelve seats (perhaps changed 2026-05-06) {sources[4]}", ""]
    page += ["## Replaced decisions", f"- 2026-05-04: Green tea it is. (replaced 2026-05-04) {sources[1]}"]
    page += ["", "## Facts", f"- 2026-05-04: The pot holds two liters. {sources[3]}"]
    day = [
        "## [[tea/context|tea]]",
        f"- Decided: Sencha, two tins [[tea/context]] {sources[0]}",
        f"- Done: Two pots came {sources[0]}",
    ]
    day += [f"- Decided: Green tea it is [[tea/context]] {sources[1]}", f"- Decided: Sencha, two tins {sources[2]}"]
    day += [f"- The pot holds two liters {sources[3]}", f"- Decided: Twelve seats {sources[4]}"]
    journal = file("knowledge/journal/2026-05-04.md", "\n".join(day))
    result = compiled(files=(file("knowledge/projects/tea/context.md", "\n".join(page)), journal))
    shown = result.text.split("2026-05-04.md -->\n")[1].replace("\n\n", "\n")
    assert shown.strip() == "## tea\n- Done: Two pots came", "the page says the rest, also if another turn said it"
    reasons = {one.id: one.reason for one in result.receipt.considered if one.source == journal.path}
    assert reasons[f"{journal.path}:2-2"] == "shown above"
    assert reasons[f"{journal.path}:4-4"].startswith("no longer so")


def test_a_file_is_accounted_for_from_its_first_line_to_its_last() -> None:
    (entry,) = compiled(files=(file("knowledge/identity/USER.md", "\n\nI am Ana.\nI row."),)).receipt.considered
    assert entry.id == "knowledge/identity/USER.md:3-4"


def test_what_was_withheld_of_a_file_is_named_and_takes_no_room() -> None:
    unread = SourceFile("knowledge/identity/SOUL.md", "", withheld=(Withheld("cannot be read"),))
    part = SourceFile("knowledge/identity/USER.md", "I am Ana.", 5, withheld=(Withheld("not always shown", 6, 9),))
    result = compiled(files=(unread, part))
    assert result.text == compiled(files=(file(part.path, part.text, first_line=5),)).text
    out = [(one.id, one.slot, one.reason) for one in result.receipt.considered if not one.included]
    assert out == [
        ("knowledge/identity/SOUL.md", "identity", "cannot be read"),
        ("knowledge/identity/USER.md:6-9", "identity", "not always shown"),
    ]


def test_bullets_stand_without_blank_lines_between_them() -> None:
    assert tight("## A\n\n- one\n\n- two\n\n  more of it\n\n- three\n\ntext\n\n- four") == (
        "## A\n\n- one\n- two\n\n  more of it\n\n- three\n\ntext\n\n- four"
    )
