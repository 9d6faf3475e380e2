"""A topic's way through the gate, case by case, and the arithmetic that is used without an LLM."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.topics import judge
from mcp_server.topics.judge import Way
from mcp_server.topics.similarity import COMMON, meant
from mcp_server.topics.topic import Activation, Match, Priority, Topic, Trigger

TRIGGER = Trigger("keywords", ("invoice",))
TOPIC = Topic("expenses", "topics/expenses.md", "Keep receipts.", triggers=(TRIGGER,))
MATCH = Match("expenses", 0, TRIGGER, "invoice", 4, 11)


@pytest.mark.parametrize(
    ("priority", "score", "way"),
    [
        ("critical", 0.0, "activate"),
        ("high", 0.3, "activate"),
        ("high", 0.299999, "gate"),
        ("medium", 0.2, "gate"),
        ("medium", 0.199999, "drop"),
        ("low", 0.3, "gate"),
        ("low", 0.299999, "drop"),
    ],
)
def test_after_a_match_the_table_alone_decides(priority: Priority, score: float, way: Way) -> None:
    topic = replace(TOPIC, priority=priority)
    for threshold in (0.0, 0.15, 1.0):
        assert judge.route(topic, [MATCH], score, threshold).way == way


@pytest.mark.parametrize(
    ("activation", "matches", "triggers", "score", "way"),
    [
        ("auto", [MATCH], (TRIGGER,), 0.0, "activate"),
        ("auto", [], (TRIGGER,), 1.0, "not asked"),
        ("auto", [], (), 0.9, "gate"),
        ("gated", [], (TRIGGER,), 1.0, "not asked"),
        ("gated", [], (), 0.15, "gate"),
        ("gated", [], (), 0.149999, "not asked"),
        ("manual", [MATCH], (TRIGGER,), 1.0, "not asked"),
        ("manual", [], (), 1.0, "not asked"),
    ],
)
def test_activation_says_who_is_asked(
    activation: Activation, matches: list[Match], triggers: tuple[Trigger, ...], score: float, way: Way
) -> None:
    topic = replace(TOPIC, activation=activation, triggers=triggers, priority="critical")
    assert judge.route(topic, matches, score, 0.15).way == way


def test_a_correction_needs_no_gate_but_a_manual_topic_gives_none() -> None:
    trigger = Trigger("pattern", ("print ",), scope="output", correction="print is a function")
    match = Match("expenses", 0, trigger, "print ", 0, 6)
    low = replace(TOPIC, priority="low", triggers=(trigger,))
    assert judge.route(low, [match], 0.0, 0.15).way == "activate"
    assert judge.route(replace(low, activation="manual"), [match], 0.0, 0.15).way == "not asked"


@given(st.floats(0, 1), st.integers(0, 50), st.floats(0, 1), st.floats(0, 1), st.one_of(st.none(), st.floats(-1, 1)))
def test_the_terms_of_the_arithmetic_gate_sum_to_its_value(
    score: float, told: int, threshold: float, margin: float, meant: float | None
) -> None:
    said = judge.deliberate(score, told, threshold, margin, meant)
    assert said.value == pytest.approx(sum(said.terms.values()), abs=1e-6)
    assert said.open == (said.value >= said.needed)
    assert said.needed == pytest.approx(threshold + margin, abs=1e-6)


def test_more_of_a_topics_own_words_open_the_gate_and_what_it_is_not_for_closes_it() -> None:
    assert not judge.deliberate(0.25, 1, 0.15, 0.13).open
    assert judge.deliberate(0.25, 2, 0.15, 0.13).open
    assert judge.deliberate(0.25, 1, 0.15, 0.13, meant(0.4, [0.2])).open
    assert not judge.deliberate(0.25, 2, 0.15, 0.13, meant(0.4, [0.2, 0.8])).open


def test_an_embedder_whose_common_cosine_is_unknown_only_compares_with_what_a_topic_is_not_for() -> None:
    assert meant(0.4, [0.3], None) == pytest.approx(0.1)
    assert meant(0.4, [], None) is None
    assert meant(0.4, []) == pytest.approx(0.4 - COMMON)


def test_a_word_said_twice_or_found_by_two_triggers_counts_once() -> None:
    other = Match("expenses", 1, Trigger("pattern", ("INVOICE",)), "INVOICE", 4, 11)
    assert judge.count_distinct([MATCH, other, replace(MATCH, start=30)]) == 1
    assert judge.count_distinct([MATCH, replace(MATCH, said="receipt")]) == 2
    assert judge.count_distinct([]) == 0


@pytest.mark.parametrize(
    ("answers", "means"),
    [
        (["YES", " yes.\n", "**Yes**", "Y", "YES, it should"], True),
        (["NO", "no, never", "n"], False),
        (["", "maybe", "yesterday", "I cannot say", "not sure"], None),
    ],
)
def test_only_a_clear_yes_or_no_is_understood(answers: list[str], means: bool | None) -> None:
    assert {judge.parse_answer(answer) for answer in answers} == {means}
