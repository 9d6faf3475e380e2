"""`gate.jsonl`: every decision about a topic, with S4's fields (§5.5), and what became of it.

A decision is one line with `was_useful: null`; a line `gate_outcome` says it later, by the rule of
`core.watchers.useful`. `decisions` reads both together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from mcp_server.logs import append, written
from mcp_server.memory import Memory
from mcp_server.storage import logs
from mcp_server.storage.topic_files import TopicSet
from mcp_server.topics.gate_review import OWN, Pending, pending, used
from mcp_server.topics.similarity import similarity
from mcp_server.topics.topic import Heard

if TYPE_CHECKING:
    from mcp_server.topics.judge import Verdict

KIND = "gate"
NAMESPACE = "gate"
MOST_PENDING = 30
LONGEST_SAID = 60


async def decided(
    memory: Memory,
    session: str,
    heard: Heard,
    topics: TopicSet,
    verdicts: Sequence[Verdict],
    exchange: int,
    turn: int,
) -> None:
    """One line for each verdict about a message, and a note of those whose use will be known later."""
    mark = message_hash(heard.text)
    at = {"timestamp": written(memory.clock()), "event": "gate_decision", "session_id": session}

    def work() -> list[Pending]:
        tier2 = similarity(memory, topics)
        said = set(tier2.stems(heard.text))
        fresh: list[Pending] = []
        for one in verdicts:
            if memory.settings.watchers.log_gate:
                append(memory, KIND, at | _line(one, mark, heard, exchange, turn))
            unsaid = tuple(stem for stem in tier2.words(one.topic, OWN) if stem not in said) if one.active else ()
            fresh.append(Pending(one.topic, mark, exchange, one.active, unsaid))
        return fresh

    fresh = await run_sync(work)
    waiting = await _expired(memory, session, exchange)
    again = {one.topic for one in fresh if one.active}
    kept = [one for one in waiting if not (one.active and one.topic in again)]  # the newer one stands for both
    await _store(memory, session, [*kept, *fresh])


async def answered(memory: Memory, session: str, topics: TopicSet, answer: Heard, exchange: int) -> None:
    """An agent spoke in this exchange: which of the topics that came in did it use?"""
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
    """The user activated or deactivated a topic: that says what they think of the last decision about it."""
    waiting = await _pending(memory, session)
    meant = [one for one in waiting if one.topic == topic and one.active != on]
    for one in meant:
        await _outcome(memory, session, one, on, "the user activated it" if on else "the user deactivated it")
    if meant:
        await _store(memory, session, [one for one in waiting if one not in meant])


def decisions(memory: Memory) -> Iterator[dict[str, Any]]:
    """The decisions, newest first, each with what became of it."""
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
    """What the log calls a message: 16 hex of its SHA-256."""
    return hashlib.sha256(message.encode("utf-8", "replace")).hexdigest()[:16]


def _line(one: Verdict, mark: str, heard: Heard, exchange: int, turn: int) -> dict[str, Any]:
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
    """What still waits; of those whose life is over the log says so."""
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
    kept = [one.to_json() for one in waiting[-MOST_PENDING:]]
    await memory.state.put(NAMESPACE, session, kept, waits=False)  # a log's labels, no more


async def _outcome(memory: Memory, session: str, one: Pending, useful: bool, why: str) -> None:
    if not memory.settings.watchers.log_gate:
        return
    record = {
        "timestamp": written(memory.clock()),
        "event": "gate_outcome",
        "session_id": session,
        "message_hash": one.message,
        "topic_name": one.topic,
        "was_useful": useful,
        "why": why,
    }
    await run_sync(append, memory, KIND, record)
