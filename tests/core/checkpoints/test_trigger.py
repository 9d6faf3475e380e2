"""When a decision is taken down."""

from __future__ import annotations

import pytest

from mcp_server.core.checkpoints.trigger import confirms, decision_at, is_long

DECISION = "I'll use one SQLite file for the ledger."
ANSWER = f"{DECISION}\n" + "It is one file and easy to copy. " * 15


@pytest.mark.parametrize(
    "message",
    [
        *("yes", "Yes!", "ok, do it", "Sounds good, go ahead", "perfect", "LGTM", "👍 yes", "agreed", "Let’s do that"),
        *("That makes sense. Thanks for walking me through it!", "Da, može", "važi", "U redu", "passt"),
    ],
)
def test_a_short_yes_confirms(message: str) -> None:
    assert confirms(message)
    assert decision_at("user", message, ANSWER) == DECISION


@pytest.mark.parametrize(
    "message",
    [
        *(
            "",
            "no",
            "yes?",
            "ok, but why",
            "Yes, but use Postgres",
            "sure, except for the log",
            "ok. What now? Tell me",
        ),
        *("Right now it is slow", "Good morning", "Da li je gotovo", "yes " * 26, "not yet", "yesterday it broke"),
        *("ok, don't touch it", "Instead, use Postgres"),
    ],
)
def test_anything_else_does_not(message: str) -> None:
    assert not confirms(message)
    assert decision_at("user", message, ANSWER) is None


def test_only_a_long_answer_is_confirmed() -> None:
    assert is_long(ANSWER)
    assert decision_at("user", "yes", DECISION) is None
    assert decision_at("user", "yes", None) is None


def test_an_explicit_marker_counts_at_once_whoever_wrote_it() -> None:
    marked = "Decision: keep SQLite for now"
    assert decision_at("agent", f"Hello.\n{marked}", None) == marked
    assert decision_at("user", marked, None) == marked
    assert decision_at("user", marked, ANSWER) == marked, "before what it confirms"
    assert decision_at("system", marked, None) is None


def test_an_agents_answer_alone_settles_nothing() -> None:
    assert decision_at("agent", ANSWER, None) is None
    assert decision_at("agent", "yes", ANSWER) is None
    assert decision_at("system", "yes", ANSWER) is None
