"""The conversation before, for who asks to go on: title, date, and its last exchanges in short."""

from __future__ import annotations

from dataclasses import replace

from mcp_server.context.compiler import compile_inputs
from mcp_server.context.inputs import CompileInputs, LastSession
from tests.context.states import inputs, tokens, turn

LAST = LastSession(
    "raw/conversations/2026/05/01/0900-ses_old-tea.md",
    "Which tea --> to buy",
    "2026-05-01",
    (turn(1, "user", "Which tea shall I buy?"), turn(2, "agent", "Green tea, " + "very green, " * 400 + "from Uji.")),
)


def test_it_shows_title_date_and_the_last_turns_cut() -> None:
    text = compile_inputs(inputs(message="", budget=1200, last_session=LAST), tokens().count).text
    head, first, second = text.split("\n\n")[1].split("\n")
    assert head.startswith("<!-- last session: 2026-05-01 · Which tea --› to buy · read raw/conversations/")
    assert first == "user: Which tea shall I buy?"
    assert second.startswith("agent: Green tea, very green,")
    assert second.endswith("from Uji.")
    assert tokens().count(second) < 90


def test_the_newest_turns_come_in_first_when_room_is_short() -> None:
    many = LastSession(LAST.path, "Tea", LAST.day, tuple(turn(n, "user", f"Word {n} " * 30) for n in range(1, 20)))
    compiled = compile_inputs(inputs(message="", budget=600, last_session=many), tokens().count)
    assert compiled.tokens <= 600
    assert "Word 19" in compiled.text
    assert "Word 1 " not in compiled.text
    reasons = {one.reason for one in compiled.receipt.considered if one.slot == "last session"}
    assert reasons == {"said last", "older than what fits"}
    accounted = [one.turn for one in compiled.receipt.considered if one.slot == "last session"]
    assert accounted == list(range(19, 0, -1)), "each of them"


def test_without_room_for_its_label_it_is_left_out() -> None:
    far = replace(LAST, path=f"raw/conversations/{'a-long-name/' * 30}tea.md")
    compiled = compile_inputs(inputs(message="", budget=130, last_session=far), tokens().count)
    assert "last session" not in compiled.text
    assert not any(one.included for one in compiled.receipt.considered)


def test_stored_inputs_give_it_back() -> None:
    made = inputs(message="", last_session=LAST, in_window=7)
    assert CompileInputs.from_json(made.to_json()) == made
    assert CompileInputs.from_json(inputs(message="").to_json()).last_session is None
