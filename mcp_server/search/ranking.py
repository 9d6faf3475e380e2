"""Ranking: scores how well a unit (a turn of a conversation, a section of a file) answers a query.

    score = Σ weight · signal, each signal between 0 and 1; the weights sum to 1 without `kept`, so 0 ≤ score ≤ 1.01

Signals of a passage itself (a unit is judged by its best passage):

    keywords  = BM25 / the best BM25 among the candidates
    meaning   = (cosine − median) / (best − median) over the candidates' cosines, never below 0; without an embedder 0.
                The vectors are those of the recognizer's network if it has read most candidates; else those of the
                embedder, and then `meaning` is a quarter of this, because they tell less
    coverage  = share of the query's IDF mass in the passage
    phrase    = pairs of adjacent words of the query that are adjacent here: none 0, one ½, two or more 1
    time      = 1 if the query asks when and the passage tells a time
    told      = how much the passage speaks in the first person: none 0, three times or more 1

Signals of its neighbors in its group, which is its conversation or file:

    after     = match of the unit after it
    answer    = match of the unit before it, if that one ends with a question
    around    = share of the query's IDF mass that units one step away add; units two steps away count half
    whole     = share of the query's IDF mass anywhere in its group
    best      = the best match in its group

Signals of its kind:

    speaker   = 1 if the query names its speaker
    user      = its match, if a user said it or a person wrote it (not an agent, not a system)
    brief     = 0.77 up to 100 characters, falling with the logarithm of its length, 0 from about 6,400 characters on
    statement = 1 if it does not end with a question
    kept      = 1 if an extractor made a line of it

A line that was derived from a turn repeats the turn. It is not a unit or a neighbor of its own: for each signal of the
passage itself, its turn gets the maximum of both. So lines can raise the score of their turn and of no other turn.

    match     = 0.4 keywords + 0.3 coverage + 0.3 meaning; without an embedder ½ keywords + ½ coverage

BM25, cosines and counts are raw values of any index. docs/design/retrieval.md says how the weights were found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache, partial
from itertools import chain
from operator import attrgetter, itemgetter, mul
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from mcp_server.model import Hit, Passage
from mcp_server.search.query import Query
from mcp_server.text.entries import Source, sources_of, without_sources
from mcp_server.understanding.cues import changes, content_stems, stems_of_text, supersedes, word_list
from mcp_server.understanding.sentences import is_question
from mcp_server.understanding.settling import Rarity, Statement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_LINES_COMPARED = 60  # lines of pages that are compared with each other
FIRST, REACH = 3, 120
"""Each of the first FIRST hits, a turn or a line, is placed behind a newer statement that may replace it. That is
looked for among REACH hits: the ranking prefers the conversation with the best match, so the newer statement of another
conversation may have a far lower rank."""

LONGEST, SHORT = 600, 160
"""Most characters of a passage that can be replaced, and of a turn that is compared: longer ones say more than one
thing."""

SHARES_A_WORD, ANSWERS_ALIKE, UNLIKE = 0.08, 0.005, 0.3
"""The least probability of a replacement if both hits share a word with the query; if the newer hit has all words of
the query that the older one has, and other numbers; and otherwise. On 30 planted changes of values 29 newer statements
come first; without this order 6. With a first limit of .02, 57 questions of LoCoMo had worse answers and 9 better."""

ECHO = 3
"""For this many turns after a statement, the agent's words are taken for a repetition ("Two retries, then."), which
replaces nothing."""

ROUNDING = 1e-9
"""Sums of floats depend on their order: a probability that is this little below the least one counts as equal to it."""

BIAS, OF_OLD, OF_NEW, WEIGHT = -6.68, -2.71, 3.68, 0.29
OTHER_VALUE, SAME_NUMBER, OF_STEMS, GIVES_UP = 1.67, 1.96, 7.96, 4.74
"""The weights of `replacement_chances` and of a statement that names what is given up. Fitted on 1,344 pairs of labeled
decisions of 81 conversations."""

KINDS = ("stem", "number", "unit")  # the parts of statements that `replacement_chances` compares
_PAST = re.compile(r"\b(?:did|was|were|had)\b", re.IGNORECASE)
"""A question about the past: its answer is not a value that changes."""

_DAY = re.compile(r"^- \d{4}-\d{2}-\d{2}:? ")
_START = datetime(2000, 1, 1, tzinfo=UTC)


def newest_first(hits: Sequence[Hit], query: str) -> tuple[Hit, ...]:
    """Returns the hits with every older value behind the hits that may replace it. The estimate is good enough for the
    order, but not for marking hits as outdated: of 108 such marks in working conversations, three to eight were right.

    Hits are ordered by the transcript and turn that they come from; transcript names begin with their time. Turns are
    compared only with the first hits, and not for a question about the past: comparing all turns lost a fifth of
    NDCG@10 on LoCoMo, because most turns that share words state no value. With these limits the loss is 0.001.

    A line about what a named person said is compared by the words of its turn, because the extractor adds the person's
    name and the day of an event to it, which look like a common subject and a new value.
    """
    asked = content_stems(word_list(query))
    with_turns = not _PAST.search(query)
    passages = [hit.source if hit.source is not None and hit.source.speaker else hit.passage for hit in hits[:REACH]]
    orders = {
        place: order for place, passage in enumerate(passages) if (order := _order(passage, with_turns)) is not None
    }
    lines = [place for place in orders if place < MAX_LINES_COMPARED and passages[place].turn is None]
    compared = {
        place: orders if place < FIRST else lines
        for place in orders
        if (place < FIRST or place in lines) and len(passages[place].text) <= LONGEST
    }
    if not compared:
        return tuple(hits)
    statements = _statements(passages, orders)
    rarity = Rarity(list(statements.values()))
    columns = {place: column for column, place in enumerate(orders)}
    chance_of = replacement_chances(list(statements.values()), rarity).tolist()
    wanted = {place: one.stems & asked for place, one in statements.items()}
    giving_up = {place for place, one in statements.items() if changes(one.text)}

    def newer_than(old: int) -> list[int]:
        """Returns the newer hits that may replace the hit `old`."""
        before, row = statements[old], chance_of[columns[old]]
        newer: list[int] = []
        for new in compared[old]:
            after, chance = statements[new], row[columns[new]]
            if chance < ANSWERS_ALIKE - ROUNDING and new not in giving_up:
                continue
            if not _says_more(before, after) or _is_other_voice(passages[old], passages[new], orders[old], orders[new]):
                continue
            if chance and new in giving_up and supersedes(after.text, before.text):
                odds = chance / (1 - chance) * math.exp(GIVES_UP)
                chance = odds / (1 + odds)
            if chance >= _least_chance(before, after, wanted[old], wanted[new]) - ROUNDING:
                newer.append(new)
        return newer

    ordered: dict[int, Hit] = {}

    def put(place: int) -> None:
        for new in newer_than(place) if place in compared else ():
            if new not in ordered:
                put(new)
        ordered.setdefault(place, hits[place])

    for place in range(len(hits)):
        if place not in ordered:
            put(place)
    return tuple(ordered.values())


def repeats(passage: Passage, asked: frozenset[str]) -> bool:
    """Returns whether a turn only asks what a query with these content stems asks. People ask the same thing again in a
    new conversation; such a turn is nearest to the query, but tells nothing."""
    return passage.turn is not None and is_question(passage.text) and stems_of_text(passage.text) <= asked


def replacement_chances(statements: Sequence[Statement], rarity: Rarity) -> NDArray[np.float64]:
    """Returns for each pair (row: the older statement, column: the newer one) the probability that the newer statement
    replaces the older one, if it does not name what is given up. It is 0 if they share no content word. A logistic
    model: the words that both share, as a share of each text and in weight, the share of the older one's stems, another
    number of the same unit, the same number."""
    import numpy as np

    read = [((one.stems, one.numbers, one.units), one.words) for one in statements]
    parts = [[(kind, part) for kind, some in zip(KINDS, one, strict=True) for part in some] for one, _ in read]
    known = frozenset().union(*[words for _, words in read])  # stems without a digit
    columns = {part: column for column, part in enumerate(dict.fromkeys(chain.from_iterable(parts)))}
    held, weights = np.zeros((len(parts), len(columns))), np.zeros((len(columns), 4))
    for (kind, part), column in columns.items():
        worth = rarity.of(frozenset((part,))) if kind == "stem" else 1.0
        weights[column, 1 + KINDS.index(kind)] = worth
        weights[column, 0] = worth if kind == "stem" and part in known else 0.0
    places = [[columns[part] for part in some] for some in parts]
    for row, some in enumerate(places):
        held[row, some] = 1.0
    # Row by row: NumPy would compute one product of all rows in threads, which takes longer for such small ones.
    shared = [held[:, some] @ weights[some] for some in places]
    words, stems, numbers, units = np.array(shared).reshape(len(parts), len(parts), 4).transpose(2, 0, 1)
    of_stems, of_words = (np.maximum(1e-9, one.diagonal()) for one in (stems, words))
    total = BIAS + OF_OLD * words / of_words[:, None] + OF_NEW * words / of_words + WEIGHT * np.minimum(words, 20.0)
    total += np.where(numbers > 0, SAME_NUMBER, np.where(units > 0, OTHER_VALUE, 0.0))
    total += OF_STEMS * stems / of_stems[:, None]
    return np.where(stems > 0, 1 / (1 + np.exp(-np.clip(total, -30.0, 30.0))), 0.0)


def _order(passage: Passage, with_turns: bool) -> tuple[str, int] | None:
    """Returns the transcript and turn of a line of a page or a short statement; None for another passage."""
    if passage.turn is None:
        return next((source.order for source in sources_of(passage.text)), None)
    states = with_turns and len(passage.text) <= SHORT and not ends_with_question(passage.text)
    return Source(passage.path, passage.turn).order if states else None


def _is_other_voice(old: Passage, new: Passage, before: tuple[str, int], after: tuple[str, int]) -> bool:
    """Returns whether two named people said them (people mostly tell of themselves), or whether the newer one is the
    agent's within ECHO turns of the same transcript (the agent mostly repeats what was said). `before` and `after` are
    their transcripts and turns."""
    if "" != old.speaker != new.speaker != "":
        return True
    return new.role == "agent" and before[0] == after[0] and after[1] - before[1] <= ECHO


def _statements(passages: Sequence[Passage], orders: Mapping[int, tuple[str, int]]) -> dict[int, Statement]:
    days = {order: _START + timedelta(days=place) for place, order in enumerate(sorted(set(orders.values())))}
    return {
        place: Statement("fact", _DAY.sub("", without_sources(passages[place].text)), (days[order], *order))
        for place, order in orders.items()
    }


def _says_more(old: Statement, new: Statement) -> bool:
    """Returns whether a statement is newer than another one, says more, and is not the reply to it."""
    if new.order <= old.order:
        return False
    is_reply = old.order[1] == new.order[1] and new.order[2] == old.order[2] + 1
    return not is_reply and not new.stems <= old.stems


def _least_chance(old: Statement, new: Statement, wanted: frozenset[str], answered: frozenset[str]) -> float:
    """Returns the least probability with which a newer statement is placed before an older one. `wanted` and `answered`
    are the stems of the query that the older and the newer one have."""
    if wanted and wanted <= answered and _has_another_number(old, new):
        return ANSWERS_ALIKE
    return UNLIKE if wanted.isdisjoint(answered) else SHARES_A_WORD


def _has_another_number(old: Statement, new: Statement) -> bool:
    return bool(old.numbers and new.numbers) and old.numbers.isdisjoint(new.numbers)


DIGITS = 6  # decimal places of terms: scores are the same on every machine
MILLIONTHS = 10**DIGITS
"""Terms are added in whole millionths: exact, and four times faster than `round`, which a search needs thousands of."""

ONE_SENTENCE = 100
"""Units of at most this many characters count as equally brief: "Thanks!" says less than a sentence, not more. NDCG@10
on LoCoMo .658 to .659, with knowledge .665 to .667."""

FULL_FIRST_PERSON = 3  # with at least this many occurrences of "I" or "we", `told` is 1
TOLD = tuple(times / FULL_FIRST_PERSON for times in range(FULL_FIRST_PERSON))
PHRASE = (0.0, 0.5)


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """The weight of each signal, by its name. Without `kept` they sum to 1."""

    keywords: float = 0.05  # low because `coverage`, `phrase` and `user` use the same words
    meaning: float = 0.12  # the network was fitted on prompts and what they need, which often share no word
    coverage: float = 0.07  # all rare words of the query once are worth more than one of them often
    phrase: float = 0.05  # "blue car" as such, not blue here and car there
    time: float = 0.06  # a question with "when" needs a passage with a time
    told: float = 0.03  # people tell facts about themselves in the first person
    after: float = 0.04  # a turn whose answer matches is probably relevant
    answer: float = 0.11  # an answer rarely repeats the words of its question
    around: float = 0.09  # a fact and its subject often stand one turn apart
    whole: float = 0.06  # conversations have subjects: the one that speaks of everything asked about
    best: float = 0.10  # the conversation with the best match is probably the right one
    speaker: float = 0.04  # Ana mostly tells herself what she did, without her name
    user: float = 0.08  # memory is mostly about what people said, not about what an assistant answered at length
    brief: float = 0.07  # a long message matches many queries by length alone
    statement: float = 0.03  # questions repeat the words of the query, statements have the answer
    kept: float = 0.01  # turns with a derived line are asked for more often


@dataclass(slots=True)  # not frozen: that would triple the time to create hundreds for each search; none is changed
class Candidate:
    """The raw values of a passage in an index. The defaults mean "unknown" and suit a section of a file. Bit i of
    `matched` is set if the passage contains word i of the query's `lookup`; `pairs` counts the query's pairs that are
    adjacent in it. Units are ranked: the passages of one long turn share a `unit`. `group` is its conversation or file,
    `ordinal` the unit's position there, `length` the unit's length in characters. `bm25` is positive, `cosine` is None
    without an embedder."""

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
    """True for a line derived from the turn with the same unit, group and ordinal."""
    about: float | None = None
    """The cosine by the recognizer's network; None if it has not read the passage."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A unit with its best passage. `terms` are the weights times the signals; their sum is `score`."""

    candidate: Candidate
    score: float
    terms: Mapping[str, float]


Signals = tuple[float, ...]  # a value between 0 and 1 for each weight, in the order of `NAMES`
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


def tells_time(spoken: Sequence[str]) -> bool:
    """Returns whether a passage names a day, a month, a year or a relative time ("last week"). `spoken` are its folded
    words."""
    return _TIMES.search(" ".join(spoken)) is not None


def first_person(text: str) -> int:
    """Returns how often a passage says "I" or "we", at most `FULL_FIRST_PERSON`."""
    return min(FULL_FIRST_PERSON, sum(1 for _ in _FIRST_PERSON.finditer(text)))


def ends_with_question(text: str) -> bool:
    """Returns whether a unit ends with a question. Ignores a closing bracket or line about an attachment."""
    return _ATTACHED.sub("", text.rstrip()).rstrip().endswith("?")


@lru_cache(maxsize=8192)  # a search asks for hundreds of lengths, and for most of them three times
def brief(length: int) -> float:
    """Returns how short a unit of `length` characters is: 1 if empty, 0.77 at 100, 0.42 at 800, 0 above about 6,400."""
    return 1 - min(1.0, math.log2(1 + length / 50) / 7)


@dataclass(slots=True)
class _Unit:
    """A unit while its passages are read: the signals `own` of its best passage so far, and the words `matched` in all.
    `lifted` are the maxima of its signals and those of its lines, if it has any; `line` is a line that scores at least
    as high as the best passage."""

    candidate: Candidate
    own: Signals
    match: float
    matched: int
    lifted: Signals | None = None
    line: Candidate | None = None


@dataclass(slots=True)
class _Group:
    """A conversation or file while its passages are read: its units by ordinal, its words, its best match."""

    units: dict[int, _Unit]
    matched: int = 0
    best: float = 0.0


OF_EMBEDDER = 0.25
"""The factor of `meaning` if the vectors are the embedder's: NDCG@10 on LoCoMo .659 instead of .626."""


class _Scale(NamedTuple):
    """The scale of a search's raw values. `top` is the best BM25. `cosine` returns the cosine of a candidate that is
    used (the network's or the embedder's). `middle` is the median of these cosines, `span` the best one minus the
    median. `factor` multiplies `meaning`. `in_match` are the weights of keywords, coverage and meaning in a match."""

    top: float
    cosine: Callable[[Candidate], float | None]
    middle: float
    span: float
    factor: float
    in_match: tuple[float, float, float]


def _scale(candidates: Sequence[Candidate]) -> _Scale:
    of_embedder = [c.cosine for c in candidates if c.cosine is not None]
    of_network = [c.about for c in candidates if c.about is not None]
    by_network = 2 * len(of_network) > len(of_embedder)
    cosines = of_network if by_network else of_embedder
    middle = median(cosines) if cosines else 0.0
    return _Scale(
        top=max((c.bm25 for c in candidates), default=0.0),
        cosine=attrgetter("about" if by_network else "cosine"),
        middle=middle,
        span=max(cosines) - middle if cosines else 0.0,
        factor=1.0 if by_network else OF_EMBEDDER,
        in_match=(0.4, 0.3, 0.3) if cosines else (0.5, 0.5, 0.0),
    )


def matching_best(query: Query, candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Returns the best passage of each of the best `limit` units by match, ties by path and line. It takes a fifth of
    the time of `rank`, and selects the passages whose neighbors are read."""
    top, cosine, middle, span, _, (by_words, by_coverage, by_meaning) = _scale(candidates)
    words_only = (1 << len(query.idf)) - 1
    share = cache(partial(coverage, query))  # the units of a conversation have few different sets of words
    matches: list[tuple[float, str, int, int, Candidate]] = []
    for c in candidates:
        keywords = c.bm25 / top if top > 0 else 0.0
        nearness = cosine(c)
        meaning = (nearness - middle) / span if nearness is not None and nearness > middle else 0.0
        match = by_words * keywords + by_coverage * share(c.matched & words_only) + by_meaning * meaning
        matches.append((-match, c.path, c.line, c.part, c))
    best: dict[str, Candidate] = {}
    for *_, c in sorted(matches, key=itemgetter(0, 1, 2, 3)):
        best.setdefault(c.unit, c)
    return list(best.values())[:limit]


def signals(
    query: Query, candidates: Sequence[Candidate], weights: RankingWeights = RankingWeights()
) -> list[tuple[Candidate, Signals]]:
    """Returns each unit's best passage with its signals, unordered. The weights only choose that passage."""
    lines = [c for c in candidates if c.derived]
    turns = [c for c in candidates if not c.derived] if lines else candidates
    top, cosine, middle, span, factor, (by_words, by_coverage, by_meaning) = _scale(turns)
    of_passage = (weights.keywords, weights.meaning, weights.coverage, weights.phrase, weights.time, weights.told)
    words_only = (1 << len(query.idf)) - 1  # without the names, which have no IDF
    share = cache(partial(coverage, query))

    def said(c: Candidate, own: Signals) -> tuple[float, int, int]:
        """Returns the key that sorts the passages of a unit, best first."""
        return -sum(map(mul, of_passage, own)), c.line, c.part

    units: dict[str, _Unit] = {}
    groups: dict[str, _Group] = {}
    of_lines: list[tuple[Candidate, Signals]] = []
    for c in chain(turns, lines):
        keywords = c.bm25 / top if top > 0 else 0.0
        nearness = cosine(c)
        meaning = (nearness - middle) / span if span and nearness is not None and nearness > middle else 0.0
        matched = c.matched & words_only
        cover = share(matched)
        own: Signals = (
            keywords,
            meaning * factor,
            cover,
            PHRASE[c.pairs] if c.pairs < 2 else 1.0,
            1.0 if query.asks_when and c.tells_time else 0.0,
            TOLD[c.first_person] if c.first_person < FULL_FIRST_PERSON else 1.0,
        )
        if c.derived:  # a line is measured on the scale of the turns and may exceed it
            of_lines.append((c, (min(1.0, keywords), min(1.0, meaning) * factor, *own[2:])))
            continue
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
            share(near) - share(unit.matched) + (share(far) - share(near)) / 2,
            share(group.matched),
            group.best,
            1.0 if c.speaker and c.speaker in query.people else 0.0,
            unit.match if c.role in ("user", "") else 0.0,
            brief(max(c.length, ONE_SENTENCE)),
            0.0 if c.ends_with_question else 1.0,
            1.0 if unit.lifted else 0.0,
        )
        found.append((unit.line or c, (unit.lifted or unit.own) + beside))
    return found


def rank(
    query: Query, candidates: Sequence[Candidate], weights: RankingWeights = RankingWeights(), limit: int | None = None
) -> list[Ranked]:
    """Returns the best `limit` units of `candidates`, best first, ties by path and line. The signals use all
    candidates. Their order has no effect. No two units may have the same ordinal in a group."""
    factors = tuple(getattr(weights, name) * MILLIONTHS for name in NAMES)
    found = signals(query, candidates, weights)
    if limit is not None and 0 < limit < len(found):  # rounding changes a sum by half a millionth for each term at most
        sums = [sum(map(mul, factors, values)) for _, values in found]
        least = sorted(sums)[-limit] - len(factors) - 1
        found = [one for one, total in zip(found, sums, strict=True) if total >= least]
    scored: list[tuple[int, str, int, int, Candidate, list[int]]] = []
    for c, values in found:
        terms = [int(product + 0.5) for product in map(mul, factors, values)]
        scored.append((-sum(terms), c.path, c.line, c.part, c, terms))
    scored.sort(key=itemgetter(0, 1, 2, 3))
    return [
        Ranked(c, -negative / MILLIONTHS, {name: term / MILLIONTHS for name, term in zip(NAMES, terms, strict=True)})
        for negative, *_, c, terms in scored[:limit]
    ]


def coverage(query: Query, matched: int) -> float:
    """Returns the share of the query's IDF mass that the words in `matched` make up, 0 to 1."""
    total = math.fsum(query.idf)
    return math.fsum(weight for i, weight in enumerate(query.idf) if matched >> i & 1) / total if total else 0.0
