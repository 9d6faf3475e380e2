"""Activations: how long a topic stays, what a person switches, what is stored."""

from __future__ import annotations

import tracemalloc
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.topics.topic import (
    MOST_CORRECTIONS,
    MOST_PAYLOADS,
    Activations,
    Correction,
    Payload,
    TopicActivation,
    fingerprint,
)

TTL = 3


def test_a_correction_lives_until_the_agent_speaks_again() -> None:
    first, second = Correction("code", "Use Python 3", 2), Correction("code", "No tabs", 4)
    now = Activations().answered(2, [first])
    assert now.corrections == (first,)
    assert now.fired([], 2, TTL).corrections == (first,)
    assert now.answered(4, [second]).corrections == (second,)
    assert now.answered(4, []).corrections == ()
    assert now.answered(1, []).corrections == (first,)  # two turns judged at once, the older one last
    many = [Correction("code", f"hint {number}", 2) for number in range(99)]
    assert len(Activations().answered(2, many).corrections) == MOST_CORRECTIONS


def test_payloads_and_people_add_up_and_the_oldest_give_way() -> None:
    now = Activations()
    for number in range(MOST_PAYLOADS + 2):
        came = TopicActivation(
            "mail", 1, "webhook", people=(f"p{number % 2}",), payloads=(Payload("w", "now", f"{number}"),)
        )
        now = now.fired([came], 1, TTL)
    one = now.topics["mail"]
    assert [payload.text for payload in one.payloads] == ["2", "3", "4"]
    assert one.people == ("p0", "p1")


def test_a_message_that_was_judged_ahead_is_known_by_its_words() -> None:
    now = Activations().judged_ahead("look  at\nmy inbox")
    assert now.recorded("something else") == now
    assert now.recorded("look at my inbox").ahead == ()


WORD = st.text(max_size=5)
ONE = st.builds(
    TopicActivation,
    name=WORD,
    fired=st.integers(0, 9),
    by=WORD,
    score=st.none() | st.floats(0, 1),
    manual=st.booleans(),
    off=st.booleans(),
    people=st.lists(WORD, max_size=2).map(tuple),
    payloads=st.lists(st.builds(Payload, WORD, WORD, WORD), max_size=2).map(tuple),
)


@given(
    st.lists(ONE, max_size=3),
    st.lists(st.builds(Correction, WORD, WORD, st.integers(0, 9)), max_size=3),
    st.lists(WORD, max_size=2),
)
def test_what_is_stored_reads_back_the_same(
    ones: list[TopicActivation], wrong: list[Correction], ahead: list[str]
) -> None:
    stored = Activations({one.name: one for one in ones}, tuple(wrong), tuple(ahead))
    assert Activations.from_json(asdict(stored)) == stored


@pytest.mark.parametrize("stored", [None, [], "x", {}, {"topics": {"a": 1}, "corrections": [], "ahead": []}])
def test_what_cannot_be_read_is_nothing(stored: Any) -> None:
    assert Activations.from_json(stored) == Activations()


@given(st.text(alphabet="ab \n\t\u3000č\ud800", max_size=40), st.integers(min_value=1, max_value=60_000))
def test_a_message_is_known_again_whatever_its_blanks_and_however_long(text: str, times: int) -> None:
    message = f"{text}x" * times
    assert fingerprint(message) == fingerprint(" \n ".join(["", *message.split(), ""]))
    assert fingerprint(message) != fingerprint(f"{message}y")


def test_a_long_message_is_read_without_holding_all_its_words() -> None:
    message = "harbour sail " * 400_000
    tracemalloc.start()
    fingerprint(message)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * len(message)
