"""Tuning: what would other thresholds have decided, and would that have been better (S4 §5.5)?

Only decisions whose use is known count (`useful`). With another threshold the gate without an LLM would have decided
as `value ≥ threshold + margin` says; what the table or an LLM decided stays. What never came up because its score was
under the threshold of its day is in no log: a lower threshold may let in more than these figures show.

    better: F½ = 1.25 · precision · recall / (0.25 · precision + recall), higher by `WORTH` or more

F½, because a wrong playbook costs tokens and attention each time, and a missing one is asked for by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OWN = 40
USED = 3


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision whose use is not known yet: of `topic`, for the message of this hash, in this exchange. `active`: it
    came in. `unsaid` are its own words that the message did not hold."""

    topic: str
    message: str
    exchange: int
    active: bool
    unsaid: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it is stored; `pending` gives an equal value back."""
        return {
            "topic": self.topic,
            "message": self.message,
            "exchange": self.exchange,
            "active": self.active,
            "unsaid": list(self.unsaid),
        }


def pending(stored: Any) -> Pending | None:
    """What is stored; None where it cannot be read."""
    if not isinstance(stored, Mapping):
        return None
    try:
        unsaid = tuple(str(stem) for stem in stored["unsaid"])
        return Pending(
            str(stored["topic"]), str(stored["message"]), int(stored["exchange"]), stored["active"] is True, unsaid
        )
    except (KeyError, TypeError, ValueError):
        return None


def used(unsaid: Collection[str], answer: Collection[str], files: Iterable[str], touched: Iterable[str]) -> bool:
    """Did an answer use a topic? `answer` are its stems; `files` those of the topic, `touched` those of its calls."""
    calls = list(touched)
    if any(_same(file, path) for file in files for path in calls):
        return True
    return len(set(unsaid) & set(answer)) >= USED


def _same(file: str, path: str) -> bool:
    """A file of the workspace, however a client writes its path."""
    steps, other = file.split("/"), path.replace("\\", "/").split("/")
    return bool(file and path) and other[-len(steps) :] == steps


LEAST_KNOWN = 8
"""Decisions of a topic whose use is known, from which on something is proposed."""

WORTH = 0.02
STEPS = 60
"""Thresholds from 0 to 0.6 that are tried."""

NUISANCE = 3
"""So many useless matches, and no useful one, make a trigger a nuisance."""


@dataclass(frozen=True, slots=True)
class Past:
    """A decision from the log. `fixed`: not the gate without an LLM decided. `matched`: what tier 1 found first."""

    topic: str
    tier1: bool
    score: float
    value: float
    threshold: float
    margin: float
    active: bool
    useful: bool
    fixed: bool
    matched: str = ""

    def at(self, threshold: float) -> bool:
        """Would it have come in with this threshold?"""
        if not self.tier1 and self.score < threshold:
            return False
        return self.active if self.fixed else self.value >= threshold + self.margin


@dataclass(frozen=True, slots=True)
class Quality:
    """Precision and recall (0..1) of decisions; 1 where there is nothing to count."""

    precision: float
    recall: float

    @property
    def f(self) -> float:
        """F½."""
        below = 0.25 * self.precision + self.recall
        return 1.25 * self.precision * self.recall / below if below else 0.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another threshold for a topic, with what its known decisions (`known`) would have been worth."""

    topic: str
    known: int
    threshold: float
    proposed: float
    before: Quality
    after: Quality


@dataclass(frozen=True, slots=True)
class Nuisance:
    """What a trigger of a topic matched so many times, always for nothing."""

    topic: str
    matched: str
    times: int


def quality(decisions: Iterable[tuple[bool, bool]]) -> Quality:
    """Of pairs (came in, was useful)."""
    counted = Counter(decisions)
    hits, false, missed = counted[True, True], counted[True, False], counted[False, True]
    return Quality(hits / (hits + false) if hits + false else 1.0, hits / (hits + missed) if hits + missed else 1.0)


def proposals(past: Sequence[Past]) -> list[Proposal]:
    """One for each topic that would be better with another threshold than its decisions had last; by name."""
    found: list[Proposal] = []
    for topic in sorted({one.topic for one in past}):
        known = [one for one in past if one.topic == topic]
        if len(known) < LEAST_KNOWN:
            continue
        now = known[-1].threshold
        before = quality((one.at(now), one.useful) for one in known)
        tried = [quality((one.at(step / 100), one.useful) for one in known) for step in range(STEPS + 1)]
        best = _middle(tried, now)
        if tried[best].f >= before.f + WORTH:
            found.append(Proposal(topic, len(known), now, best / 100, before, tried[best]))
    return found


def _middle(tried: Sequence[Quality], now: float) -> int:
    """Of the steps that are as good as the best, the middle of the run that lies nearest to the threshold of now."""
    most = max(round(one.f, 6) for one in tried)
    good = {step for step, one in enumerate(tried) if round(one.f, 6) == most}
    first = last = min(good, key=lambda step: (abs(step - 100 * now), step))
    while first - 1 in good:
        first -= 1
    while last + 1 in good:
        last += 1
    return (first + last) // 2


def nuisances(past: Iterable[Past]) -> list[Nuisance]:
    """Matches that brought a topic in for nothing, several times; the most frequent first."""
    useless: Counter[tuple[str, str]] = Counter()
    useful: set[tuple[str, str]] = set()
    for one in past:
        if one.active and one.matched:
            key = one.topic, one.matched.casefold()
            if one.useful:
                useful.add(key)
            else:
                useless[key] += 1
    counted = [Nuisance(topic, matched, times) for (topic, matched), times in useless.items() if times >= NUISANCE]
    return sorted(
        (one for one in counted if (one.topic, one.matched) not in useful), key=lambda one: (-one.times, one.topic)
    )
