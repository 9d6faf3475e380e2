"""The thread of a conversation: only real messages, bounded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.checkpoints.threads import MOST_EXCHANGES, Exchange, key_exchanges, summary
from mcp_server.model import Role, Turn
from tests.core.checkpoints.injected import INJECTED

START = datetime(2026, 3, 1, tzinfo=UTC)
LONG = "I'll use one SQLite file for the ledger.\n" + "It is one file and easy to copy. " * 15


def turn(number: int, role: Role, content: str, **more: Any) -> Turn:
    return Turn(number, role, content, START + timedelta(minutes=number), **more)


def talk(*said: str) -> list[Turn]:
    """Turns of user and agent in turn; "" leaves one out."""
    return [turn(n, "agent" if n % 2 == 0 else "user", text) for n, text in enumerate(said, start=1) if text]


def test_the_summary_says_how_it_began_and_what_was_asked_last() -> None:
    turns = talk("My bakery needs an oven", "Which one?", "ok", "Fine.", "How hot must the oven be?", "230", "thanks")
    assert summary(turns) == "Began with: My bakery needs an oven\nLast asked: How hot must the oven be?"


def test_a_conversation_of_one_message_has_no_last_one() -> None:
    assert summary(talk("My bakery needs an oven")) == "Began with: My bakery needs an oven"
    assert summary(talk("ok")) == "Began with: ok", "there is nothing better"
    assert summary([turn(1, "agent", "Hello")]) == ""


def test_long_messages_are_cut() -> None:
    said = summary(talk("oven plan " * 100, "", "flour list " * 100))
    assert len(said) <= 400
    (kept,) = key_exchanges(talk("oven plan " * 100, "answer " * 200))
    assert len(kept.asked) <= 300
    assert len(kept.answered) <= 400


def test_an_exchange_is_a_real_message_and_the_last_thing_answered_to_it() -> None:
    turns = [
        turn(1, "user", "Compile the ledger report"),
        turn(2, "agent", "Working on it."),
        turn(3, "user", "<system-reminder>be brief</system-reminder>"),
        turn(4, "system", "a notice"),
        turn(5, "agent", "Here it is:\n```\n1 2 3\n```\nAll is well."),
        turn(6, "user", "Send it to the bakers"),
    ]
    assert key_exchanges(turns) == (
        Exchange(1, "Compile the ledger report", "Here it is: All is well."),
        Exchange(6, "Send it to the bakers"),
    )


def test_small_talk_is_no_key_exchange_unless_it_settled_something() -> None:
    turns = talk("thanks", "Gladly.", "Which database for the ledger?", LONG, "yes", "Done.")
    assert [one.turn for one in key_exchanges(turns)] == [3]
    assert [one.turn for one in key_exchanges(turns, {5})] == [3, 5]
    flagged = [turn(1, "user", "ok", important=True), turn(2, "agent", "Fine.")]
    assert [one.turn for one in key_exchanges(flagged)] == [1]


def test_of_many_the_first_the_last_and_what_settled_something_are_kept() -> None:
    said: list[str] = []
    for number in range(20):
        said += [f"Question {number} about flour kind {number}", LONG if number == 7 else f"Answer {number}"]
        if number == 7:
            said += ["yes", "ok"]
    said[2 * 2] = "Tell me about marzipan ovens"
    said += ["What do marzipan ovens cost?", "Much."]
    turns = [turn(one.number, one.role, one.content, important=one.number == 21) for one in talk(*said)]
    settled = [one.number for one in turns if one.content in ("Answer 4", LONG)]
    kept = [one.asked for one in key_exchanges(turns, settled)]
    assert len(kept) == MOST_EXCHANGES
    assert kept[0].startswith("Question 0")
    assert kept[-1] == "What do marzipan ovens cost?"
    assert "Question 4 about flour kind 4" in kept, "its answer settled something"
    assert "Question 7 about flour kind 7" in kept, "so did this one"
    assert any(one.turn == 21 for one in key_exchanges(turns, settled)), "flagged"


def test_then_what_has_most_in_common_with_the_last_message() -> None:
    turns = talk(
        *(text for n in range(9) for text in (f"Flour kind {n} and yeast", "ok")), "Which rye yeast lasts?", "x"
    )
    turns[4] = turn(5, "user", "Rye yeast prices")
    assert 5 in [one.turn for one in key_exchanges(turns, most=4)]
    assert len(key_exchanges(turns, most=2)) == 2


TURNS = st.lists(
    st.tuples(
        st.sampled_from(["user", "agent", "system"]),
        st.sampled_from(["yes", "How hot is the oven?", LONG, "Decision: keep rye bread", "ok", "I need a plan", ""]),
    ),
    max_size=12,
)


@given(TURNS, st.lists(st.tuples(st.integers(0, 12), INJECTED), min_size=1, max_size=4))
def test_what_is_injected_changes_neither_the_summary_nor_the_exchanges(
    said: list[tuple[Role, str]], injected: list[tuple[int, str]]
) -> None:
    turns = [turn(number, role, text) for number, (role, text) in enumerate(said, start=1)]
    among = list(turns)
    for place, text in injected:
        among.insert(min(place, len(among)), turn(100 + place, "user", text))
    assert summary(among) == summary(turns)
    assert key_exchanges(among) == key_exchanges(turns)


@given(st.lists(st.tuples(st.sampled_from(["user", "agent", "system"]), st.text(max_size=600)), max_size=30))
def test_whatever_was_said_both_are_bounded(said: list[tuple[Role, str]]) -> None:
    turns = [turn(number, role, text) for number, (role, text) in enumerate(said, start=1)]
    assert len(summary(turns)) <= 400
    shown = key_exchanges(turns)
    assert len(shown) <= MOST_EXCHANGES
    assert [one.turn for one in shown] == sorted(one.turn for one in shown)
    assert all(one.asked and len(one.asked) <= 300 and len(one.answered) <= 400 for one in shown)
