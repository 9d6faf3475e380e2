"""Ranking: how well does a unit (a turn of a conversation, a section of a file) answer a query?

    score = Σ weight · signal; every signal lies between 0 and 1 and the weights sum to 1, so 0 ≤ score ≤ 1; only what
            was found worth keeping gets a hundredth more

What a passage says itself (a unit is judged by its best passage):

    keywords  = BM25 / the best BM25 among the candidates
    meaning   = (cosine − median) / (best − median) over the candidates' cosines, never below 0; without an embedder 0
    coverage  = share of the query's IDF mass whose words stand in the passage
    phrase    = neighbouring words of the query that are neighbours here: none 0, one ½, two or more 1
    time      = 1 if the query asks when and the passage tells a time
    told      = how much the passage speaks in the first person: none 0, three times or more 1

How it stands in its group, that is its conversation or file:

    after     = match of the unit after it
    answer    = match of the unit before it, if that one ends with a question
    around    = share of the query's IDF mass that it lacks and units one step away add; two steps away count half
    whole     = share of the query's IDF mass that stands anywhere in its group
    best      = the best match in its group

What it is:

    speaker   = 1 if somebody said it whom the query names
    user      = its match, if a user said it or a person wrote it (not an agent, not a system)
    brief     = 1 for an empty unit, falling with the logarithm of its length, 0 from about 6,400 characters on
    statement = 1 if it does not end with a question
    kept      = 1 if an extractor made a line of it

A line that was derived from a turn says what the turn says. It is no unit of its own, nobody's neighbour, and measures
nothing: of what a passage says itself, its turn gets the better of both, signal by signal. So knowledge can lift a
turn, and without a line beside it no turn stands otherwise than if there were no knowledge.

    match     = 0.4 keywords + 0.3 coverage + 0.3 meaning; without an embedder ½ keywords + ½ coverage

BM25, cosines and counts are raw values of an index; nothing here knows which. The weights were learned together under
strong regularisation, held on conversations that were left out of the learning, and were then rounded to two places,
which costs nothing. `kept` came later: half of it does half of the good, twice as much no more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import itemgetter, mul
from statistics import median

from mcp_server.search.query import Query
from mcp_server.text.words import words

DIGITS = 6
"""Places that terms are rounded to: scores are the same on every machine."""

MILLIONTHS = 10**DIGITS
"""Terms are added up in whole millionths: exact, and four times faster than `round`; there are thousands a search."""

FULL_FIRST_PERSON = 3
"""So many times "I" or "we" count as speaking of oneself wholly."""

TOLD = tuple(times / FULL_FIRST_PERSON for times in range(FULL_FIRST_PERSON))
PHRASE = (0.0, 0.5)


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """How much each signal counts; a signal and its weight share a name. Without `kept` they sum to 1."""

    keywords: float = 0.05
    """Low because `coverage`, `phrase` and `user` rest on the same words: this is what rare and repeated words add."""
    meaning: float = 0.03
    """What the embedding knows beyond the words; it has its part in `after`, `answer`, `best` and `user` too."""
    coverage: float = 0.08
    """All of the query's rare words in one passage beat one of them said often."""
    phrase: float = 0.06
    """"blue car" as such, not blue here and car there."""
    time: float = 0.07
    """Who asks when wants a passage with a time in it."""
    told: float = 0.03
    """People tell facts about themselves in the first person."""
    after: float = 0.04
    """What was answered with the right words was probably the right question or news."""
    answer: float = 0.12
    """An answer rarely repeats the words of its question."""
    around: float = 0.10
    """A fact and its subject often stand one turn apart."""
    whole: float = 0.07
    """Conversations have subjects: the one that speaks of everything asked about."""
    best: float = 0.11
    """And the one that holds the best match."""
    speaker: float = 0.04
    """What Ana did is mostly told by Ana; her name stands in none of her sentences."""
    user: float = 0.09
    """Memory is mostly about what people said, not about what an assistant answered at length."""
    brief: float = 0.08
    """A long message matches many queries by length alone."""
    statement: float = 0.03
    """Questions carry the words that are asked for, statements the answer."""
    kept: float = 0.01
    """What was worth a line is asked for more often than what was not."""


@dataclass(slots=True)  # nobody changes one; frozen, the hundreds of a search take three times as long to make
class Candidate:
    """Raw values of one passage, as an index knows them. The defaults mean "unknown" and suit a section of a file.

    Bit i of `matched` is set where word i of the query's `lookup` stands in the passage, so that windows unite with
    `|`; `pairs` counts the query's pairs that stand there side by side. `unit` is what is ranked: the passages of one
    long turn share it. `group` is its conversation or file, `ordinal` the unit's place there, `length` the unit's, in
    characters. `bm25` is raw and counted positive, `cosine` raw, None without an embedder.
    """

    path: str
    line: int
    unit: str
    group: str = ""
    ordinal: int = 0
    bm25: float = 0.0
    cosine: float | None = None
    matched: int = 0
    pairs: int = 0
    role: str = ""
    speaker: str = ""
    length: int = 0
    tells_time: bool = False
    first_person: int = 0
    ends_with_question: bool = False
    part: int = 0
    derived: bool = False
    """A line that comes from the turn whose unit, group and ordinal it bears."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A unit with the passage that speaks for it. `terms` holds every weight times its signal; they sum to `score`."""

    candidate: Candidate
    score: float
    terms: Mapping[str, float]


Signals = tuple[float, ...]
"""One value between 0 and 1 a weight, in the order of `NAMES`."""

NAMES: tuple[str, ...] = tuple(field.name for field in fields(RankingWeights))

_TIMES = re.compile(
    r"\b(?:yesterday|today|tomorrow|tonight|ago|weeks?|months?|years?|weekend|days?|recently|morning|last|next|since"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|january|february|march|april|june|july|august|september|october|november|december"
    r"|juce|danas|sutra|nedelj[aeu]|mesec[ai]?|godin[aeu]|pre|gestern|heute|morgen|wochen?|monate?n?|jahre?n?|vor"
    r"|(?:19|20)\d\d|\d+(?:st|nd|rd|th))\b"
)
_FIRST_PERSON = re.compile(
    r"\b(?:I|[Mm]y|[Mm]e|[Mm]ine|[Ww]e|[Oo]ur|[Ii]ch|[Mm]eine?|[Ww]ir|[Uu]nsere?|sam|smo|[Mm]oj[aei]?|[Nn]aš[aei]?)\b"
)
_ATTACHED = re.compile(r"(?:\[[^\]\n]*\]|^> \[.*)\s*\Z", re.MULTILINE)


def tells_time(text: str, spoken: Sequence[str] | None = None) -> bool:
    """Does a passage name a day, a month, a year or a time relative to then ("last week")?

    `spoken` are its words, for whoever has them.
    """
    return _TIMES.search(" ".join(words(text) if spoken is None else spoken)) is not None


def first_person(text: str) -> int:
    """How often a passage says "I" or "we", counted up to `FULL_FIRST_PERSON`."""
    return min(FULL_FIRST_PERSON, sum(1 for _ in _FIRST_PERSON.finditer(text)))


def ends_with_question(text: str) -> bool:
    """Is the last thing that a unit says a question? A closing bracket or line about an attachment does not count."""
    return _ATTACHED.sub("", text.rstrip()).rstrip().endswith("?")


@lru_cache(maxsize=8192)  # a search asks for hundreds of lengths, and for most of them three times
def brief(length: int) -> float:
    """How short a unit of so many characters is: 1 if empty, 0.77 at 100, 0.42 at 800, 0 from about 6,400 on."""
    return 1 - min(1.0, math.log2(1 + length / 50) / 7)


class _Shares(dict[int, float]):
    """`coverage` of each set of words, counted once: units in one conversation hold the same few sets."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def __missing__(self, matched: int) -> float:
        self[matched] = share = coverage(self._query, matched)
        return share


@dataclass(slots=True)
class _Unit:
    """A unit while its passages come in: `own` signals of the best one so far, `matched` words of all. `lifted` are its
    signals with those of its lines, if it has any; `line` is one that says as much as the best passage."""

    candidate: Candidate
    own: Signals
    match: float
    matched: int
    lifted: Signals | None = None
    line: Candidate | None = None


@dataclass(slots=True)
class _Group:
    """A conversation or file while its passages come in: where its units stand, its words, its best match."""

    units: dict[int, _Unit]
    matched: int = 0
    best: float = 0.0


def _scale(candidates: Sequence[Candidate]) -> tuple[float, float, float, tuple[float, float, float]]:
    """What raw values are measured by: the best BM25, the middle of the cosines and how far the best lies above it; and
    how much keywords, coverage and meaning count for a match."""
    cosines = [c.cosine for c in candidates if c.cosine is not None]
    middle = median(cosines) if cosines else 0.0
    span = max(cosines) - middle if cosines else 0.0
    return max((c.bm25 for c in candidates), default=0.0), middle, span, (0.4, 0.3, 0.3) if cosines else (0.5, 0.5, 0.0)


def matching_best(query: Query, candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """The best match of each unit, the best `limit` units first, ties by path and line: a fifth of the work of `rank`,
    for who only wants to know where to look on."""
    top, middle, span, (by_words, by_coverage, by_meaning) = _scale(candidates)
    words_only = (1 << len(query.idf)) - 1
    shares = _Shares(query)
    matches: list[tuple[float, str, int, int, Candidate]] = []
    for c in candidates:
        keywords = c.bm25 / top if top > 0 else 0.0
        meaning = (c.cosine - middle) / span if c.cosine is not None and c.cosine > middle else 0.0
        match = by_words * keywords + by_coverage * shares[c.matched & words_only] + by_meaning * meaning
        matches.append((-match, c.path, c.line, c.part, c))
    best: dict[str, Candidate] = {}
    for *_, c in sorted(matches, key=itemgetter(0, 1, 2, 3)):
        best.setdefault(c.unit, c)
    return list(best.values())[:limit]


def signals(
    query: Query, candidates: Sequence[Candidate], weights: RankingWeights = RankingWeights()
) -> list[tuple[Candidate, Signals]]:
    """Each unit's best passage with its signals, unordered. The weights only choose that passage."""
    lines = [c for c in candidates if c.derived]
    if lines:
        candidates = [c for c in candidates if not c.derived]
    top, middle, span, (by_words, by_coverage, by_meaning) = _scale(candidates)
    of_passage = (weights.keywords, weights.meaning, weights.coverage, weights.phrase, weights.time, weights.told)
    words_only = (1 << len(query.idf)) - 1  # without the names, which have no IDF
    shares = _Shares(query)

    def said(c: Candidate, own: Signals) -> tuple[float, int, int]:
        """Orders the passages of a unit, the best first."""
        return -sum(map(mul, of_passage, own)), c.line, c.part

    def by_itself(c: Candidate) -> Signals:
        """What a line says itself, measured by what turns say."""
        keywords = c.bm25 / top if top > 0 else 0.0
        meaning = (c.cosine - middle) / span if span and c.cosine is not None and c.cosine > middle else 0.0
        return (
            min(1.0, keywords),
            min(1.0, meaning),
            shares[c.matched & words_only],
            PHRASE[c.pairs] if c.pairs < 2 else 1.0,
            1.0 if query.asks_when and c.tells_time else 0.0,
            TOLD[c.first_person] if c.first_person < FULL_FIRST_PERSON else 1.0,
        )

    units: dict[str, _Unit] = {}
    groups: dict[str, _Group] = {}
    for c in candidates:
        keywords = c.bm25 / top if top > 0 else 0.0  # as `by_itself`: a call for each of hundreds costs a fifth more
        meaning = (c.cosine - middle) / span if c.cosine is not None and c.cosine > middle else 0.0
        matched = c.matched & words_only
        cover = shares[matched]
        own: Signals = (
            keywords,
            meaning,
            cover,
            PHRASE[c.pairs] if c.pairs < 2 else 1.0,
            1.0 if query.asks_when and c.tells_time else 0.0,
            TOLD[c.first_person] if c.first_person < FULL_FIRST_PERSON else 1.0,
        )
        match = by_words * keywords + by_coverage * cover + by_meaning * meaning
        name = c.group or c.path
        group = groups.get(name)
        if group is None:
            group = groups[name] = _Group({})
        group.matched |= matched
        if match > group.best:
            group.best = match
        unit = units.get(c.unit)
        if unit is None:
            units[c.unit] = group.units[c.ordinal] = _Unit(c, own, match, matched)
            continue
        unit.matched |= matched
        unit.match = max(unit.match, match)
        if said(c, own) < said(unit.candidate, unit.own):
            unit.candidate, unit.own = c, own
    of_lines = [(c, by_itself(c)) for c in lines]
    for c, own in sorted(of_lines, key=lambda one: (*said(*one), one[0].path)):  # the best first
        unit = units.get(c.unit)
        if unit is None:
            continue
        unit.lifted = tuple(map(max, unit.lifted or unit.own, own))
        if unit.line is None and said(c, own)[0] <= said(unit.candidate, unit.own)[0]:
            unit.line = c

    found: list[tuple[Candidate, Signals]] = []
    for unit in units.values():
        c = unit.candidate
        group = groups[c.group or c.path]
        at, place = group.units.get, c.ordinal
        before, after, before_that, after_that = at(place - 1), at(place + 1), at(place - 2), at(place + 2)
        near = unit.matched | (before.matched if before else 0) | (after.matched if after else 0)
        far = near | (before_that.matched if before_that else 0) | (after_that.matched if after_that else 0)
        beside = (
            after.match if after else 0.0,
            before.match if before and before.candidate.ends_with_question else 0.0,
            shares[near] - shares[unit.matched] + (shares[far] - shares[near]) / 2,
            shares[group.matched],
            group.best,
            1.0 if c.speaker and c.speaker in query.people else 0.0,
            unit.match if c.role in ("user", "") else 0.0,
            brief(c.length),
            0.0 if c.ends_with_question else 1.0,
            1.0 if unit.lifted else 0.0,
        )
        found.append((unit.line or c, (unit.lifted or unit.own) + beside))
    return found


def rank(
    query: Query,
    candidates: Sequence[Candidate],
    weights: RankingWeights = RankingWeights(),
    limit: int | None = None,
) -> list[Ranked]:
    """The units of `candidates`, best first, ties by path and line; `limit` cuts the list, not what the signals see.

    The order of `candidates` is of no consequence. Two units at one place of one group are a mistake of the caller's.
    """
    factors = tuple(getattr(weights, name) * MILLIONTHS for name in NAMES)
    scored: list[tuple[int, str, int, int, Candidate, list[int]]] = []
    for c, values in _foremost(signals(query, candidates, weights), factors, limit):
        terms = [int(product + 0.5) for product in map(mul, factors, values)]
        scored.append((-sum(terms), c.path, c.line, c.part, c, terms))
    scored.sort(key=itemgetter(0, 1, 2, 3))
    return [
        Ranked(c, -negative / MILLIONTHS, {name: term / MILLIONTHS for name, term in zip(NAMES, terms, strict=True)})
        for negative, *_, c, terms in scored[:limit]
    ]


def _foremost(
    found: list[tuple[Candidate, Signals]], factors: Sequence[float], limit: int | None
) -> list[tuple[Candidate, Signals]]:
    """Those that can be among the best `limit` once their terms are rounded; most searches show few of hundreds.

    Rounding moves a sum by at most half a millionth a term: whoever lies further behind than twice that stays behind.
    """
    if limit is None or not 0 < limit < len(found):
        return found
    sums = [sum(map(mul, factors, values)) for _, values in found]
    least = sorted(sums)[-limit] - len(factors) - 1
    return [one for one, total in zip(found, sums, strict=True) if total >= least]


def coverage(query: Query, matched: int) -> float:
    """Returns the share of the query's IDF mass that the words in `matched` make up, 0 to 1."""
    total = math.fsum(query.idf)
    return math.fsum(weight for i, weight in enumerate(query.idf) if matched >> i & 1) / total if total else 0.0
