"""P4: the session's own history, for clients that send our text as their prompt."""

from __future__ import annotations

from typing import Any

from mcp_server.context.compiler import Compiled, compile_inputs
from mcp_server.context.slots.history import newest
from mcp_server.model import ToolCall, Turn
from tests.context.states import candidate, inputs, passage, tokens, turn


def compiled(turns: tuple[Turn, ...], budget: int = 2048, **more: Any) -> Compiled:
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
    text = compiled(talk(3)).text
    said = [line for line in text.splitlines() if line.startswith(("user: ", "agent: "))]
    assert [line.split("?")[0].split(".")[0] for line in said] == [
        f"{who} {n}" for n in range(3) for who in ("user: Question", "agent: Answer")
    ]


def test_older_turns_come_in_by_groups_of_eight_exchanges() -> None:
    room_for_sixteen = compiled(talk(16), 9000).tokens + 50
    for last in range(17, 25):
        text = compiled(talk(last), room_for_sixteen).text
        assert "Question 8?" in text
        assert "Question 7?" not in text


def test_the_beginning_of_the_text_stays_the_same_while_a_group_grows() -> None:
    one, other = compiled(talk(17), 1600).text, compiled(talk(18), 1600).text
    assert other.startswith(one)


def test_where_no_group_fits_single_turns_come_in() -> None:
    text = compiled(talk(16, length=60), 2048).text
    assert "Question 15?" in text
    assert "Question 13?" in text
    assert "Question 8?" not in text


def test_the_last_user_turn_is_there_at_the_smallest_budget() -> None:
    hits = tuple(candidate(passage("Ana lives in Novi Sad. " * 9, start=n, path=f"raw/{n}.md")) for n in range(20))
    text = compiled((*talk(4), turn(99, "user", "So, what now?")), 128, hits=hits).text
    assert "user: So, what now?" in text


def test_a_long_last_user_turn_is_whole_where_it_fits_and_memory_yields() -> None:
    question = "Here is the log. " + "a line of it\n" * 200 + "What went wrong?"
    hits = tuple(candidate(passage("Ana lives in Novi Sad.", start=n, path=f"raw/{n}.md")) for n in range(99))
    result = compiled((turn(1, "user", question),), 1600, hits=hits)
    assert result.text.count("a line of it") == 200
    assert "Novi Sad" in result.text


def test_one_that_cannot_fit_is_cut_in_the_middle_and_says_so() -> None:
    result = compiled((turn(1, "user", "Here is the log. " + "a line of it\n" * 9000 + "What went wrong?"),), 512)
    assert "Here is the log." in result.text
    assert "[…]" in result.text
    assert result.text.endswith("What went wrong?")
    assert next(one for one in result.receipt.considered).reason == "recent, cut: too long"


def test_a_very_long_answer_does_not_push_out_the_rest() -> None:
    turns = (*talk(2), turn(5, "user", "More?"), turn(6, "agent", "Sure. " * 9000), turn(7, "user", "Thanks."))
    text = compiled(turns, 2048).text
    assert "Question 0?" in text
    assert "Sure. [" not in text.split("agent: Sure.")[0]


def test_turns_after_the_moment_are_hidden() -> None:
    assert "Question 2?" not in compiled(talk(3), as_of=4).text


def test_tool_calls_are_one_line_each() -> None:
    call = ToolCall("grep", "TODO in src", "12 matches")
    text = compiled((turn(1), turn(2, "agent", "I looked.", tool_calls=(call,)))).text
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
    result = compiled(kept, 1600, first_exchange=before)
    assert result.text == compiled(turns, 1600).text
    last = result.receipt.considered[-1]
    assert (last.id, last.reason) == (f"ses_now#1-{kept[0].number - 1}", "older than what fits")
