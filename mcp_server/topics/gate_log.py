"""Writes `gate.jsonl`: every decision about a topic, and later whether the topic was useful.

A decision is a line with `was_useful: null`. A later line `gate_outcome` says whether an answer used the topic;
`decisions` joins both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from mcp_server.memory import Memory
from mcp_server.storage import logs
from mcp_server.storage.logs import append_or_drop
from mcp_server.storage.topics import TopicSet
from mcp_server.text.yaml import second_text
from mcp_server.topics.similarity import similarity
from mcp_server.topics.topic import WatchedMessage

if TYPE_CHECKING:
    from mcp_server.topics.judge import Verdict

KIND = "gate"
NAMESPACE = "gate"
MOST_PENDING = 30
LONGEST_SAID = 60


async def decided(
    memory: Memory,
    session: str,
    heard: WatchedMessage,
    topics: TopicSet,
    verdicts: Sequence[Verdict],
    exchange: int,
    turn: int,
) -> None:
    """Logs each verdict about a message, and remembers those whose outcome will be known later."""
    mark = message_hash(heard.text)
    at = {"timestamp": second_text(memory.clock()), "event": "gate_decision", "session_id": session}

    def work() -> list[Pending]:
        tier2 = similarity(memory, topics)
        said = set(tier2.stems(heard.text))
        fresh: list[Pending] = []
        for one in verdicts:
            if memory.settings.watchers.log_gate:
                append_or_drop(memory.files, KIND, at | _line(one, mark, heard, exchange, turn))
            unsaid = tuple(stem for stem in tier2.words(one.topic, OWN) if stem not in said) if one.active else ()
            fresh.append(Pending(one.topic, mark, exchange, one.active, unsaid))
        return fresh

    fresh = await run_sync(work)
    waiting = await _expired(memory, session, exchange)
    again = {one.topic for one in fresh if one.active}
    kept = [
        one for one in waiting if not (one.active and one.topic in again)
    ]  # the newer decision replaces the older one
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
    """Logs the outcome of the last decision about a topic that the user activated or deactivated."""
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
    """Returns the log's name of a message: 16 hex digits of its SHA-256."""
    return hashlib.sha256(message.encode("utf-8", "replace")).hexdigest()[:16]


def _line(one: Verdict, mark: str, heard: WatchedMessage, exchange: int, turn: int) -> dict[str, Any]:
    decision = one.decision
    return {
        "message_hash": mark,
        "topic_name": one.topic,
        "tier1_matched": bool(one.matches),
        "tier2_score": decision.likeness.score,
        "gate_result": one.active,
        "was_useful": None,
        "turn": turn,
        "exchange": exchange,
        "direction": heard.direction,
        "priority": one.about.priority,
        "activation": one.about.activation,
        "way": decision.routed.way,
        "decided_by": one.by,
        "why": one.why,
        "threshold": decision.threshold,
        "margin": decision.margin,
        "value": decision.deliberation.value,
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
    found = [pending(one) for one in stored] if isinstance(stored, list) else []
    return [one for one in found if one is not None]


async def _store(memory: Memory, session: str, waiting: Sequence[Pending]) -> None:
    kept = [asdict(one) for one in waiting[-MOST_PENDING:]]
    await memory.state.put(NAMESPACE, session, kept, waits=False)  # a log's labels, no more


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


OWN = 40
"""Words of a topic that an answer can use."""

USED = 3
"""Words of a topic in an answer from which on it used the topic."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A decision without an outcome: of `topic`, for the message of this hash, in this exchange. `active`: it was
    activated. `unsaid` are the topic's most typical words that the message did not contain."""

    topic: str
    message: str
    exchange: int
    active: bool
    unsaid: tuple[str, ...] = ()


def pending(stored: Any) -> Pending | None:
    """Returns the stored value, or None if it cannot be read."""
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
    """Returns whether an answer used a topic: its calls touched a file of the topic, or it has USED of the topic's
    words. `answer` are its stems; `files` those of the topic, `touched` those of its calls."""
    calls = list(touched)
    if any(_same(file, path) for file in files for path in calls):
        return True
    return len(set(unsaid) & set(answer)) >= USED


def _same(file: str, path: str) -> bool:
    """Returns whether a client's path is a file of the workspace."""
    steps, other = file.split("/"), path.replace("\\", "/").split("/")
    return bool(file and path) and other[-len(steps) :] == steps
