"""The Clarity block inside a compiled text."""

from __future__ import annotations

from typing import Any

from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.inputs import CompilerSettings
from mcp_server.context.slots.session import CLARITY_LABEL, newest
from mcp_server.model import SourceFile, ToolCall, Turn
from mcp_server.relevance.clarity_scores import BlockItem
from mcp_server.text.entries import STATE
from tests.context import states
from tests.context.states import candidate, inputs, passage, tokens, turn

ITEMS = tuple(
    BlockItem(f"thing-{number}", 100.0 - number, number == 0, "8 points or more", {"base": 100.0 - number})
    for number in range(60)
)


def test_it_stands_last_and_takes_no_more_than_is_set() -> None:
    count = states.tokens().count
    for budget, most in ((8192, 150), (512, 51), (8192, 60)):
        knobs = CompilerSettings(clarity_tokens=most if budget == 8192 else 150)
        compiled = compile_inputs(states.inputs(budget=budget, clarity=ITEMS, settings=knobs), count)
        (slot,) = [slot for slot in compiled.receipt.slots if slot.name == "clarity"]
        label = count(f"{CLARITY_LABEL}\n\n\n") if budget == 8192 else 0  # the setting is for the block without it
        assert 0 < slot.tokens <= most + label
        assert compiled.text.rstrip().splitlines()[-1].lstrip().startswith(("●", "◐", "○"))
        assert compiled.tokens <= budget


def test_the_receipt_says_of_every_item_whether_it_is_in_and_what_its_score_is_made_of() -> None:
    compiled = compile_inputs(states.inputs(clarity=ITEMS), states.tokens().count)
    considered = [one for one in compiled.receipt.considered if one.slot == "clarity"]
    assert len(considered) == 60
    shown = [one for one in considered if one.included]
    assert f"{len(shown)} |" in next(line for line in compiled.receipt.markdown.splitlines() if "| clarity |" in line)
    assert all(f"{one.id.removeprefix('clarity:')} (" in compiled.text for one in shown)
    assert "score 100 = base +100" in compiled.receipt.markdown
    assert {one.reason for one in considered if not one.included} == {"no room in the block"}


def test_nothing_to_show_or_no_tokens_for_it_is_no_block() -> None:
    count = states.tokens().count
    assert "CLARITY" not in compile_inputs(states.inputs(), count).text
    off = states.inputs(clarity=ITEMS, settings=CompilerSettings(clarity_tokens=0))
    assert "CLARITY" not in compile_inputs(off, count).text


PAGE = "knowledge/projects/tea/context.md"


def page(**sections: list[str]) -> SourceFile:
    rows: list[str] = ["# tea"]
    for title, lines in sections.items():
        rows += ["", f"## {title.replace('_', ' ')}"]
        rows += [f"- 2026-05-02: {line} [src: raw/conversations/2026/05/02/a.md#{at}]" for at, line in enumerate(lines)]
    return SourceFile(PAGE, "\n".join(rows))


def compiled(source: SourceFile, **more: Any) -> Compiled:
    return compile_inputs(inputs(files=(source,), **more), tokens().count)


def order_of(source: SourceFile, *words: str) -> tuple[str, ...]:
    """The `path:line` of the lines with these words."""
    rows = source.text.split("\n")
    return tuple(f"{PAGE}:{place}" for word in words for place, row in enumerate(rows, 1) if word in row)


def test_without_a_message_new_decisions_come_before_old_facts() -> None:
    rules, decisions, opened = ["Never boil the water."], ["Sencha it is."], ["Buy cups."]
    source = page(Rules=rules, Key_Decisions=decisions, Open_items=opened, Facts=["The kitchen has 12 m2."])
    text = compiled(source).text
    assert "Rules:\n- Never boil the water.\nDecided:\n- Sencha it is.\nOpen:\n- Buy cups.\nFacts:\n- The" in text
    many = [f"Pot number {number} is for guests." for number in range(30)]
    facts = [f"Cupboard number {number} has cups for guests." for number in range(90)]
    text = compiled(page(Rules=rules, Key_Decisions=many, Facts=facts), budget=600).text
    for part in ("Never boil", "Pot number 29 ", "Pot number 20 ", "Cupboard number 89 "):
        assert part in text
    assert "Pot number 1 " not in text


def test_a_sentence_that_stands_in_two_sections_is_shown_once() -> None:
    rule = "Never boil the water."
    result = compiled(page(Rules=[rule], Key_Decisions=[rule, "Sencha it is."], Open_items=["Buy cups."]))
    assert "Rules:\n- Never boil the water.\nDecided:\n- Sencha it is.\nOpen:" in result.text
    (left_out,) = [one for one in result.receipt.considered if one.slot == "what holds" and not one.included]
    assert left_out.reason == "another line says it"


def test_long_rules_come_before_many_short_decisions() -> None:
    rules = [f"Rule {number}: never boil the water, {'and warm the pot, ' * 6}please." for number in range(3)]
    many = [f"Pot number {number} is for guests." for number in range(90)]
    text = compiled(page(Rules=rules, Key_Decisions=many), budget=600).text
    assert all(f"Rule {number}" in text for number in range(3))
    assert "Pot number 89 " in text


def test_with_a_message_the_lines_that_search_ranks_first_get_the_room() -> None:
    decisions = [f"Pot number {number} is for guests who come on weekday number {number}." for number in range(90)]
    source = page(Rules=["Never boil the water."], Key_Decisions=decisions, Facts=["The kitchen has 12 m2."])
    wanted = order_of(source, "12 m2", "number 4 ", "number 71 ")
    result = compiled(source, page_order=wanted, budget=600)
    for part in ("Never boil", "Pot number 4 ", "Pot number 71 ", "Facts:\n- The kitchen has 12 m2."):
        assert part in result.text
    left_out = [one for one in result.receipt.considered if one.slot == "what holds" and not one.included]
    assert len(left_out) > 50
    assert f"Decided ({90 - len(left_out)} of 90):\n" in result.text
    assert {one.reason for one in left_out} == {"no room within its share"}


def test_without_a_message_the_newest_lines_get_the_room() -> None:
    source = page(Key_Decisions=[f"Pot number {number} is for guests." for number in range(90)])
    text = compiled(source, budget=600).text
    assert "Pot number 89 " in text
    assert "Pot number 1 " not in text


def test_without_a_message_an_old_short_line_comes_before_old_long_ones() -> None:
    long = [f"Pot number {number} is for guests who stay until {'very ' * 20}late." for number in range(30)]
    text = compiled(page(Key_Decisions=["We go with sencha.", *long]), budget=600).text
    assert "We go with sencha." in text
    assert "Pot number 29 " in text
    assert "Pot number 1 " not in text


def test_without_a_message_handwritten_lines_come_first_and_then_the_likeliest() -> None:
    unlikely = [f"psql: connection number {number} to the server failed" for number in range(40)]
    source = page(Key_Decisions=["Let's go with sencha.", *unlikely])
    text = compiled(source, budget=600).text
    assert "Let's go with sencha." in text
    assert "number 1 to" not in text
    own = SourceFile(PAGE, source.text.replace("## Key Decisions\n", "## Key Decisions\n\n- psql: it failed once\n"))
    assert "psql: it failed once" in compiled(own, budget=600).text


def test_no_room_is_kept_free_for_the_state_of_a_project_which_repeats_its_lines() -> None:
    many = [f"Pot number {number} is for guests." for number in range(90)]
    source = page(Key_Decisions=many)
    state = f"{STATE}Last decision: {many[-1]} [src: raw/conversations/2026/05/02/a.md#89]"
    with_state = SourceFile(PAGE, source.text.replace("# tea\n", f"# tea\n\n{state}\n"))
    settings = CompilerSettings(memory_share=0.4, holding_share=1.0)
    counts = [compiled(one, budget=600, settings=settings).text.count("Pot number") for one in (source, with_state)]
    assert counts[1] >= counts[0] > 20


def compiled_history(turns: tuple[Turn, ...], budget: int = 2048, **more: Any) -> Compiled:
    return compile_inputs(
        inputs("Go on.", budget, session="ses_now", delivery="replace", turns=turns, **more), tokens().count
    )


def talk(exchanges: int, length: int = 12) -> tuple[Turn, ...]:
    made: list[Turn] = []
    for number in range(exchanges):
        made.append(turn(2 * number + 1, "user", f"Question {number}?"))
        made.append(turn(2 * number + 2, "agent", f"Answer {number}. " + "All is well with it. " * length))
    return tuple(made)


def test_the_client_keeps_its_own_history_with_add() -> None:
    text = compile_inputs(inputs(session="ses_now", turns=talk(3)), tokens().count).text
    assert "Question" not in text


def test_a_short_history_is_whole_and_oldest_first() -> None:
    text = compiled_history(talk(3)).text
    said = [line for line in text.splitlines() if line.startswith(("user: ", "agent: "))]
    assert [line.split("?")[0].split(".")[0] for line in said] == [
        f"{who} {n}" for n in range(3) for who in ("user: Question", "agent: Answer")
    ]


def test_older_turns_come_in_by_groups_of_eight_exchanges() -> None:
    room_for_sixteen = compiled_history(talk(16), 9000).tokens + 50
    for last in range(17, 25):
        text = compiled_history(talk(last), room_for_sixteen).text
        assert "Question 8?" in text
        assert "Question 7?" not in text


def test_the_beginning_of_the_text_stays_the_same_while_a_group_grows() -> None:
    one, other = compiled_history(talk(17), 1600).text, compiled_history(talk(18), 1600).text
    assert other.startswith(one)


def test_where_no_group_fits_single_turns_come_in() -> None:
    text = compiled_history(talk(16, length=60), 2048).text
    assert "Question 15?" in text
    assert "Question 13?" in text
    assert "Question 8?" not in text


def test_the_last_user_turn_is_there_at_the_smallest_budget() -> None:
    hits = tuple(candidate(passage("Ana lives in Novi Sad. " * 9, start=n, path=f"raw/{n}.md")) for n in range(20))
    text = compiled_history((*talk(4), turn(99, "user", "So, what now?")), 128, hits=hits).text
    assert "user: So, what now?" in text


def test_a_long_last_user_turn_is_whole_where_it_fits_and_memory_yields() -> None:
    question = "Here is the log. " + "a line of it\n" * 200 + "What went wrong?"
    hits = tuple(candidate(passage("Ana lives in Novi Sad.", start=n, path=f"raw/{n}.md")) for n in range(99))
    result = compiled_history((turn(1, "user", question),), 1600, hits=hits)
    assert result.text.count("a line of it") == 200
    assert "Novi Sad" in result.text


def test_one_that_cannot_fit_is_cut_in_the_middle_and_says_so() -> None:
    result = compiled_history(
        (turn(1, "user", "Here is the log. " + "a line of it\n" * 9000 + "What went wrong?"),), 512
    )
    assert "Here is the log." in result.text
    assert "[…]" in result.text
    assert result.text.endswith("What went wrong?")
    assert next(one for one in result.receipt.considered).reason == "recent, cut: too long"


def test_a_very_long_answer_does_not_push_out_the_rest() -> None:
    turns = (*talk(2), turn(5, "user", "More?"), turn(6, "agent", "Sure. " * 9000), turn(7, "user", "Thanks."))
    text = compiled_history(turns, 2048).text
    assert "Question 0?" in text
    assert "Sure. [" not in text.split("agent: Sure.")[0]


def test_turns_after_the_moment_are_hidden() -> None:
    assert "Question 2?" not in compiled_history(talk(3), as_of=4).text


def test_tool_calls_are_one_line_each() -> None:
    call = ToolCall("grep", "TODO in src", "12 matches")
    text = compiled_history((turn(1), turn(2, "agent", "I looked.", tool_calls=(call,)))).text
    assert "agent: I looked.\n > [tool:grep] TODO in src → 12 matches" in text


def test_of_a_long_session_only_what_could_fit_is_an_input_from_a_group_on() -> None:
    kept, before = newest(talk(100), 128)
    assert before % 8 == 0
    assert kept[0].content == f"Question {before}?"
    assert sum(len(one.content) for one in kept) >= 128 * 16
    assert newest((), 128) == ((), 0)
    assert newest(talk(3), 8192) == (talk(3), 0)


def test_what_the_window_leaves_out_changes_nothing_in_the_text() -> None:
    turns = talk(400)
    kept, before = newest(turns, 1600)
    assert len(kept) < len(turns)
    result = compiled_history(kept, 1600, first_exchange=before)
    assert result.text == compiled_history(turns, 1600).text
    last = result.receipt.considered[-1]
    assert (last.id, last.reason) == (f"ses_now#1-{kept[0].number - 1}", "older than what fits")
