"""`gate tune`: thresholds that the log speaks for, and writing them into the topics' files when asked to."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.storage.local.changes import Change
from mcp_server.topics import front_matter
from mcp_server.topics.gate_log import decisions

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


FIELD = "similarity_threshold"


@dataclass(frozen=True, slots=True)
class GateTuning:
    """What the log says: of `logged` decisions the use of `known` is known. `before` and `after` are all known
    decisions with the thresholds as they are and as proposed; `written` the files that were changed."""

    logged: int
    known: int
    before: Quality
    after: Quality
    proposals: tuple[Proposal, ...]
    nuisances: tuple[Nuisance, ...]
    written: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """What a program reads."""
        return asdict(self)


async def tune(memory: Memory, *, apply: bool = False) -> GateTuning:
    """What to change, from the decisions in `gate.jsonl`; with `apply`, the proposals stand in the topics' files when
    it returns. Raises Conflict or Unavailable where a file cannot be changed."""
    lines = await run_sync(lambda: list(decisions(memory)))
    past = [one for one in map(_past, reversed(lines)) if one is not None]
    topics = (await run_sync(memory.topics.read)).topics
    past = [one for one in past if one.topic in topics]
    proposed = proposals(past)
    written: tuple[str, ...] = ()
    if apply and proposed:
        written = await _written(memory, {topics[one.topic].path: one.proposed for one in proposed})
    new = {one.topic: one.proposed for one in proposed}
    now = {one.topic: one.threshold for one in past}  # of a topic's decisions the last one's
    return GateTuning(
        logged=len(lines),
        known=len(past),
        before=_quality(past, now),
        after=_quality(past, now | new),
        proposals=tuple(proposed),
        nuisances=tuple(nuisances(past)),
        written=written,
    )


def _quality(past: Sequence[Past], thresholds: Mapping[str, float]) -> Quality:
    return quality((one.at(thresholds[one.topic]), one.useful) for one in past)


async def _written(memory: Memory, thresholds: Mapping[str, float]) -> tuple[str, ...]:
    def write() -> None:
        for path, threshold in thresholds.items():
            text = memory.files.read_text(path)
            memory.files.write_atomic(path, front_matter.with_field(text, FIELD, threshold), text)

    async with memory.locks.files():
        await run_sync(write)
    for path in thresholds:
        memory.changes.publish(Change("file", path, None))
    async with memory.locks.git():
        with contextlib.suppress(Unavailable):  # without git the files are changed all the same
            await run_sync(memory.git.commit, list(thresholds), "maintenance: thresholds of topics\n\nBy `gate tune`.")
    return tuple(thresholds)


def _past(line: Mapping[str, Any]) -> Past | None:
    """A decision whose use is known; None for others, and for a line that is none."""
    useful = line.get("was_useful")
    if not isinstance(useful, bool):
        return None
    matched = line.get("matched")
    try:
        return Past(
            topic=str(line["topic_name"]),
            tier1=line["tier1_matched"] is True,
            score=float(line["tier2_score"]),
            value=float(line["value"]),
            threshold=float(line["threshold"]),
            margin=float(line["margin"]),
            active=line["gate_result"] is True,
            useful=useful,
            fixed=line.get("decided_by") != "arithmetic",
            matched=str(matched[0]) if isinstance(matched, list) and matched else "",
        )
    except (KeyError, TypeError, ValueError):
        return None
