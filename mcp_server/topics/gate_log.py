"""Logs to `gate.jsonl` every decision about a topic and whether it was useful, and proposes thresholds from the log.

A decision is a line with `was_useful: null`. A later line `gate_outcome` says whether an answer used the topic;
`decisions` joins both. `topics tune` writes the proposed thresholds on request.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.storage import logs
from mcp_server.storage.logs import append_or_drop
from mcp_server.storage.topics import TopicSet
from mcp_server.storage.values import Change
from mcp_server.text.markdown import second_text
from mcp_server.topics import front_matter
from mcp_server.topics.similarity import similarity
from mcp_server.topics.topic import WatchedMessage, validated

if TYPE_CHECKING:
    from mcp_server.topics.judge import Verdict


LEAST_KNOWN = 8
"""A threshold is proposed for a topic only if at least this many of its decisions have a known outcome."""

LEAST_GAIN = 0.02
"""A threshold is proposed only if it raises the F½ score by at least this much."""

STEPS = 60
"""Thresholds that are tried: 0 to 0.6 in steps of 0.01."""


@dataclass(frozen=True, slots=True)
class KnownDecision:
    """A logged decision with a known outcome; the fields are those of the log."""

    topic_name: str
    tier1_matched: bool
    tier2_score: float
    value: float
    threshold: float
    margin: float
    gate_result: bool
    was_useful: bool
    decided_by: str = ""

    def at(self, threshold: float) -> bool:
        """Returns whether the topic would have been activated with this threshold."""
        if not self.tier1_matched and self.tier2_score < threshold:
            return False
        return self.value >= threshold + self.margin if self.decided_by == "arithmetic" else self.gate_result


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


def quality(decisions: Iterable[tuple[bool, bool]]) -> Quality:
    """Returns the quality of pairs (was activated, was useful)."""
    counted = Counter(decisions)
    hits, false, missed = counted[True, True], counted[True, False], counted[False, True]
    return Quality(hits / (hits + false) if hits + false else 1.0, hits / (hits + missed) if hits + missed else 1.0)


def proposals(past: Sequence[KnownDecision]) -> list[Proposal]:
    """Returns, sorted by name, a proposal for each topic whose decisions another threshold than the last one would
    improve."""
    found: list[Proposal] = []
    for topic in sorted({one.topic_name for one in past}):
        known = [one for one in past if one.topic_name == topic]
        if len(known) < LEAST_KNOWN:
            continue
        now = known[-1].threshold
        before = quality((one.at(now), one.was_useful) for one in known)
        tried = [quality((one.at(step / 100), one.was_useful) for one in known) for step in range(STEPS + 1)]
        most = max(one.f for one in tried)
        good = [step for step, one in enumerate(tried) if one.f == most]
        best = good[len(good) // 2]
        if tried[best].f >= before.f + LEAST_GAIN:
            found.append(Proposal(topic, len(known), now, best / 100, before, tried[best]))
    return found


FIELD = "similarity_threshold"


@dataclass(frozen=True, slots=True)
class GateTuning:
    """The result of `tune`: the number of `logged` decisions, of which `known` have a known outcome. `before` and
    `after` are the quality of all known decisions with the present and the proposed thresholds; `written` are the
    changed files."""

    logged: int
    known: int
    before: Quality
    after: Quality
    proposals: tuple[Proposal, ...]
    written: tuple[str, ...] = ()


async def tune(memory: Memory, *, apply: bool = False) -> GateTuning:
    """Returns proposals from the decisions in `gate.jsonl`; with `apply`, writes them into the topics' files. Raises
    Conflict or Unavailable if a file cannot be changed."""
    lines = await run_sync(lambda: list(decisions(memory)))
    past = [one for line in reversed(lines) if (one := validated(KnownDecision, line))]
    topics = (await run_sync(memory.topics.read)).topics
    past = [one for one in past if one.topic_name in topics]
    proposed = proposals(past)
    written: tuple[str, ...] = ()
    if apply and proposed:
        written = await _write_thresholds(memory, {topics[one.topic].path: one.proposed for one in proposed})
    new = {one.topic: one.proposed for one in proposed}
    now = {one.topic_name: one.threshold for one in past}  # of each topic's last decision
    return GateTuning(
        logged=len(lines),
        known=len(past),
        before=_quality(past, now),
        after=_quality(past, now | new),
        proposals=tuple(proposed),
        written=written,
    )


def _quality(past: Sequence[KnownDecision], thresholds: Mapping[str, float]) -> Quality:
    return quality((one.at(thresholds[one.topic_name]), one.was_useful) for one in past)


async def _write_thresholds(memory: Memory, thresholds: Mapping[str, float]) -> tuple[str, ...]:
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
            await run_sync(
                memory.git.commit_files, list(thresholds), "maintenance: thresholds of topics\n\nBy `topics tune`"
            )
    return tuple(thresholds)


KIND = "gate"
NAMESPACE = "gate"
MOST_PENDING = 30
LONGEST_SAID = 60


async def decided(
    memory: Memory,
    session: str,
    watched: WatchedMessage,
    topics: TopicSet,
    verdicts: Sequence[Verdict],
    exchange: int,
    turn: int,
) -> None:
    """Logs each verdict about a message, and stores it until its outcome is known or it expires."""
    mark = message_hash(watched.text)
    at = {"timestamp": second_text(memory.clock()), "event": "gate_decision", "session_id": session}

    def work() -> list[Pending]:
        tier2 = similarity(memory, topics)
        said = set(tier2.stems(watched.text))
        fresh: list[Pending] = []
        for one in verdicts:
            if memory.settings.watchers.log_gate:
                append_or_drop(memory.files, KIND, at | _line(one, mark, watched, exchange, turn))
            unsaid = (
                tuple(stem for stem in tier2.words(one.topic, TYPICAL_WORDS) if stem not in said) if one.active else ()
            )
            fresh.append(Pending(one.topic, mark, exchange, one.active, unsaid))
        return fresh

    fresh = await run_sync(work)
    again = {one.topic for one in fresh if one.active}  # the newer decision replaces the older one
    kept = [one for one in await _expired(memory, session, exchange) if not (one.active and one.topic in again)]
    await _store(memory, session, [*kept, *fresh])


async def answered(memory: Memory, session: str, topics: TopicSet, answer: WatchedMessage, exchange: int) -> None:
    """Logs the topics that an agent's answer in this exchange used."""
    waiting = await _expired(memory, session, exchange)
    open_ = [one for one in waiting if one.active and one.topic in topics.topics]
    if not open_:
        return

    def which() -> set[str]:
        said = set(similarity(memory, topics).stems(answer.text))
        return {one.topic for one in open_ if used(one.unsaid, said, _files(topics, one.topic), answer.paths)}

    useful = await run_sync(which)
    for one in open_:
        if one.topic in useful:
            await _outcome(memory, session, one, True, "an answer used it")
    if useful:
        await _store(memory, session, [one for one in waiting if not (one.active and one.topic in useful)])


async def switched(memory: Memory, session: str, topic: str, *, on: bool) -> None:
    """Logs the outcome of the stored decisions about a topic that the user reversed by switching the topic."""
    waiting = await _pending(memory, session)
    meant = [one for one in waiting if one.topic == topic and one.active != on]
    for one in meant:
        await _outcome(memory, session, one, on, "the user activated it" if on else "the user deactivated it")
    if meant:
        await _store(memory, session, [one for one in waiting if one not in meant])


def decisions(memory: Memory) -> Iterator[dict[str, Any]]:
    """Yields the decisions, newest first, each with its outcome."""
    outcomes: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in logs.newest_first(memory.files, KIND):
        key = (line.get("session_id"), line.get("topic_name"), line.get("message_hash"))
        if line.get("event") == "gate_outcome":
            outcomes.setdefault(key, line)
        elif line.get("event") == "gate_decision":
            outcome = outcomes.pop(key, None)
            became = {"was_useful": outcome.get("was_useful"), "outcome": outcome.get("why")} if outcome else {}
            yield line | became


def message_hash(message: str) -> str:
    """Returns the id of a message in the log: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(message.encode("utf-8", "replace")).hexdigest()[:16]


def _line(one: Verdict, mark: str, watched: WatchedMessage, exchange: int, turn: int) -> dict[str, Any]:
    return {
        "message_hash": mark,
        "topic_name": one.topic,
        "tier1_matched": bool(one.matches),
        "tier2_score": one.likeness.score,
        "gate_result": one.active,
        "was_useful": None,
        "turn": turn,
        "exchange": exchange,
        "direction": watched.direction,
        "priority": one.about.priority,
        "activation": one.about.activation,
        "way": one.routed.way,
        "decided_by": one.by,
        "why": one.why,
        "threshold": one.threshold,
        "margin": one.margin,
        "value": one.deliberation.value,
        "matched": [f"{match.kind}: {match.said[:LONGEST_SAID]}" for match in one.matches[:5]],
        "digest": one.about.digest[:16],
    }


def _files(topics: TopicSet, name: str) -> tuple[str, ...]:
    topic = topics.topics[name]
    return (topic.path, *(path for path in topic.subscriptions if not path.startswith("[[")))


async def _expired(memory: Memory, session: str, exchange: int) -> list[Pending]:
    """Returns the decisions without an outcome; logs and drops those that have expired."""
    ttl = memory.settings.watchers.topic_ttl
    waiting = await _pending(memory, session)
    over = [one for one in waiting if exchange - one.exchange > ttl]
    for one in over:
        if one.active:
            await _outcome(memory, session, one, False, "nothing of it was used while it was active")
    if not over:
        return waiting
    waiting = [one for one in waiting if one not in over]
    await _store(memory, session, waiting)
    return waiting


async def _pending(memory: Memory, session: str) -> list[Pending]:
    stored = await memory.state.get(NAMESPACE, session)
    return list(validated(tuple[Pending, ...], stored) or ())


async def _store(memory: Memory, session: str, waiting: Sequence[Pending]) -> None:
    kept = [asdict(one) for one in waiting[-MOST_PENDING:]]
    await memory.state.put(NAMESPACE, session, kept, waits=False)  # a crash may lose labels of the log


async def _outcome(memory: Memory, session: str, one: Pending, useful: bool, why: str) -> None:
    if not memory.settings.watchers.log_gate:
        return
    record = {
        "timestamp": second_text(memory.clock()),
        "event": "gate_outcome",
        "session_id": session,
        "message_hash": one.message,
        "topic_name": one.topic,
        "was_useful": useful,
        "why": why,
    }
    await run_sync(append_or_drop, memory.files, KIND, record)


TYPICAL_WORDS = 40
"""Number of a topic's most typical words that are looked for in an answer, to see whether it used the topic."""

LEAST_USED = 3
"""An answer with this many of the typical words used the topic."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision about `topic` whose outcome is not known yet. `message` is the message's hash; `active` says whether
    the topic was activated. `unsaid` are those of the topic's most typical words that the message did not contain."""

    topic: str
    message: str
    exchange: int
    active: bool
    unsaid: tuple[str, ...] = ()


def used(unsaid: Collection[str], answer: Collection[str], files: Iterable[str], touched: Iterable[str]) -> bool:
    """Returns whether an answer used a topic: its tool calls touched a file of the topic, or it contains at least
    LEAST_USED of the `unsaid` words. `answer` are the answer's stems, `files` the topic's files, `touched` the files of
    the tool calls."""
    calls = [path.replace("\\", "/").split("/") for path in touched]
    for file in files:
        steps = file.split("/")
        if file and any(path[-len(steps) :] == steps for path in calls):
            return True
    return len(set(unsaid) & set(answer)) >= LEAST_USED
