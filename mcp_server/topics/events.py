"""Events from outside that activate topics: webhooks and schedules.

An event goes to every open session of its project, or of all projects if it names none. If no session is open, it waits
for the next one. It needs no gate, because the topic's file names it. It never activates a manual topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_of
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.model import GLOBAL, Caller
from mcp_server.storage import topics as activations
from mcp_server.storage.topics import Event
from mcp_server.storage.values import Change
from mcp_server.text.redaction import redact
from mcp_server.topics.activations import Activations, Payload
from mcp_server.topics.topic import Topic, Webhook
from mcp_server.topics.watch import as_fired

LONGEST_PAYLOAD = 8_000
"""Characters kept of an event's content: more would never fit into a topic's budget."""

CUT = "\n[cut: the event sent more]"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The topics that an event activated, and in how many open sessions; if in none, it waits for the next one."""

    topics: tuple[str, ...]
    sessions: int


async def webhook(memory: Memory, source: str, event: str, body: str, project: str | None = None) -> Delivered:
    """Activates the topics that listen to `source` and `event`; `body` is the request's content. On disk when it
    returns.

    Raises:
        NotFound: no topic listens to it.
    """
    topics = await run_sync(memory.topics.read)
    listening = [topic for topic in topics.topics.values() if _listens(topic, source, event)]
    if not listening:
        raise NotFound(f"no topic listens to the webhook {source}/{event} (topics list)")
    now = memory.clock()
    text = await run_sync(_clean, memory, body)
    payload = Payload(f"webhook {source}/{event}", now.isoformat(timespec="seconds"), text)
    events = [Event(topic.name, payload.sender, payload if text else None) for topic in listening]
    reached = await fire(memory, events, project)
    return Delivered(tuple(topic.name for topic in listening), reached or 0)


async def fire(
    memory: Memory, events: Sequence[Event], project: str | None = None, ran: tuple[str, datetime] | None = None
) -> int | None:
    """Delivers events and returns to how many sessions. `ran` is the schedule that they complete. Returns None if
    another process delivered them."""
    await sessions.ready(memory)
    chosen = await project_of(memory, Caller(source="webhook"), project) if project else None
    rows = [row for row in await memory.state.sessions(open_only=True) if row.kind != "subagent"]
    if chosen is not None:
        rows = [row for row in rows if row.project in chosen.keys | {chosen.key}]
    ttl = memory.settings.watchers.topic_ttl
    changes: dict[str, activations.Change] = {}
    for row in rows:
        exchange = await memory.state.count_turns(row.session, "user")
        changes[row.session] = _firing(events, exchange, ttl)
    waits_for = chosen.key if chosen is not None else GLOBAL
    if not await activations.deliver(memory.state, events, changes, waits_for, ran):
        return None
    for session in changes:
        memory.changes.publish(Change("session", None, session))
    return len(changes)


def _firing(events: Sequence[Event], exchange: int, ttl: int) -> activations.Change:
    def how(one: Activations) -> Activations:
        for event in events:
            one = one.fired([as_fired(event, exchange)], exchange, ttl)
        return one

    return how


def _listens(topic: Topic, source: str, event: str) -> bool:
    return topic.activation != "manual" and any(
        isinstance(one, Webhook) and one.source == source and one.event in ("", event) for one in topic.triggers
    )


def _clean(memory: Memory, body: str) -> str:
    """Returns the content without secrets and forgotten text, cut to its maximum."""
    text = memory.forgotten.clean(redact(body).text).strip()
    return text if len(text) <= LONGEST_PAYLOAD else text[:LONGEST_PAYLOAD] + CUT
