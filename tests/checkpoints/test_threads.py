"""The thread of a conversation: only real messages, bounded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.checkpoints.checkpoint import announced, summary
from mcp_server.model import Role, Turn
from tests.checkpoints.injected import INJECTED

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


TURNS = st.lists(
    st.tuples(
        st.sampled_from(["user", "agent", "system"]),
        st.sampled_from(["yes", "How hot is the oven?", LONG, "Decision: keep rye bread", "ok", "I need a plan", ""]),
    ),
    max_size=12,
)


@given(TURNS, st.lists(st.tuples(st.integers(0, 12), INJECTED), min_size=1, max_size=4))
def test_what_is_injected_changes_nothing_of_the_summary(
    said: list[tuple[Role, str]], injected: list[tuple[int, str]]
) -> None:
    turns = [turn(number, role, text) for number, (role, text) in enumerate(said, start=1)]
    among = list(turns)
    for place, text in injected:
        among.insert(min(place, len(among)), turn(100 + place, "user", text))
    assert summary(among) == summary(turns)


@given(st.lists(st.tuples(st.sampled_from(["user", "agent", "system"]), st.text(max_size=600)), max_size=30))
def test_whatever_was_said_the_summary_is_bounded(said: list[tuple[Role, str]]) -> None:
    turns = [turn(number, role, text) for number, (role, text) in enumerate(said, start=1)]
    assert len(summary(turns)) <= 400


def test_the_next_step_is_what_was_announced_last_by_the_user_if_possible() -> None:
    said: list[tuple[Role, str]] = [
        ("user", "Merged. Next we do the load test."),
        ("agent", "Done. Next steps: review of the role by Petar."),
        ("user", "Good. That's it, we go on tomorrow with the staging rollout."),
        ("agent", "See you tomorrow. What is the next step?"),
    ]
    turns = [turn(number, role, text) for number, (role, text) in enumerate(said, start=1)]
    assert announced(turns, ()) == "That's it, we go on tomorrow with the staging rollout."
    assert announced(turns[1:2], ()) == "Next steps: review of the role by Petar."


def test_without_an_announcement_an_open_item_that_is_one_is_the_next_step_else_there_is_none() -> None:
    turns = [turn(1, "user", "Thanks, that will do.")]
    items = ("Next step: book the hall", "Somebody has to check the cache, I doubt it.")
    assert announced(turns, items) == "Next step: book the hall"
    assert announced(turns, items[1:]) == ""
