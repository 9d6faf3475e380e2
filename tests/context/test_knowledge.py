"""Scores of knowledge, by values calculated by hand."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.inputs import Candidate, CompilerSettings, LastSession
from mcp_server.context.sections import Considered
from mcp_server.context.slots.knowledge import score
from mcp_server.context.slots.session import OF_PUSH
from mcp_server.model import Hit, SourceFile
from mcp_server.text.prose import is_injected
from tests.context.states import CLOSED, NOW, candidate, inputs, knowledge, passage, tokens, turn


def hit(days: float, relevance: float = 0.8, *, imported: bool = False) -> Hit:
    return Hit(knowledge("Ana lives in Novi Sad.", at=NOW - timedelta(days=days)), relevance, {}, imported=imported)


def test_yesterdays_knowledge_is_worth_nine_tenths_of_its_relevance() -> None:
    assert score(hit(1), 0, NOW)[0] == pytest.approx(0.8 * math.exp(-0.1), abs=1e-6)


def test_age_counts_in_whole_days() -> None:
    assert score(hit(1.9), 0, NOW) == score(hit(1), 0, NOW)


def test_old_knowledge_keeps_six_tenths_and_stays_reachable() -> None:
    assert score(hit(400), 0, NOW)[0] == pytest.approx(0.48)


def test_what_was_said_and_what_was_imported_does_not_age() -> None:
    said = Hit(passage("I moved.", at=NOW - timedelta(days=900)), 0.8, {})
    assert score(said, 0, NOW)[0] == score(hit(900, imported=True), 0, NOW)[0] == 0.8


def test_a_file_without_a_date_and_one_from_the_future_do_not_age() -> None:
    undated = Hit(knowledge("x", at=None), 0.8, {})
    assert score(undated, 0, NOW)[0] == score(hit(-3), 0, NOW)[0] == 0.8


def test_ten_references_double_the_score() -> None:
    assert score(hit(0), 10, NOW)[0] == pytest.approx(1.6)


@given(st.floats(0, 5), st.floats(0, 3000), st.integers(0, 500))
def test_the_terms_multiply_to_the_score(relevance: float, days: float, references: int) -> None:
    total, factors = score(hit(days, relevance), references, NOW)
    assert math.prod(factors.values()) == pytest.approx(total, abs=1e-6)


def compiled(*hits: Candidate, **more: Any) -> Compiled:
    return compile_inputs(inputs(hits=hits, **more), tokens().count)


def test_a_passage_with_nothing_but_headings_is_empty() -> None:
    headings, line = knowledge("## Notes\n\n### Later"), knowledge("## Notes\n\n- Ana moved.", start=9)
    result = compiled(*(Candidate(Hit(one, 0.8, {})) for one in (headings, line)))
    found = {(one.included, one.reason) for one in result.receipt.considered if one.slot == "knowledge"}
    assert found == {(False, "empty"), (True, "relevant")}


def entry(of: Compiled, place: int = 0) -> Considered:
    return of.receipt.considered[place]


def test_turns_of_one_conversation_stand_in_their_order_under_one_header() -> None:
    first = passage("Where do you live now?", speaker="Milan", start=10)
    second = passage("I moved to Novi Sad.", start=14)
    text = compiled(candidate(second, 0.9), candidate(first, 0.5)).text
    assert text.endswith("[2026-05-01 · Tea with Ana]\nMilan: Where do you live now?\nAna: I moved to Novi Sad.")


def test_conversations_are_shown_oldest_first_and_files_before_them() -> None:
    old = passage("I lived in Niš.", path="raw/old.md", at=NOW - timedelta(days=90), start=3)
    new = passage("I live in Novi Sad.", path="raw/new.md", start=4)
    note = knowledge("## Home\nAna has a garden.", start=5, title="Ana › Home")
    text = compiled(candidate(new, 0.9), candidate(old, 0.8), candidate(note, 0.1)).text
    assert text.index("has a garden") < text.index("Niš") < text.index("Novi Sad")
    assert "[knowledge/people/ana.md · 2026-05-01]\n5-7 Ana › Home: Ana has a garden." in text


def test_a_closed_gate_lets_nothing_in_and_says_so() -> None:
    result = compiled(candidate(passage("I moved to Novi Sad.")), gate=CLOSED)
    assert "Novi Sad" not in result.text
    assert entry(result).reason.startswith("gate closed")
    assert result.receipt.gate == CLOSED


def test_with_add_the_sessions_own_turns_stay_out_and_with_replace_they_may_come_in() -> None:
    own = candidate(passage("I moved to Novi Sad.", session="ses_now", turn=3))
    added = compiled(own, session="ses_now")
    assert (entry(added).included, entry(added).reason) == (False, "the client has it: a turn of this session")
    assert "Novi Sad" in compiled(own, session="ses_now", delivery="replace").text


def test_what_was_said_after_the_moment_of_the_compilation_is_hidden() -> None:
    own = candidate(passage("I moved to Novi Sad.", session="ses_now", turn=30))
    assert "Novi Sad" not in compiled(own, session="ses_now", delivery="replace", as_of=29).text


def test_nothing_is_said_twice_by_history_and_knowledge() -> None:
    turns = tuple(turn(number, "user", f"Sentence number {number} about Novi Sad.") for number in range(1, 30))
    hits = [candidate(passage(one.content, session="ses_now", turn=one.number, start=one.number)) for one in turns]
    result = compiled(*hits, session="ses_now", delivery="replace", turns=turns, budget=2048)
    assert all(result.text.count(f"number {number} about") == 1 for number in range(1, 30))
    assert {one.reason for one in result.receipt.considered if one.slot == "knowledge"} == {"shown in the history"}


def test_old_turns_that_do_not_fit_the_history_come_in_by_relevance() -> None:
    turns = tuple(
        turn(number, "user", f"Number {number}. " + "We talked of tea and rain. " * 8) for number in range(1, 60)
    )
    found = candidate(passage("The passport is in the blue drawer.", session="ses_now", turn=2, start=2))
    result = compiled(found, session="ses_now", delivery="replace", turns=turns, budget=1024)
    assert "blue drawer" in result.text
    assert "Number 59." in result.text
    assert "Number 3." not in result.text


def test_nearly_the_same_passage_comes_once() -> None:
    said = "We decided on the fourth of May to keep the memory in markdown files under git, and to rebuild the index."
    result = compiled(candidate(passage(said), 0.9), candidate(passage(said.upper(), start=99), 0.8))
    assert result.text.lower().count("markdown files") == 1
    assert entry(result, 1).reason == "says nearly the same as raw/conversations/2026/05/01/0900-ses_old-tea.md:7-9"


def test_of_a_long_passage_the_part_about_the_message_is_shown_with_the_way_to_the_rest() -> None:
    long = "It rained all day. " * 100 + "Ana lives in a blue house by the river. " + "We had soup. " * 100
    result = compiled(candidate(passage(long)), budget=1024)
    assert "Ana lives in a blue house by the river." in result.text
    assert " · read raw/conversations/2026/05/01/0900-ses_old-tea.md]" in result.text
    assert "(lines 7-9)" in result.text
    assert (entry(result).reason, entry(result).whole) == ("relevant, in part", False)
    assert tokens().count(result.text) < 350


def test_a_derived_line_is_shown_whole_or_not_at_all() -> None:
    said = "Ana lives in the blue house by the river. " + "It has six rooms, two cellars and a garden. " * 8
    line = knowledge(f"- 2026-05-01: {said}(amended: only until May) [src: 3](/raw/conversations/2026/05/01/a.md)")
    push = CompilerSettings(short_headers=True, passage_tokens=80)
    texts = [compiled(candidate(line), budget=budget, settings=push).text for budget in range(60, 400, 10)]
    assert {("by the river" in text, "(amended: only until May)" in text) for text in texts} == {
        (False, False),
        (True, True),
    }


def test_a_push_heads_a_conversation_by_its_day_alone() -> None:
    long = "It rained all day. " * 100 + "Ana lives in a blue house by the river. " + "We had soup. " * 100
    short = compiled(candidate(passage(long)), budget=1024, settings=CompilerSettings(short_headers=True))
    full = compiled(candidate(passage(long)), budget=1024)
    assert short.text.startswith(f"{OF_PUSH}\n\n1 May:\nAna: ")
    assert "raw/conversations" not in short.text
    assert tokens().count(short.text) < tokens().count(full.text)


def test_a_push_puts_lines_of_a_page_under_their_day_and_leaves_out_lines_of_tools_about_something_else() -> None:
    said = passage("I moved to Novi Sad.\n[Write] tea/list.md → 3 lines\n[Read] notes/ana.md → read")
    line = knowledge(
        "- 2026-05-01: Ana pays the rent. [src: raw/conversations/2026/05/01/a.md#3]",
        path="knowledge/projects/home/context.md",
        category="project",
    )
    short = compiled(
        candidate(said),
        candidate(line),
        message="Where does Ana live now?",
        settings=CompilerSettings(short_headers=True),
    )
    assert "\n1 May:\nAna pays the rent.\nAna: I moved to Novi Sad.\n" in short.text
    assert "list.md" not in short.text
    assert "notes/ana.md" in short.text


def test_a_push_names_the_year_of_an_older_line_and_keeps_one_with_a_day_that_does_not_exist() -> None:
    lines = [
        knowledge(
            f"- {day}: {said}. [src: raw/conversations/2025/04/03/a.md#3]",
            path="knowledge/projects/home/context.md",
            start=start,
            category="project",
        )
        for start, day, said in ((3, "2025-04-03", "Ana lives in Zemun"), (9, "2025-02-30", "The river is near"))
    ]
    short = compiled(*map(candidate, lines), settings=CompilerSettings(short_headers=True))
    assert "\n3 April 2025:\nAna lives in Zemun." in short.text
    assert "\n[project home]\nThe river is near." in short.text


def test_what_is_pushed_is_never_taken_for_the_words_of_a_person() -> None:
    short = compiled(candidate(passage("I moved to Novi Sad.")), settings=CompilerSettings(short_headers=True))
    assert is_injected(short.text)


def test_a_passage_that_is_only_a_part_of_its_turn_says_so_too() -> None:
    result = compiled(candidate(passage("I moved to Novi Sad."), whole=False))
    assert "Ana: I moved to Novi Sad. (lines 7-9)" in result.text


def test_long_passages_do_not_crowd_out_short_ones() -> None:
    long = [
        candidate(passage("Tea and rain again. " * 300, start=100 * n, path=f"raw/{n}.md"), 0.9 / n)
        for n in range(1, 9)
    ]
    result = compiled(*long, candidate(passage("Ana lives in Novi Sad.", start=5), 0.01), budget=2048)
    assert "Ana lives in Novi Sad." in result.text


def test_what_a_file_slot_already_shows_is_not_repeated_but_what_was_cut_from_it_may_come_in() -> None:
    lines = "\n".join(f"- 2026-05-01: Decision number {n} about the house and the tea." for n in range(1, 101))
    memory = SourceFile("knowledge/memory/MEMORY.md", lines)
    early = candidate(knowledge("Decision number 1", path=memory.path, start=1, category="memory"))
    late = candidate(knowledge("Decision number 99", path=memory.path, start=97, category="memory"))
    result = compiled(early, late, files=(memory,))
    reasons = {one.id: one.reason for one in result.receipt.considered}
    assert reasons[f"{memory.path}:1-3"] == "relevant"
    assert reasons[f"{memory.path}:97-99"] == "shown above"


def test_the_memory_file_is_for_main_sessions_also_when_search_finds_it() -> None:
    found = candidate(knowledge("Ana's salary is private.", path="knowledge/memory/MEMORY.md", category="memory"))
    assert "salary" not in compiled(found, kind="shared").text
    assert "salary" in compiled(found, kind="main").text


def test_an_untouched_template_is_not_knowledge() -> None:
    found = candidate(knowledge("Write here who you are.", path="knowledge/identity/SOUL.md"))
    empty = SourceFile("knowledge/identity/SOUL.md", "Write here who you are.", untouched=True)
    assert "Write here" not in compiled(found, files=(empty,)).text


def test_ties_go_by_path_and_line() -> None:
    hits = [candidate(passage(f"Passage {n}.", path=f"raw/{n % 2}.md", start=n)) for n in (4, 1, 3, 2)]
    ids = [one.id for one in compiled(*hits).receipt.considered]
    assert ids == ["raw/0.md:2-4", "raw/0.md:4-6", "raw/1.md:1-3", "raw/1.md:3-5"]


def test_the_receipt_holds_score_terms_and_counts_the_rest_by_reason() -> None:
    many = [candidate(passage(f"Number {n} is said here.", start=n), 1 / n) for n in range(1, 300)]
    result = compiled(*many, budget=256)
    assert len(result.receipt.considered) == 200
    assert sum(result.receipt.left_out.values()) == 99
    best = entry(result)
    assert best.id == "raw/conversations/2026/05/01/0900-ses_old-tea.md:1-3"
    assert (best.score, best.terms["relevance"], best.relevance) == (1.0, 1.0, {"keywords": 1.0})
    assert best.tokens > 0
    assert "number 299" not in result.receipt.markdown.lower()
    assert "no room left" in result.receipt.markdown


def test_own_turns_that_have_left_the_clients_window_come_in_again() -> None:
    own = [candidate(passage(f"Ana lives in place {n}.", session="ses_now", start=n)) for n in (3, 30)]
    text = compile_inputs(inputs(session="ses_now", hits=tuple(own), in_window=20), tokens().count).text
    assert "place 3." in text
    assert "place 30." not in text


def test_thanks_take_no_room_and_a_yes_is_an_answer() -> None:
    said = ("Where shall we live, in Novi Sad?", "Yes.", "ok, thanks!", "You're welcome.")
    result = compiled(*(candidate(passage(one, start=n * 10)) for n, one in enumerate(said)))
    assert result.text.endswith("Ana: Where shall we live, in Novi Sad?\nAna: Yes.")
    assert entry(result, 2).reason == "courtesy: it says nothing"


def test_what_was_pasted_for_something_else_is_left_out_of_a_message() -> None:
    log = "\n".join(f"carrier={n % 4} parcel=NL{n}" for n in range(9))
    result = compiled(candidate(passage(f"Ana lives in Novi Sad.\n```\n{log}\n```")))
    assert result.text.endswith(
        "read raw/conversations/2026/05/01/0900-ses_old-tea.md]\nAna: Ana lives in Novi Sad.\n […] (lines 7-9)"
    )
    assert not entry(result).whole


def test_the_end_of_the_last_session_is_not_said_twice() -> None:
    last = LastSession("raw/old.md", "Tea", "2026-05-01", (turn(10, "user", "I moved to Novi Sad."),))
    hit = candidate(passage("I moved to Novi Sad.", path=last.path, start=10))
    result = compiled(hit, last_session=last)
    assert result.text.count("I moved to Novi Sad.") == 1


def test_what_is_out_is_named_with_its_score_and_neither_shown_nor_compared_with() -> None:
    said = "Scans older than fourteen days can be dropped from the archive."
    out = candidate(knowledge(said, start=3), 0.9, out="another project's: lantern")
    result = compiled(out, candidate(knowledge(said, start=9), 0.5))
    assert result.text.count(said) == 1
    assert [one.reason for one in result.receipt.considered] == ["relevant", "another project's: lantern"]
    assert entry(result, 1).score == 0.666736, "what it would have counted for"
    assert "knowledge/people/ana.md:3-5 — another project's: lantern, score 0.666736" in result.receipt.markdown


def test_no_room_is_kept_free_for_what_is_out() -> None:
    long = SourceFile("knowledge/identity/USER.md", "I am Ana and I row. " * 400)
    alone = compiled(files=(long,), budget=500)
    beside = compiled(candidate(passage("I moved."), out="not for this"), files=(long,), budget=500)
    assert (beside.text, beside.receipt.slots) == (alone.text, alone.receipt.slots)
