"""Finds which items replace, close or repeat other items.

A new decision, rule or fact replaces an older one if both are about the same thing. A report that something is done
closes an open item. Logistic models over features of a pair (`replacement_features`, `closing_features`) find the
possible pairs; for these a network reads both statements (`encoder.pair`). `benchmarks/README.md` has how often both
are right.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from hashlib import blake2b
from typing import Literal, NamedTuple

from mcp_server.text.prose import sentences
from mcp_server.text.words import ENGLISH, language_of, words
from mcp_server.understanding.cues import changes, cues, stems_of_text, supersedes, word_list
from mcp_server.understanding.encoder import pair

State = Literal["current", "changed", "replaced", "closed"]
"""`changed`: a newer statement seems to change it or a part of it, so that it stays in force with a note."""

CHANGED = "perhaps changed"
"""The note at the end of a line whose statement has the state `changed`."""

WHOLE = 10
"""Content words. An older statement is `replaced` if the newer one lacks at most this many of its content words, and
the probability is high enough (`Judge.certain`). Otherwise it is `changed`: a long statement ("Bell builds it for 134k,
from 6 July on") often changes only in part. Readers said so of 32 of 62 long statements, and of 6 of 25 others."""

SHORT = 18
"""Most words of a short statement."""

REVISES = 0.3
"""If the probability that a message revises something is at least this, a decision that has all words of an older one
is not taken for its repetition."""

CHANGEABLE = ("decision", "rule", "fact")
"""Kinds that replace each other: "the job queue runs on Redis" may be a fact, and the change a decision."""

SHORTEST_PART = 3
"""Least words of a sentence that may close an open item alone; shorter ones count only together ("Logo done.")."""

REPORTS, COVERED = 0.1, 0.5
"""A report that is less probable than `REPORTS` closes an open item only if it shares words with this share of the
item's weight: "rename the audit log table" does not close "ask Priya about the retention of the audit log"."""

LEAST_REPLACED, LEAST_CLOSED, MOST_READ = 0.03, 0.01, 3
"""The network reads only pairs that have at least these probabilities by their words, and at most MOST_READ pairs for a
new statement: each takes 15 ms."""

LEAST_STATEMENTS = 8
"""Among fewer statements, the rarity of a word is computed as if there were this many, because two shared words mean as
much there."""

_REPLY = re.compile(r"\((?:agreed|answer|amended|refused): ")
"""Begins the user's answer that a line quotes; it is not part of the statement."""

INSTEAD = stems_of_text("instead")
"""Left out of the stems: it says that something changes, but not what, so two changes that share only this word are
about different things."""

_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_QUANTITY = re.compile(r"\d+(?:[.,:]\d+)*\s*(%|€|\$|[a-z]+)", re.IGNORECASE)
"""A number with its unit, or the word after it."""


@dataclass(eq=False)
class Statement:
    """An item in the form that `settle` reads. `order` sorts statements by time; `changes` is the probability, 0 to 1,
    that the message of a decision, rule or fact, or a sentence of it, revises something; `heard` are the message's
    stems. Of two of these at least one must be new (`is_new`): the others were compared before."""

    kind: str
    text: str
    order: tuple[datetime, str, int]
    changes: float = 0.0
    heard: frozenset[str] = frozenset()
    is_new: bool = True
    state: State = "current"
    by: Statement | None = None
    key: object = None

    @property
    def is_in_force(self) -> bool:
        return self.state in ("current", "changed")

    @cached_property
    def stems(self) -> frozenset[str]:
        return stems_of_text(_REPLY.sub("(", self.text)) - INSTEAD

    @cached_property
    def words(self) -> frozenset[str]:
        """The stems without a digit."""
        return frozenset(stem for stem in self.stems if not _DIGIT.search(stem))

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(_NUMBER.findall(self.text))

    @cached_property
    def gives_up(self) -> bool:
        """Whether the text says that something no longer holds."""
        return changes(self.text)

    @cached_property
    def is_english(self) -> bool:
        return language_of(words(self.text)) in (ENGLISH, "")

    @cached_property
    def is_short(self) -> bool:
        """Whether it has few words. Among short statements, few shared words tell more than in a long proposal."""
        return len(word_list(self.text)) <= SHORT

    @cached_property
    def units(self) -> frozenset[str]:
        """The unit of each number ("30 ms"), or the word behind it ("6 photos")."""
        return frozenset(unit.lower() for unit in _QUANTITY.findall(self.text))


class Rarity:
    """The weight of shared words: their inverse document frequency among these statements."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        count = max(LEAST_STATEMENTS, len(statements))
        having = Counter(stem for one in statements for stem in one.stems)
        self._weights = {stem: math.log((1 + count) / (1 + number) + 1) for stem, number in having.items()}
        self._new = math.log(2 + count)
        self._sums: dict[frozenset[str], float] = {}

    def of(self, stems: frozenset[str]) -> float:
        """Returns the sum of the weights of stems."""
        if stems not in self._sums:
            self._sums[stems] = sum(self._weights.get(stem, self._new) for stem in stems)
        return self._sums[stems]


class Reading:
    """Computes the network's estimates for pairs of statements, and stores them in `used`. Estimates in `known` come
    from an earlier call of `settle` and are not computed again. The key of both is a digest of the pair."""

    def __init__(self, known: Mapping[str, tuple[float, float]]) -> None:
        self.used: dict[str, tuple[float, float]] = {}
        self._known = known

    def of(self, old: Statement, new: Statement) -> tuple[float, float]:
        """Returns the logits that `new` replaces, and that it closes, `old`."""
        both = (old.kind, old.text, new.kind, new.text)
        digest = blake2b("\n".join(both).encode("utf-8", "replace"), digest_size=8).hexdigest()
        self.used[digest] = self._known.get(digest) or pair(*both)
        return self.used[digest]


def settle(
    statements: Sequence[Statement], known: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, tuple[float, float]]:
    """Sets `state` and `by` of each statement, from the older ones to the newer ones, once at most.

    A pair that the network reads takes 15 ms. Returns its estimates by pair; given as `known`, they are not computed
    again.
    """
    rarity, reading = Rarity(statements), Reading(known or {})
    ordered = sorted(statements, key=lambda one: one.order)
    of_turn: dict[tuple[str, int], list[Statement]] = {}
    for one in ordered:
        of_turn.setdefault(one.order[1:], []).append(one)
    for place, new in enumerate(ordered):
        older = [one for one in ordered[:place] if one.state == "current" and one.order < new.order]
        if new.kind in CHANGEABLE:
            replaceable = [
                one
                for one in older
                if one.kind in CHANGEABLE
                and (one.is_new or new.is_new)
                and (new.changes >= REVISES or not same(one, new))
            ]
            _mark(new, replaceable, "replaced", _replacing(replaceable, new, rarity, reading))
        elif new.kind == "report":
            for part in report_parts(new, of_turn[new.order[1:]]):
                waiting = [one for one in older if one.kind == "open" and one.state == "current"]
                between = [place - ordered.index(one) for one in waiting]
                _mark(new, waiting, "closed", _closing(waiting, part, rarity, reading, between))
    return reading.used


def report_parts(report: Statement, of_turn: Sequence[Statement]) -> list[Statement]:
    """Returns the sentences of a report and of the decisions, rules and facts of the same turn. Each sentence may close
    an open item of its own: "Bellini wrote. They move on Sunday." `of_turn` are all statements of the turn."""
    told = [one for one in (report, *of_turn) if one.kind in (*CHANGEABLE, "report")]
    texts = dict.fromkeys(sentence for one in told for sentence in sentences(one.text))
    long = [text for text in texts if len(text.split()) >= SHORTEST_PART]
    return [replace(report, text=text) for text in long or [report.text]]


def _mark(new: Statement, older: Sequence[Statement], state: State, scores: Sequence[float]) -> None:
    """Sets the state of the older statement with the highest score, if that is 1 or more, and of its repetitions. A
    statement that says much more than the new one only gets the state `changed`."""
    best = max(scores, default=0.0)
    if best >= 1:
        old = older[scores.index(best)]
        for one in older:
            if one is old or same(one, old):
                is_whole = state == "closed" or (
                    best >= _judge_of(one, new).certain and len(one.stems - new.stems) <= WHOLE
                )
                one.state, one.by = state if is_whole else "changed", new


def _closing(
    waiting: Sequence[Statement], new: Statement, rarity: Rarity, reading: Reading, between: Sequence[int]
) -> list[float]:
    """Returns for each open item the probability that `new` closes it, divided by the least probability that is needed.
    `between` are the numbers of statements after each item, up to `new`."""
    weights = [rarity.of(one.stems & new.stems) for one in waiting]
    most = max(weights, default=0.0)
    shares = [
        logistic(CLOSING, closing_features(one, new, rarity, weight, weight == most, later))
        if weight and (new.changes >= REPORTS or weight >= COVERED * rarity.of(one.stems))
        else 0.0
        for one, weight, later in zip(waiting, weights, between, strict=True)
    ]
    found = _read(waiting, new, shares, reading, LEAST_CLOSED, lambda _: CLOSING_READ)
    return [math.inf if same(one, new) else factor for one, factor in zip(waiting, found, strict=True)]


def _read(
    older: Sequence[Statement],
    new: Statement,
    shares: Sequence[float],
    reading: Reading,
    least: float,
    judge: Callable[[Statement], Judge],
) -> list[float]:
    """Returns for each pair its probability, divided by the least probability that is needed. `shares` are the
    probabilities that the words of the pairs give; `judge` returns the weights and limits for a pair.

    The network reads the likeliest `MOST_READ` pairs of at least `least`; other pairs have factor 0. A pair that is not
    in English is judged by its words alone.
    """
    likely = sorted((place for place, share in enumerate(shares) if share >= least), key=lambda place: -shares[place])
    found = [0.0] * len(shares)
    for place in likely[:MOST_READ]:
        old, share = older[place], shares[place]
        given = judge(old)
        if old.is_english and new.is_english:
            replaces, closes = reading.of(old, new)
            estimate = closes if new.kind == "report" else replaces
            found[place] = logistic(given.weights, (math.log(share / (1 - share)), estimate)) / given.least
        else:
            found[place] = share / given.least_by_words
    return found


def closing_features(
    old: Statement, new: Statement, rarity: Rarity, weight: float, is_nearest: bool, later: int
) -> tuple[float, ...]:
    """Returns the features of an open item and a later report: the weight of the words that both share, alone and as a
    share of the report and of the item, whether the report has a word like "no", whether no other open item shares
    more, the content words of the item, the probability that something is done, the logarithm of the number of
    statements from the item to the report (a late report is seldom about the item), and whether the item is of an
    earlier session (people who come back first report what they have done)."""
    return (
        weight,
        weight / max(1e-9, rarity.of(new.stems)),
        weight / max(1e-9, rarity.of(old.stems)),
        float("no" in cues(new.text)),
        float(is_nearest),
        len(old.stems) / 10,
        new.changes,
        math.log1p(later),
        float(old.order[1] != new.order[1]),
    )


CLOSING = (-2.98, 0.19, 2.03, 5.61, -0.34, 0.64, -0.07, 2.85, -1.08, 1.64)
"""Bias, then a weight for each of these features (`benchmarks/train_recognizer.py --settling`); fitted on pairs of
recognized items of `train/` and `talk/`, and on pairs with reports of other conversations, which close nothing."""


def _replacing(older: Sequence[Statement], new: Statement, rarity: Rarity, reading: Reading) -> list[float]:
    """Returns for each older statement the probability that `new` replaces it, divided by the least probability that is
    needed."""
    weights = [rarity.of(one.words & new.words) for one in older]
    most = max(weights, default=0.0)
    shares = [
        logistic(OF_SHORT if are_short(one, new) else OF_LONG, replacement_features(one, new, rarity, weight, most))
        if one.stems & new.stems
        else 0.0
        for one, weight in zip(older, weights, strict=True)
    ]
    return _read(older, new, shares, reading, LEAST_REPLACED, lambda one: _judge_of(one, new))


def _judge_of(old: Statement, new: Statement) -> Judge:
    judge = SHORT_READ if are_short(old, new) else LONG_READ
    return FACT_READ._replace(weights=judge.weights) if old.kind == "fact" else judge


def are_short(old: Statement, new: Statement) -> bool:
    """Returns whether both statements are short."""
    return old.is_short and new.is_short


def names(new: Statement, old: Statement) -> bool:
    """Returns whether the new statement names what is given up of the old one."""
    return new.gives_up and supersedes(new.text, old.text)


def has_other_value(old: Statement, new: Statement) -> bool:
    """Returns whether both have a number of the same unit, and no number is in both."""
    return old.numbers.isdisjoint(new.numbers) and not old.units.isdisjoint(new.units)


def replacement_features(
    old: Statement, new: Statement, rarity: Rarity, weight: float, most: float
) -> tuple[float, ...]:
    """Returns the features of a statement and a later one. `weight` is that of the words that both share, `most` the
    largest one that any older statement shares with the new one.

    - The weight as a share of each text, of both, and of `most`, and alone; whether it is `most`; the number of words.
    - The words that only one text has, and the smaller of both numbers; the content words of each text.
    - Another number of the same unit, the same number.
    - The probability of a revision, its root, and whether the new statement names what is given up.
    - Whether both are of one kind, both rules, both facts.
    - The share of the old words that the new one's message has; whether both are of different days.
    """
    mine, others, both = old.words, new.words, old.words & new.words
    of_old, of_new = len(mine - both), len(others - both)
    same_kind = old.kind == new.kind
    return (
        weight / max(1e-9, rarity.of(mine)),
        weight / max(1e-9, rarity.of(others)),
        weight / max(1e-9, rarity.of(mine | others)),
        min(weight, 20.0),
        weight / max(1e-9, most),
        float(0 < weight == most),
        min(len(both), 6) / 3,
        min(of_old, 10) / 5,
        min(of_new, 15) / 5,
        min(of_old, of_new, 6) / 3,
        min(len(mine), 30) / 10,
        min(len(others), 30) / 10,
        float(has_other_value(old, new)),
        float(not old.numbers.isdisjoint(new.numbers)),
        new.changes,
        math.sqrt(new.changes),
        float(names(new, old)),
        float(same_kind),
        float(same_kind and new.kind == "rule"),
        float(same_kind and new.kind == "fact"),
        rarity.of(old.stems & (new.heard | new.stems)) / max(1e-9, rarity.of(old.stems)),
        float(old.order[:2] != new.order[:2] and old.order[0].date() != new.order[0].date()),
    )


OF_SHORT = (
    -4.56,
    -2.01,
    0.92,
    -0.79,
    -0.54,
    0.19,
    1.62,
    6.31,
    -0.52,
    0.05,
    -0.44,
    -1.41,
    1.04,
    0.5,
    1.19,
    -0.25,
    1.41,
    -0.49,
    0.77,
    -0.31,
    -0.31,
    2.16,
    0.33,
)
OF_LONG = (
    -10.17,
    -1.45,
    4.67,
    -7.91,
    0.08,
    1.7,
    0.43,
    1.19,
    -0.26,
    0.13,
    0.43,
    -0.89,
    -0.24,
    0.79,
    0.94,
    -3.68,
    7.47,
    0.12,
    1.27,
    -0.96,
    -0.95,
    4.31,
    2.31,
)
"""Bias, then a weight for each of these features, for short statements and for others
(`benchmarks/train_recognizer.py --settling`)."""


class Judge(NamedTuple):
    """How a pair is judged. `weights` are the bias, the weight of the logit that its words give, and that of the
    network's logit. `least` is the least probability that is needed, `least_by_words` the same for a pair in a language
    that the network does not know. The older statement is hidden if the probability is at least `certain` times the
    least one."""

    weights: tuple[float, float, float]
    least: float
    least_by_words: float
    certain: float = 1.4


SHORT_READ = Judge((0.16, 0.57, 0.31), 0.2, 0.3)
LONG_READ = Judge((0.61, 0.5, 0.6), 0.25, 0.4)
FACT_READ = LONG_READ._replace(least=0.45, least_by_words=0.6, certain=1.0)
CLOSING_READ = Judge((0.26, 0.68, 0.37), 0.17, 0.12)
"""For two short statements, other statements, an older fact, and an open item with a report. An older fact needs more,
because two facts about one thing are often true together ("the kiln fires at 1240 degrees", "the kiln takes 40 mugs").
`benchmarks/train_statements.py` fits the weights; `benchmarks/README.md` says how the limits were chosen, and how often
the results are right. A statement that is hidden by mistake costs more than an old one that stays beside a newer
one."""


def settled_in(turn: int, text: str) -> int:
    """Returns the number of the turn that settled a line which begins in turn number `turn`: the next one, if the line
    quotes the user's answer. Other statements of the answer do not replace the line."""
    return turn + 1 if _REPLY.search(text) else turn


def same(one: Statement, other: Statement) -> bool:
    """Returns whether two statements say the same: no content word of the shorter one is missing in the other."""
    return covers(one, other) or covers(other, one)


def covers(one: Statement, other: Statement) -> bool:
    """Returns whether `one` says all that `other` says: no content word of `other` is missing in `one`."""
    return one.text == other.text or (len(other.stems) >= 3 and other.stems <= one.stems)


def logistic(weights: Sequence[float], features: Sequence[float]) -> float:
    """Returns the probability of a logistic model whose bias is the first weight."""
    total = weights[0] + sum(weight * value for weight, value in zip(weights[1:], features, strict=False))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))
