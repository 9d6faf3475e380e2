"""Which item replaces, closes or repeats which.

A new decision or fact replaces an older one if both are about the same thing and the new one reads like a change: a
logistic model over fourteen readable features. A report that something is done closes an open item: a logistic model
over eight features. On 141 labeled conversations with the items as recognized, each with its writer left out, .50 of
the superseded decisions are marked and .05 of the others; .72 of the closed items are closed, .15 of the open ones, and
.23 of all items after two conversations about something else.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from mcp_server.understanding import changing
from mcp_server.understanding.cues import cues
from mcp_server.understanding.features import stems_of_text

State = Literal["current", "replaced", "closed"]

REPLACES = 0.15
"""The probability from which on a decision counts as replaced by another decision."""

REPLACES_FACT = 0.25
"""The same for a pair with a fact in it: facts are rarely superseded."""

REVISES = 0.3
"""The probability that a message revises something, from which on a decision that has all words of an older one is
not taken for its repetition."""

NAMED = 0.3
"""The least probability of a revision if the new statement names what it gives up."""

CHANGEABLE = ("decision", "fact")
"""Kinds that replace each other: "the job queue runs on Redis" may be a fact, and the change a decision."""

CLOSES = 0.1
"""The probability from which on a report closes an open item."""

LEAST_STATEMENTS = 8
"""Among fewer statements a word counts as rare as among so many: two shared words are as telling there."""

_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_QUANTITY = re.compile(r"\d+(?:[.,:]\d+)*\s*(%|€|\$|[a-z]+)", re.IGNORECASE)
"""A number with its unit, or the word after it."""


@dataclass(eq=False)
class Statement:
    """An item as settling sees it. `order` sorts statements by time; `changes` is the probability, 0 to 1, that the
    message of a decision or fact revises something; `heard` are the stems of that message. Of two decisions or facts at
    least one must be new (`is_new`): the others were compared before."""

    kind: str
    text: str
    order: tuple[datetime, str, int]
    changes: float = 0.0
    heard: frozenset[str] = frozenset()
    is_new: bool = True
    state: State = "current"
    by: Statement | None = None
    key: object = None

    @cached_property
    def stems(self) -> frozenset[str]:
        return stems_of_text(self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """The stems without a digit."""
        return frozenset(stem for stem in self.stems if not _DIGIT.search(stem))

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(_NUMBER.findall(self.text))

    @cached_property
    def gives_up(self) -> bool:
        """Whether the text says that something is so no longer."""
        return changing.changes(self.text)

    @cached_property
    def units(self) -> frozenset[str]:
        """The unit of each number ("30 ms"), or the word behind it ("6 photos")."""
        return frozenset(unit.lower() for unit in _QUANTITY.findall(self.text))


class Rarity:
    """How much a shared word tells: its inverse document frequency among these statements."""

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


def settle(statements: Sequence[Statement]) -> None:
    """Sets `state` and `by` of each statement, from the older ones to the newer ones."""
    rarity = Rarity(statements)
    ordered = sorted(statements, key=lambda one: one.order)
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
            _mark(new, replaceable, "replaced", [_replacing(one, new, rarity) for one in replaceable])
        elif new.kind == "report":
            waiting = [one for one in older if one.kind == "open"]
            between = [place - ordered.index(one) for one in waiting]
            _mark(new, waiting, "closed", _closing(waiting, new, rarity, between))


def _mark(new: Statement, older: Sequence[Statement], state: State, scores: Sequence[float]) -> None:
    """Sets the state of the older statement with the highest score, if that is 1 or more, and of its repetitions."""
    best = max(scores, default=0.0)
    if best >= 1:
        old = older[scores.index(best)]
        for one in older:
            if one is old or same(one, old):
                one.state, one.by = state, new


def _closing(waiting: Sequence[Statement], new: Statement, rarity: Rarity, between: Sequence[int]) -> list[float]:
    """Returns for each open item how far the probability that `new` closes it is above the least one, as a factor.
    `between` are the numbers of statements after each item, up to `new`."""
    weights = [rarity.of(one.stems & new.stems) for one in waiting]
    most = max(weights, default=0.0)
    return [
        math.inf
        if same(one, new)
        else _logistic(CLOSING, closing_features(one, new, rarity, weight, weight == most, later)) / CLOSES
        if weight
        else 0.0
        for one, weight, later in zip(waiting, weights, between, strict=True)
    ]


def closing_features(
    old: Statement, new: Statement, rarity: Rarity, weight: float, is_nearest: bool, later: int
) -> tuple[float, ...]:
    """Returns the features of an open item and a later report: the weight of the words that both share, alone and as a
    share of the report and of the item, whether the report has a word like "no", whether no other open item shares
    more, the content words of the item, the probability that something is done, and the logarithm of the number of
    statements from the item to the report: what is said long after is seldom about the item."""
    return (
        weight,
        weight / max(1e-9, rarity.of(new.stems)),
        weight / max(1e-9, rarity.of(old.stems)),
        float("no" in cues(new.text)),
        float(is_nearest),
        len(old.stems) / 10,
        new.changes,
        math.log1p(later),
    )


CLOSING = (-1.27, 0.3, 2.7, 2.49, -0.47, 1.07, -0.23, 2.18, -1.04)
"""Bias, then a weight for each of these features (`benchmarks/train_recognizer.py --settling`); fitted on pairs of
recognized items of 151 conversations (`train/`, `talk/` and eight others), and on pairs with reports of other
conversations, which close nothing."""


def _replacing(old: Statement, new: Statement, rarity: Rarity) -> float:
    """Returns how far the probability of a replacement is above the least one, as a factor.

    A pair with a fact counts only if the new statement says that something changed: facts about one thing are often
    true together.
    """
    if old.kind == new.kind == "decision":
        return replaces(old, new, rarity) / REPLACES
    changed = new.changes >= REVISES or _has_other_value(old, new) or _names(new, old)
    return replaces(old, new, rarity) / REPLACES_FACT if changed else 0.0


def _names(new: Statement, old: Statement) -> bool:
    """Returns whether the new statement names what is given up of the old one."""
    return new.gives_up and changing.supersedes(new.text, old.text)


def _has_other_value(old: Statement, new: Statement) -> bool:
    """Returns whether both have a number of the same unit, and no number is in both."""
    return old.numbers.isdisjoint(new.numbers) and not old.units.isdisjoint(new.units)


def replacement_features(old: Statement, new: Statement, rarity: Rarity) -> tuple[float, ...]:
    """Returns the features of a pair: words that both share as a share of each text and in weight, the revision act,
    another number of the same unit, the same number, the share of the old words in the new one's message, revision
    times shared words, whether the new one names what is given up, whether they are of different days, the content
    words of each text, whether both are of one kind, the root of the revision act."""
    mine, others = old.words, new.words
    weight = rarity.of(mine & others)
    of_old = weight / max(1e-9, rarity.of(mine))
    names_old = _names(new, old)
    changes = max(new.changes, NAMED) if names_old and new.changes else new.changes
    return (
        of_old,
        weight / max(1e-9, rarity.of(others)),
        min(weight, 20.0),
        changes,
        float(_has_other_value(old, new)),
        float(not old.numbers.isdisjoint(new.numbers)),
        rarity.of(old.stems & (new.heard | new.stems)) / max(1e-9, rarity.of(old.stems)),
        changes * of_old,
        float(names_old),
        float(old.order[:2] != new.order[:2] and old.order[0].date() != new.order[0].date()),
        len(mine) / 10,
        len(others) / 10,
        float(old.kind == new.kind),
        math.sqrt(changes),
    )


REPLACEMENT = (-9.5, -6.34, 3.14, 0.41, -7.83, 0.38, 1.01, 3.72, 6.84, 2.68, 2.15, -0.51, -0.71, 1.3, 11.09)
"""Bias, then a weight for each feature above; fitted on 11,312 pairs of recognized items of 105 conversations."""

WITHOUT_MESSAGE = (-7.81, -2.71, 3.68, 0.29, 3.32, 1.67, 1.96, 7.96, 6.19, 4.74, 1.13)
"""The same for the first ten features, if the message of the new statement is not known: remembered lines, hits of a
search. Fitted on 1,344 pairs of labeled decisions of 81 conversations."""


def replaces(old: Statement, new: Statement, rarity: Rarity) -> float:
    """Returns the probability that `new` takes the place of `old`: 0 if they share no content word."""
    weights = REPLACEMENT if new.changes else WITHOUT_MESSAGE
    return _logistic(weights, replacement_features(old, new, rarity)) if old.stems & new.stems else 0.0


def same(one: Statement, other: Statement) -> bool:
    """Whether two statements of one kind say the same: no content word of the shorter one is missing in the other."""
    return covers(one, other) or covers(other, one)


def covers(one: Statement, other: Statement) -> bool:
    """Whether a statement says all that another one says: no content word of the other one is missing in it."""
    return one.text == other.text or (len(other.stems) >= 3 and other.stems <= one.stems)


def _logistic(weights: Sequence[float], features: Sequence[float]) -> float:
    total = weights[0] + sum(weight * value for weight, value in zip(weights[1:], features, strict=False))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))
