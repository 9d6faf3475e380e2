"""When does a message let memory into the context?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.core.scoring.gate import WITH_EMBEDDER, WITHOUT_EMBEDDER, GateWeights, decide, names_said, subject
from mcp_server.core.text.words import content_words

masks = st.lists(st.integers(0, 15), max_size=20)
cosines = st.none() | st.floats(-1, 1)
WORDS = ("boat", "harbour", "ana", "thanks")


@given(st.tuples(*[st.integers(0, 500)] * 4), masks, cosines)
def test_the_value_is_the_sum_of_its_terms_and_decides_alone(
    frequencies: tuple[int, ...], matched: list[int], nearest: float | None
) -> None:
    decision = decide(WORDS, frequencies, 500, matched, nearest)
    assert decision.value == round(sum(decision.terms.values()), 6)
    assert 0 <= decision.value <= 1
    assert decision.open == (decision.value >= decision.threshold)


@given(st.tuples(*[st.integers(0, 500)] * 4), masks, st.floats(0, 0.9))
def test_a_nearer_passage_never_closes_the_gate(
    frequencies: tuple[int, ...], matched: list[int], nearest: float
) -> None:
    before = decide(WORDS, frequencies, 500, matched, nearest)
    assert decide(WORDS, frequencies, 500, matched, nearest + 0.1).value >= before.value


@given(masks, st.integers(0, 15), cosines)
def test_one_more_passage_never_closes_the_gate(matched: list[int], another: int, nearest: float | None) -> None:
    before = decide(WORDS, (5, 5, 5, 5), 500, matched, nearest)
    assert decide(WORDS, (5, 5, 5, 5), 500, [*matched, another], nearest).value >= before.value


@pytest.mark.parametrize(
    "message",
    ["ok thanks", "Sounds good, continue!", "great, go ahead", "hvala, nastavi", "danke, weiter bitte", "", "?!", "👍"],
)
def test_a_message_without_a_subject_is_refused_whatever_it_resembles(message: str) -> None:
    words = content_words(message)
    decision = decide(words, [100] * len(words), 500, [(1 << len(words)) - 1], nearest=0.9)
    assert not decision.open
    assert decision.value == 0


def test_a_question_whose_rare_words_stand_in_one_passage_opens_it() -> None:
    words = ("boat", "harbour")
    assert decide(words, (3, 2), 500, [0b11], nearest=0.5).open
    assert decide(words, (3, 2), 500, [0b11]).open, "also without an embedder"


def test_a_question_about_what_nobody_ever_mentioned_is_refused() -> None:
    words = ("kubernetes", "liveness", "probe", "use")
    assert not decide(words, (0, 0, 0, 40), 500, [0b1000], nearest=0.35).open
    assert not decide(words, (0, 0, 0, 40), 500, [0b1000]).open


def test_one_common_word_of_many_is_not_enough() -> None:
    words = ("marathon", "knee", "surgery", "friend")
    assert not decide(words, (0, 0, 0, 90), 500, [0b1000]).open


def test_an_empty_memory_is_never_opened() -> None:
    assert not decide(("boat",), (0,), 0, [], nearest=None).open


def test_the_words_of_the_talk_are_not_its_subject() -> None:
    assert subject(("continue", "harbour", "please")) == (1,)


def test_words_that_frame_a_question_are_not_its_subject() -> None:
    asked = content_words(
        "Can you list in order the different aspects of the harbour I brought up? Mention five items."
    )
    assert [asked[i] for i in subject(asked)] == ["harbour"]


def test_a_name_that_nobody_ever_mentioned_counts_against_a_message() -> None:
    words = ("zofia", "boat")
    with_capital = decide(words, (0, 3), 500, [0b10], 0.4, message="Where did Zofia buy the boat?")
    without = decide(words, (0, 3), 500, [0b10], 0.4, message="where did zofia buy the boat?")
    assert with_capital.terms["named"] == 0
    assert without.terms["named"] == WITH_EMBEDDER.named
    assert without.value - with_capital.value == pytest.approx(WITH_EMBEDDER.named)


def test_of_two_names_one_may_be_new() -> None:
    decision = decide(("ana", "zofia"), (9, 0), 500, [0b01], 0.4, message="Has Ana met Zofia?")
    assert decision.terms["named"] == pytest.approx(WITH_EMBEDDER.named / 2)


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("When did Ana's sister meet Zoë?", {"ana", "zoe"}),
        ("Boats sink. Harbours stay.", set()),
        ('He said "Stop" to Ana', {"ana"}),
        ("WHERE IS THE BOAT", set()),
        ("Gde je Đorđe kupio čamac?", {"dorde"}),
        ("", set()),
    ],
)
def test_names_are_known_by_a_capital_within_a_sentence(message: str, names: set[str]) -> None:
    assert names_said(message) == names


@pytest.mark.parametrize("passages", [1, 3, 50, 500, 1_000_000])
@pytest.mark.parametrize("words", [1, 2, 3, 8])
def test_words_that_nobody_ever_said_do_not_open_it_in_a_scope_of_any_size(passages: int, words: int) -> None:
    lookup = [f"word{i}" for i in range(words)]
    assert not decide(lookup, [0] * words, passages, [], nearest=0.35).open
    assert not decide(lookup, [0] * words, passages, []).open


def test_a_longer_message_must_show_more() -> None:
    assert (
        decide(("boat",), (3,), 500, [1], 0.4).terms["brief"]
        > decide(("boat", "sea"), (3, 3), 500, [3], 0.4).terms["brief"]
    )


def test_a_name_counts_as_a_word_of_the_subject() -> None:
    known = decide(("boat", "ana"), (3, 50), 500, [0b11])
    stranger = decide(("boat", "zofia"), (3, 0), 500, [0b01])
    assert known.value > stranger.value


def test_an_embedder_may_bring_its_own_threshold() -> None:
    strict = GateWeights(nearest=1.0, covered=0.0, known=0.0, named=0.0, brief=0.0, length=5, threshold=0.8)
    assert not decide(("boat",), (3,), 500, [1], nearest=0.7, weights=strict).open
    assert decide(("boat",), (3,), 500, [1], nearest=0.8, weights=strict).open


@pytest.mark.parametrize("weights", [WITH_EMBEDDER, WITHOUT_EMBEDDER])
def test_the_weights_sum_to_one(weights: GateWeights) -> None:
    assert weights.nearest + weights.covered + weights.known + weights.named + weights.brief == pytest.approx(1)


def test_a_receipt_can_print_the_decision() -> None:
    signal = decide(("boat",), (3,), 500, [1], nearest=0.5).signal()
    assert signal.open
    assert signal.signal.startswith("nearest 0.240 + covered ")
    assert list(decide(("boat",), (3,), 500, [1]).terms) == ["nearest", "covered", "known", "named", "brief"]
