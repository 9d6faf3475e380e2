"""`topics tune`: proposes better thresholds for topics from logged decisions, and writes them on request.

Only decisions with a known outcome count. With another threshold the gate without an LLM would have decided `value ≥
threshold + margin`; decisions of the table or of an LLM stay. Topics whose score was below the threshold at that time
are in no log, so a lower threshold may admit more than these figures show.

    better: F½ = 1.25 · precision · recall / (0.25 · precision + recall), higher by WORTH or more

F½, because a wrong playbook costs tokens and attention each time, and a missing one is asked for by name.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.storage.values import Change
from mcp_server.topics import front_matter
from mcp_server.topics.gate_log import decisions

LEAST_KNOWN = 8
"""Known outcomes of a topic from which on a threshold is proposed."""

WORTH = 0.02
STEPS = 60
"""Thresholds from 0 to 0.6 that are tried."""

NUISANCE = 3
"""Useless matches, with no useful one, that make a trigger a nuisance."""


@dataclass(frozen=True, slots=True)
class Past:
    """A logged decision. `fixed`: the table or an LLM decided. `matched`: the first match of tier 1."""

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
        """Returns whether the topic would have been activated with this threshold."""
        if not self.tier1 and self.score < threshold:
            return False
        return self.active if self.fixed else self.value >= threshold + self.margin


@dataclass(frozen=True, slots=True)
class Quality:
    """Precision and recall (0..1) of decisions; 1 if there is nothing to count."""

    precision: float
    recall: float

    @property
    def f(self) -> float:
        """The F½ score."""
        below = 0.25 * self.precision + self.recall
        return 1.25 * self.precision * self.recall / below if below else 0.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """A better threshold for a topic, and the quality of its `known` decisions before and after."""

    topic: str
    known: int
    threshold: float
    proposed: float
    before: Quality
    after: Quality


@dataclass(frozen=True, slots=True)
class Nuisance:
    """A match of a topic's trigger that was useless `times` times and never useful."""

    topic: str
    matched: str
    times: int


def quality(decisions: Iterable[tuple[bool, bool]]) -> Quality:
    """Returns the quality of pairs (was activated, was useful)."""
    counted = Counter(decisions)
    hits, false, missed = counted[True, True], counted[True, False], counted[False, True]
    return Quality(hits / (hits + false) if hits + false else 1.0, hits / (hits + missed) if hits + missed else 1.0)


def proposals(past: Sequence[Past]) -> list[Proposal]:
    """Returns a proposal for each topic that would be better with a threshold other than its last one, sorted by
    name."""
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
    """Returns, of the steps as good as the best, the middle of the run nearest to the present threshold."""
    most = max(round(one.f, 6) for one in tried)
    good = {step for step, one in enumerate(tried) if round(one.f, 6) == most}
    first = last = min(good, key=lambda step: (abs(step - 100 * now), step))
    while first - 1 in good:
        first -= 1
    while last + 1 in good:
        last += 1
    return (first + last) // 2


def nuisances(past: Iterable[Past]) -> list[Nuisance]:
    """Returns matches that repeatedly activated a topic for nothing, the most frequent first."""
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
    """The result: `logged` decisions, of which `known` have a known outcome. `before` and `after` are the quality of
    all known decisions with the present and the proposed thresholds; `written` are the changed files."""

    logged: int
    known: int
    before: Quality
    after: Quality
    proposals: tuple[Proposal, ...]
    nuisances: tuple[Nuisance, ...]
    written: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
        return asdict(self)


async def tune(memory: Memory, *, apply: bool = False) -> GateTuning:
    """Returns proposals from the decisions in `gate.jsonl`; with `apply`, writes them into the topics' files. Raises
    Conflict or Unavailable if a file cannot be changed."""
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
        with contextlib.suppress(Unavailable):  # without git the files are still changed
            await run_sync(memory.git.commit, list(thresholds), "maintenance: thresholds of topics\n\nBy `topics tune`")
    return tuple(thresholds)


def _past(line: Mapping[str, Any]) -> Past | None:
    """Returns a decision with a known outcome; None for any other line."""
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
