"""When does a message let memory into the context?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.search.gate import (
    WITH_EMBEDDER,
    WITHOUT_EMBEDDER,
    GateDecision,
    GateWeights,
    names_said,
    question,
    subject,
    worth,
)
from mcp_server.search.ranking import Candidate
from mcp_server.text.words import content_words

WORDS = ("boat", "harbour", "ana", "thanks")


def passage(matched: int = 0, cosine: float | None = None, role: str = "user", length: int = 100) -> Candidate:
    return Candidate("raw/a.md", 1, "raw/a.md#1", matched=matched, cosine=cosine, role=role, length=length)


def decide(
    lookup: Sequence[str],
    frequencies: Sequence[int],
    passages: int,
    candidates: Sequence[Candidate],
    weights: GateWeights | None = None,
    message: str = "",
) -> GateDecision:
    usual = WITH_EMBEDDER if any(one.cosine is not None for one in candidates) else WITHOUT_EMBEDDER
    return question(lookup, frequencies, passages, candidates, weights or usual, message).decide(candidates)


def seen(masks: Iterable[int], nearest: float | None = None) -> list[Candidate]:
    """Passages that hold these words; the first of them is the nearest, the others resemble nothing."""
    return [passage(matched, nearest and nearest * (not place)) for place, matched in enumerate(masks)]


roles = st.sampled_from(["user", "agent", ""])
lengths = st.integers(0, 10_000)
with_cosines = st.lists(st.builds(passage, st.integers(0, 15), st.floats(-1, 1), roles, lengths), max_size=20)
without_cosines = st.lists(st.builds(passage, st.integers(0, 15), st.none(), roles, lengths), max_size=20)
frequencies_of_four = st.tuples(*[st.integers(0, 500)] * 4)


@given(frequencies_of_four, with_cosines | without_cosines)
def test_the_value_is_the_sum_of_its_terms_and_decides_alone(
    frequencies: tuple[int, ...], passages: list[Candidate]
) -> None:
    decision = decide(WORDS, frequencies, 500, passages)
    assert decision.value == round(sum(decision.terms.values()), 6)
    assert 0 <= decision.value <= 1
    assert decision.open == (decision.value >= decision.threshold)


@given(frequencies_of_four, with_cosines, st.integers(0, 15), roles, lengths, st.floats(0, 0.9))
def test_a_nearer_passage_never_closes_the_gate(
    frequencies: tuple[int, ...], passages: list[Candidate], matched: int, role: str, length: int, cosine: float
) -> None:
    def decision(nearest: float) -> GateDecision:
        return decide(WORDS, frequencies, 500, [*passages, passage(matched, nearest, role, length)])

    assert decision(cosine + 0.1).value >= decision(cosine).value


@given(with_cosines | without_cosines, st.integers(0, 15), roles, lengths)
def test_one_more_passage_never_closes_the_gate(
    passages: list[Candidate], matched: int, role: str, length: int
) -> None:
    cosine = passages[0].cosine if passages else None
    another = passage(matched, cosine, role, length)
    before = decide(WORDS, (5, 5, 5, 5), 500, passages)
    assert decide(WORDS, (5, 5, 5, 5), 500, [*passages, another]).value >= before.value


@given(with_cosines | without_cosines, st.randoms())
def test_the_order_of_the_passages_is_of_no_consequence(passages: list[Candidate], chance: Random) -> None:
    shuffled = list(passages)
    chance.shuffle(shuffled)
    assert decide(WORDS, (5, 5, 5, 5), 500, shuffled) == decide(WORDS, (5, 5, 5, 5), 500, passages)


@pytest.mark.parametrize(
    "message",
    ["ok thanks", "Sounds good, continue!", "great, go ahead", "hvala, nastavi", "danke, weiter bitte", "", "?!", "👍"],
)
def test_a_message_without_a_subject_is_refused_whatever_it_resembles(message: str) -> None:
    words = content_words(message)
    decision = decide(words, [100] * len(words), 500, seen([(1 << len(words)) - 1], 0.9))
    assert not decision.open
    assert decision.value == 0


def test_a_question_whose_rare_words_stand_in_one_passage_opens_it() -> None:
    words = ("boat", "harbour")
    assert decide(words, (3, 2), 500, seen([0b11], 0.5)).open
    assert decide(words, (3, 2), 500, seen([0b11])).open, "also without an embedder"


def test_a_question_about_what_nobody_ever_mentioned_is_refused() -> None:
    words = ("kubernetes", "liveness", "probe", "use")
    assert not decide(words, (0, 0, 0, 40), 500, seen([0b1000], 0.35)).open
    assert not decide(words, (0, 0, 0, 40), 500, seen([0b1000])).open


def test_one_common_word_of_many_is_not_enough() -> None:
    words = ("marathon", "knee", "surgery", "friend")
    assert not decide(words, (0, 0, 0, 90), 500, seen([0b1000])).open


def test_an_empty_memory_is_never_opened() -> None:
    assert not decide(("boat",), (0,), 0, []).open


def test_the_words_of_the_talk_are_not_its_subject() -> None:
    assert subject(("continue", "harbour", "please")) == (1,)


def test_words_that_frame_a_question_are_not_its_subject() -> None:
    asked = content_words(
        "Can you list in order the different aspects of the harbour I brought up? Mention five items."
    )
    assert [asked[i] for i in subject(asked)] == ["harbour"]


def test_a_name_that_nobody_ever_mentioned_counts_against_a_message() -> None:
    words = ("zofia", "boat")
    with_capital = decide(words, (0, 3), 500, seen([0b10], 0.4), message="Where did Zofia buy the boat?")
    without = decide(words, (0, 3), 500, seen([0b10], 0.4), message="where did zofia buy the boat?")
    assert with_capital.terms["named"] == 0
    assert without.terms["named"] == WITH_EMBEDDER.named
    assert without.value - with_capital.value == pytest.approx(WITH_EMBEDDER.named)


def test_of_two_names_one_may_be_new() -> None:
    decision = decide(("ana", "zofia"), (9, 0), 500, seen([0b01], 0.4), message="Has Ana met Zofia?")
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
    assert not decide(lookup, [0] * words, passages, seen([0], 0.35)).open
    assert not decide(lookup, [0] * words, passages, []).open


def test_what_a_long_turn_resembles_proves_less() -> None:
    words = ("boat", "harbour")
    brief, long = (decide(words, (3, 3), 500, [passage(0b01, 0.4, length=length)]) for length in (80, 3000))
    assert brief.terms["nearest"] > long.terms["nearest"]
    assert brief.terms["matching"] > long.terms["matching"]
    assert brief.terms["said"] == long.terms["said"]


@given(lengths, lengths, roles)
def test_a_passage_is_worth_between_a_fifth_and_all_and_less_in_a_longer_turn(
    length: int, more: int, role: str
) -> None:
    assert 0.2 <= worth(passage(role=role, length=length + more)) <= worth(passage(role=role, length=length)) <= 1


def test_a_section_of_a_file_counts_as_no_longer_than_a_passage() -> None:
    assert worth(passage(role="", length=5000)) == worth(passage(role="", length=800))
    assert worth(passage(role="agent", length=5000)) < worth(passage(role="agent", length=800))


def test_words_that_only_an_agent_used_were_not_said() -> None:
    words = ("boat", "harbour")
    by_role = {role: decide(words, (3, 3), 500, [passage(0b11, 0.4, role)]) for role in ("user", "agent", "")}
    assert by_role["user"].terms["said"] == by_role[""].terms["said"] == pytest.approx(WITH_EMBEDDER.said)
    assert by_role["agent"].terms["said"] < WITH_EMBEDDER.said
    assert by_role["agent"].terms["matching"] == by_role["user"].terms["matching"]


def test_every_rare_word_that_nobody_said_counts_against_a_message_however_many_others_are_known() -> None:
    known = ("boat", "harbour", "sail", "rope")
    few = decide((*known, "autocomplete"), (90, 90, 90, 90, 0), 500, seen([0b1111], 0.4))
    more = decide((*known, "autocomplete", "widget"), (90, 90, 90, 90, 0, 0), 500, seen([0b1111], 0.4))
    none = decide(known, (90, 90, 90, 90), 500, seen([0b1111], 0.4))
    assert none.terms["said"] > few.terms["said"] > more.terms["said"]


def test_words_and_meaning_prove_more_in_one_passage_than_apart() -> None:
    words = ("boat", "harbour")
    together = decide(words, (3, 3), 500, [passage(0b11, 0.5), passage(0, 0.1)])
    apart = decide(words, (3, 3), 500, [passage(0b11, 0.1), passage(0, 0.5)])
    assert together.terms["nearest"] == apart.terms["nearest"]
    assert together.value > apart.value


def test_a_name_counts_as_a_word_of_the_subject() -> None:
    known = decide(("boat", "ana"), (3, 50), 500, seen([0b11]))
    stranger = decide(("boat", "zofia"), (3, 0), 500, seen([0b01]))
    assert known.value > stranger.value


def test_an_embedder_may_bring_its_own_threshold() -> None:
    strict = GateWeights(nearest=1.0, matching=0.0, named=0.0, said=0.0, threshold=0.8)
    assert not decide(("boat",), (3,), 500, [passage(1, 0.79, length=0)], strict).open
    assert decide(("boat",), (3,), 500, [passage(1, 0.81, length=0)], strict).open
