"""What a person can rely on when results are ranked."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.search.query import Query, query_idf, read_query, weigh
from mcp_server.search.ranking import (
    NAMES,
    Candidate,
    Ranked,
    RankingWeights,
    coverage,
    ends_with_question,
    first_person,
    matching_best,
    rank,
    signals,
    tells_time,
)
from mcp_server.text.words import words

QUERY = Query(words=("blue", "boat", "harbour"), idf=(1.0, 3.0, 4.0), pairs=(("blue", "boat"),))


def passage(unit: int, **values: object) -> Candidate:
    """A turn of one conversation, as plain as can be."""
    plain = Candidate(
        path="raw/a.md", line=10 * unit, unit=f"a#{unit}", group="a", ordinal=unit, role="user", length=100
    )
    return replace(plain, **values)  # type: ignore[arg-type]  # the tests name real fields


def order(found: list[Ranked]) -> list[str]:
    return [ranked.candidate.unit for ranked in found]


@st.composite
def scopes(draw: st.DrawFn) -> list[Candidate]:
    """Passages of a few conversations and files, with every value that an index could give."""
    units = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), unique=True, max_size=25))
    found = []
    for group, ordinal in units:
        for part in range(draw(st.integers(1, 2))):
            found.append(
                Candidate(
                    path=f"raw/{group}.md",
                    line=100 * ordinal + part,
                    unit=f"{group}#{ordinal}",
                    group=f"{group}",
                    ordinal=ordinal,
                    bm25=draw(st.floats(0, 30, allow_subnormal=False)),  # halved, the least number is 0
                    cosine=draw(st.none() | st.floats(-1, 1)),
                    matched=draw(st.integers(0, 15)),
                    pairs=draw(st.integers(0, 4)),
                    role=draw(st.sampled_from(["user", "agent", "system", ""])),
                    speaker=draw(st.sampled_from(["", "Ana", "Bo"])),
                    length=draw(st.integers(0, 50_000)),
                    tells_time=draw(st.booleans()),
                    first_person=draw(st.integers(0, 9)),
                    ends_with_question=draw(st.booleans()),
                    part=part,
                )
            )
    return found


queries = st.builds(
    Query,
    words=st.just(("blue", "boat", "harbour")),
    idf=st.tuples(*[st.floats(0.001, 12)] * 3),
    people=st.sampled_from([frozenset[str](), frozenset({"Ana"})]),
    asks_when=st.booleans(),
    names=st.just(("ana",)),
)


@given(queries, scopes(), st.integers(0, 10), st.randoms(use_true_random=False))
def test_every_unit_appears_once_best_first_in_whatever_order_the_passages_arrive(
    query: Query, candidates: list[Candidate], limit: int, chance: random.Random
) -> None:
    found = rank(query, candidates)
    assert sorted(order(found)) == sorted({c.unit for c in candidates})
    keys = [(-ranked.score, ranked.candidate.path, ranked.candidate.line) for ranked in found]
    assert keys == sorted(keys), "ties by path and line"
    for ranked in found:
        assert tuple(ranked.terms) == NAMES
        assert ranked.score == round(sum(ranked.terms.values()), 6)
        assert 0 <= ranked.score <= 1 + RankingWeights().kept
    for _, values in signals(query, candidates):
        assert all(-1e-9 <= value <= 1 + 1e-9 for value in values)
    shuffled = candidates[:]
    chance.shuffle(shuffled)
    assert rank(query, shuffled) == found
    assert rank(query, shuffled, limit=limit) == found[:limit], "a limit changes nothing else"


@given(queries, scopes(), st.integers(0, 10), st.randoms(use_true_random=False))
def test_best_matches_are_one_passage_a_unit_in_whatever_order_they_arrive(
    query: Query, candidates: list[Candidate], limit: int, chance: random.Random
) -> None:
    found = matching_best(query, candidates, len(candidates))
    assert sorted(c.unit for c in found) == sorted({c.unit for c in candidates})
    shuffled = candidates[:]
    chance.shuffle(shuffled)
    assert matching_best(query, shuffled, limit) == found[:limit]


def test_a_match_is_made_of_keywords_coverage_and_meaning_and_a_units_best_passage_counts() -> None:
    weak = passage(1, bm25=2.0, matched=0b001, cosine=0.1)
    words = passage(2, bm25=8.0, matched=0b111, cosine=0.1)
    meaning = passage(3, cosine=0.9)
    part = replace(meaning, part=1, line=31, bm25=9.0, matched=0b111, cosine=0.1)
    assert matching_best(QUERY, [weak, meaning, words], 2) == [words, meaning]
    assert matching_best(QUERY, [weak, meaning, words, part], 3) == [part, words, weak]


@given(queries, scopes(), st.data())
def test_a_derived_line_lifts_its_turn_and_moves_no_other(
    query: Query, candidates: list[Candidate], data: st.DataObject
) -> None:
    before = {ranked.candidate.unit: ranked for ranked in rank(query, candidates)}
    lines = [
        replace(
            data.draw(st.sampled_from(candidates)),
            path="knowledge/people/ana.md",
            line=number,
            bm25=data.draw(st.floats(0, 30)),
            cosine=data.draw(st.none() | st.floats(-1, 1)),
            matched=data.draw(st.integers(0, 15)),
            derived=True,
        )
        for number in range(data.draw(st.integers(0, 3 if candidates else 0)))
    ]
    lifted = {line.unit for line in lines}
    after = {ranked.candidate.unit: ranked for ranked in rank(query, candidates + lines)}
    assert after.keys() == before.keys()
    for unit, ranked in after.items():
        if unit in lifted:
            assert ranked.score >= before[unit].score + RankingWeights().kept - 1e-6
            assert all(ranked.terms[name] >= before[unit].terms[name] - 1e-6 for name in NAMES)
        else:
            assert ranked == before[unit]


@given(scopes(), st.floats(0.1, 100))
def test_only_the_proportions_of_bm25_count(candidates: list[Candidate], factor: float) -> None:
    scaled = [replace(c, bm25=c.bm25 * factor) for c in candidates]
    scores = {ranked.candidate.unit: ranked.score for ranked in rank(QUERY, candidates)}
    for ranked in rank(QUERY, scaled):
        assert ranked.score == pytest.approx(scores[ranked.candidate.unit], abs=1e-4)


def test_a_passage_with_all_the_words_beats_one_that_repeats_a_common_one() -> None:
    assert order(rank(QUERY, [passage(1, matched=0b001, bm25=5.0), passage(5, matched=0b111, bm25=5.0)]))[0] == "a#5"


def test_a_long_turn_is_judged_by_its_best_part_and_shows_it() -> None:
    found = rank(QUERY, [passage(1, line=3), passage(1, line=9, part=1, matched=0b111, bm25=4.0), passage(7)])
    assert found[0].candidate.line == 9


def test_an_answer_profits_from_the_question_before_it() -> None:
    question = passage(1, matched=0b111, bm25=8.0, ends_with_question=True)
    found = rank(QUERY, [question, passage(2), passage(9)])
    terms = {ranked.candidate.unit: ranked.terms for ranked in found}
    assert terms["a#2"]["answer"] > 0
    assert terms["a#9"]["answer"] == 0
    assert order(found).index("a#2") < order(found).index("a#9")


def test_neighbours_belong_to_the_same_conversation() -> None:
    other = replace(passage(2), path="raw/b.md", unit="b#2", group="b")
    terms = {
        r.candidate.unit: r.terms for r in rank(QUERY, [passage(1, matched=0b111, ends_with_question=True), other])
    }
    assert terms["b#2"]["answer"] == terms["b#2"]["around"] == terms["b#2"]["whole"] == 0


def test_what_a_named_person_said_comes_before_what_was_said_to_them() -> None:
    query = replace(QUERY, people=frozenset({"Ana"}))
    said, heard = passage(1, speaker="Ana", matched=1), passage(5, speaker="Bo", matched=1)
    assert order(rank(query, [heard, said])) == ["a#1", "a#5"]


def test_of_equal_matches_the_users_words_and_the_shorter_turn_come_first() -> None:
    same = {"matched": 0b111, "bm25": 3.0}
    agent, user = passage(1, role="agent", **same), passage(5, **same)
    assert order(rank(QUERY, [agent, user])) == ["a#5", "a#1"]
    assert order(rank(QUERY, [passage(1, length=9_000, **same), passage(5, **same)])) == ["a#5", "a#1"]


def test_thanks_is_no_briefer_than_a_sentence() -> None:
    thanks, sentence = passage(1, bm25=4.0, matched=1, length=7), passage(20, bm25=4.0, matched=1, length=90)
    few, many = (ranked.terms["brief"] for ranked in rank(QUERY, [thanks, sentence]))
    assert few == many > 0


def test_who_asks_when_gets_passages_that_tell_a_time() -> None:
    dated, undated = passage(5, matched=1, tells_time=True), passage(1, matched=1)
    assert order(rank(QUERY, [dated, undated])) == ["a#1", "a#5"], "nobody asked: the tie goes by line"
    assert order(rank(replace(QUERY, asks_when=True), [dated, undated])) == ["a#5", "a#1"]


def test_without_an_embedder_the_words_decide() -> None:
    found = rank(QUERY, [passage(1, matched=0b001, bm25=1.0), passage(5, matched=0b110, bm25=6.0)])
    assert order(found) == ["a#5", "a#1"]
    assert all(ranked.terms["meaning"] == 0 for ranked in found)


def test_meaning_finds_what_shares_no_word_with_the_query() -> None:
    cosines = {1: 0.1, 4: 0.8, 8: 0.2}
    assert order(rank(QUERY, [passage(unit, cosine=cosine) for unit, cosine in cosines.items()]))[0] == "a#4"


def test_a_section_of_a_file_needs_no_speaker_no_role_and_no_neighbours() -> None:
    section = Candidate(path="knowledge/people/bo.md", line=3, unit="bo#3", bm25=7.0, matched=0b111)
    assert order(rank(QUERY, [section, passage(1, matched=1)]))[0] == "bo#3"


def test_names_of_speakers_are_people_and_no_keywords() -> None:
    query = read_query("When did Ana Maria paint Bo's blue boat?", ("Ana Maria", "Bo", "Carla"))
    assert query.words == ("paint", "blue", "boat")
    assert query.people == {"Ana Maria", "Bo"}
    assert query.names == ("ana", "maria", "bo")
    assert query.lookup == ("paint", "blue", "boat", "ana", "maria", "bo")
    assert query.pairs == (("paint", "blue"), ("blue", "boat"))
    assert query.asks_when


def test_a_query_of_nothing_but_a_name_is_looked_up_by_it() -> None:
    query = read_query("Ana?", ("Ana",))
    assert query.words == ("ana",)
    assert query.names == ()
    assert query.people == {"Ana"}


@given(st.text(max_size=200), st.lists(st.text(max_size=20), max_size=3))
def test_any_text_is_a_query(text: str, speakers: list[str]) -> None:
    query = weigh(read_query(text, tuple(speakers)), [3] * 200, 1_000)
    assert len(query.words) == len(query.idf)
    assert rank(query, [passage(1, matched=1, bm25=1.0)])[0].score > 0
    assert first_person(text) <= 3
    assert isinstance(tells_time(words(text)), bool)
    assert isinstance(ends_with_question(text), bool)


def test_rare_words_weigh_more_and_no_word_weighs_nothing() -> None:
    assert query_idf(1, 1_000) > query_idf(10, 1_000) > query_idf(1_000, 1_000) > 0
    assert query_idf(5, 0) > 0
    query = weigh(Query(("boat", "blue"), names=("ana",)), [1, 500, 7], 1_000)
    assert coverage(query, 0b01) > coverage(query, 0b10) > 0
    assert coverage(query, 0b11) == coverage(query, 0b111) == 1


@pytest.mark.parametrize(
    "text", ["We met last week", "on 7 May 2023", "it was in March", "juče smo stigli", "the 3rd time"]
)
def test_times_are_noticed(text: str) -> None:
    assert tells_time(words(text))


def test_a_text_without_a_time_tells_none() -> None:
    assert not tells_time(words("The boat is blue, and may stay so."))


def test_the_first_person_is_counted() -> None:
    assert first_person("She saw him.") == 0
    assert first_person("I like it") == 1
    assert first_person("I sold my boat, we laughed, I cried") == 3


def test_a_question_stays_one_whatever_is_attached() -> None:
    assert ends_with_question("Have you seen this?\n[image: a blue boat]")
    assert ends_with_question("Have you seen this?\n> [attachment:attachments/boat.png]")
    assert not ends_with_question("Have you seen this? I have.")
    assert not ends_with_question("")
