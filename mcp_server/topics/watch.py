"""Watch: activates topics for a new turn or an event, and finds corrections of an agent's answer.

    tier 1: triggers → tiers 2 and 3: `judge` → activations and corrections, stored → the compiler shows them

It runs after the turn is on disk, without holding a lock, because the gate may ask an LLM. Events are webhooks and
schedules.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from anyio import move_on_after
from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.projects import project_of
from mcp_server.conversations.source_keys import content_sha
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, GLOBAL, Caller, Turn
from mcp_server.storage import topics as activations
from mcp_server.storage.topics import Event, SessionTopics, TopicSet
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.fencing import neutralise
from mcp_server.text.redaction import redact
from mcp_server.text.words import bounded
from mcp_server.topics import gate_log, judge
from mcp_server.topics.patterns import Tier1, Watchers
from mcp_server.topics.topic import (
    Activations,
    Correction,
    Match,
    Payload,
    Topic,
    TopicActivation,
    Trouble,
    WatchedMessage,
    fingerprint,
)

LONGEST_PAYLOAD = 8_000
"""Characters kept of an event's content: more would never fit into a topic's budget."""

CUT = "\n[cut: the event sent more]"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The topics that an event activated, and in how many open sessions. If no session is open, the event waits for the
    next one."""

    topics: tuple[str, ...]
    sessions: int


async def webhook(memory: Memory, source: str, event: str, body: str, project: str | None = None) -> Delivered:
    """Activates the topics that listen to `source` and `event`; `body` is the request's content. The result is on disk
    when the function returns.

    Raises:
        NotFound: no topic listens to it.
    """
    topics = await run_sync(memory.topics.read)
    listening = [topic for topic in topics.topics.values() if _listens(topic, source, event)]
    if not listening:
        raise NotFound(f"no topic listens to the webhook {source}/{event} (topics list)")
    now = memory.clock()
    text = await run_sync(_clean_payload, memory, body)
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
    """Returns the change that these events make to a session's activations."""
    fired = [
        TopicActivation(event.topic, exchange, event.by, payloads=(event.payload,) if event.payload else ())
        for event in events
    ]
    return lambda one: one.fired(fired, exchange, ttl)


def _listens(topic: Topic, source: str, event: str) -> bool:
    return topic.activation != "manual" and any(
        one.kind == "webhook" and one.match == (source,) and one.event in ("", event) for one in topic.triggers
    )


def _clean_payload(memory: Memory, body: str) -> str:
    """Returns the content without secrets and forgotten text, cut to its maximum."""
    text = memory.forgotten.clean(redact(body).text).strip()
    return text if len(text) <= LONGEST_PAYLOAD else text[:LONGEST_PAYLOAD] + CUT


def watchers(topics: TopicSet) -> Watchers:
    """Returns the indexed triggers of these topics, made once per topic set. Time limits count the processor time of
    this thread, so that a busy machine does not stop a pattern."""

    def made() -> Watchers:
        names = [path.rsplit("/", 1)[-1].removesuffix(".md").replace("-", " ") for path in topics.people]
        people = [name for name in names if not name.startswith("_")]
        return Watchers(topics.topics.values(), people, time.thread_time)

    return topics.derived("watchers", made)


log = logging.getLogger(__name__)

AHEAD_SECONDS = 0.6
"""Seconds that the gate may take while a prompt waits for it."""

LONGEST_WATCHED = 20_000
"""Characters of a message that are read, half from its beginning and half from its end, to limit the time."""

LONGEST_SHOWN = 60
"""Characters shown of the text that a trigger matched."""


@dataclass(frozen=True, slots=True)
class Activated:
    """The topics that a message activates, its corrections, and the patterns that a time limit stopped."""

    topics: tuple[TopicActivation, ...] = ()
    corrections: tuple[Correction, ...] = ()
    troubles: tuple[Trouble, ...] = ()


async def watch_turns(memory: Memory, row: SessionRow, turns: Sequence[Turn], loaded: Sequence[str]) -> tuple[str, ...]:
    """Judges turns that were just recorded in `row`'s session, oldest first, and returns notes for the answer.

    `loaded` are files that entered the client's context with the last turn. An error becomes a note and is not raised.
    """
    try:
        return await _watch_turns(memory, row, turns, loaded)
    except Exception as error:  # the turn is recorded: observe must not fail
        log.warning("watching for topics failed: %s", error, exc_info=True)
        return (f"the turn is recorded, but watching for topics failed: {error}",)


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of tier 1 for a message, and the topics at that moment."""

    message: WatchedMessage
    topics: TopicSet
    tier1: Tier1


def first_tier_of_prompt(memory: Memory, prompt: str, *, retry: bool = False) -> Seen:
    """Runs tier 1 for a prompt, if it has any words. It reads files: call it in a thread."""
    message = WatchedMessage(bounded(prompt, LONGEST_WATCHED))
    topics = memory.topics.read()
    asked = topics.topics and prompt.strip()
    return Seen(message, topics, first_tier(memory, topics, message, retry=retry) if asked else Tier1())


async def judge_prompt(memory: Memory, session: str, prompt: str, seen: Seen) -> tuple[TopicSet, SessionTopics]:
    """Judges a prompt that a client's hook reports before the turn is recorded. Returns the topics and the session's
    activations after it. The recorded turn is judged again only if an LLM took longer than a prompt can wait (the
    arithmetic gate decides until then), or if the time limit skipped a pattern."""
    topics = seen.topics
    if not topics.topics:
        return topics, SessionTopics()
    current = await activations.session_topics(memory.state, session)
    stored = current.active
    role, sha = current.last
    if fingerprint(prompt) in stored.ahead or (role == "user" and sha == content_sha(prompt)):
        return topics, current
    ttl = memory.settings.watchers.topic_ttl
    exchange = 1 + current.exchanges
    judged = None
    with move_on_after(AHEAD_SECONDS):
        judged = await judge_message(memory, session, seen, stored, exchange)
    late = judged is None
    found = judged or await judge_message(memory, session, seen, stored, exchange, quiet=True)

    def change(one: Activations) -> Activations:
        one = one.fired(found.topics, exchange, ttl)
        return one if late or seen.tier1.skipped else one.judged_ahead(prompt)

    _, after = await activations.change(memory.state, session, change, waits=False)
    return topics, replace(current, active=after)


async def judge_message(
    memory: Memory, session: str, seen: Seen, stored: Activations, exchange: int, *, turn: int = 0, quiet: bool = False
) -> Activated:
    """Returns the topics that a message activates at this exchange. Corrections are for the agent's turn `turn`.
    `quiet`: calls no LLM and writes no gate log."""
    message, topics, tier1 = seen.message, seen.topics, seen.tier1
    if tier1.troubles:
        await _keep_troubles(memory, topics, tier1)
    verdicts = await judge.judge(
        memory, session, message, topics, tier1, leave_out=stored.off, quiet=quiet, exchange=exchange, turn=turn
    )
    active = [one for one in verdicts if one.active]
    fired = []
    for one in active:
        people = dict.fromkeys(match.said.lstrip("@") for match in one.matches if match.kind == "mention")
        why = describe_trigger(one.matches, one.score)
        fired.append(TopicActivation(one.topic, exchange, why, one.score, people=tuple(people)))
    wrong = (
        Correction(one.topic, match.correction, turn)
        for one in active
        for match in one.matches
        if match.correction and message.direction == "output"
    )
    return Activated(tuple(fired), tuple(dict.fromkeys(wrong)), tier1.troubles)


def first_tier(memory: Memory, topics: TopicSet, message: WatchedMessage, *, retry: bool = False) -> Tier1:
    """Returns the triggers that fire, within the time limits of the settings. `retry`: skipped patterns are tried once
    more; for use where no prompt waits for the result."""
    seconds = memory.settings.watchers.regex_ms / 1000
    triggers = watchers(topics)
    found = triggers.matches(message, seconds)
    return triggers.retry(message, seconds, found) if retry and found.skipped else found


def describe_trigger(matches: Sequence[Match], score: float | None) -> str:
    """Returns what activated a topic, in a few words: `pattern “inbox”`, `likeness 0.31`."""
    if matches:
        said = " ".join(neutralise(matches[0].said).split())
        shown = said if len(said) <= LONGEST_SHOWN else f"{said[: LONGEST_SHOWN - 1]}…"
        return f"{matches[0].kind.replace('_', ' ')} “{shown}”"
    return "likeness" if score is None else f"likeness {score:.2f}"


async def _watch_turns(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], loaded: Sequence[str]
) -> tuple[str, ...]:
    ttl = memory.settings.watchers.topic_ttl
    current = await activations.session_topics(memory.state, row.session)
    exchange, before = current.exchanges, current.active
    after = await _take_waiting(memory, row, exchange, before) if current.waiting else before
    spoken = [turn for turn in turns if turn.role in ("user", "agent") and turn.name != COMPACTION]
    later = [sum(one.role == "user" for one in spoken[place:]) for place in range(1, len(spoken) + 1)]

    def look() -> tuple[TopicSet, list[tuple[Turn, int, WatchedMessage, Tier1 | None]]]:
        topics = memory.topics.read()
        seen: list[tuple[Turn, int, WatchedMessage, Tier1 | None]] = []
        for turn, since in zip(spoken, later, strict=True):
            if since <= ttl:  # topics that an older turn activates would have expired already
                message = _as_watched(turn, loaded if turn is turns[-1] else ())
                is_needed = topics.topics and not (turn.role == "user" and fingerprint(turn.content) in after.ahead)
                tier1 = first_tier(memory, topics, message, retry=True) if is_needed else None
                seen.append((turn, exchange - since, message, tier1))
        return topics, seen

    topics, seen = await run_sync(look)
    troubles: dict[Trouble, None] = {}
    for turn, at, message, tier1 in seen:
        after, found = await _watch_turn(memory, row, turn, message, topics, at, after, tier1)
        troubles.update(dict.fromkeys(found))
    if after != before:
        memory.changes.publish(Change("session", None, row.session))
    named = (f"{topics.topics[one.topic].path}: line {one.line}: {one.what}" for one in troubles)
    return (*_notes(before, after, exchange, ttl), *(" ".join(neutralise(one).split()) for one in named))


def _as_watched(turn: Turn, loaded: Sequence[str]) -> WatchedMessage:
    """Returns a recorded turn as the triggers see it; `loaded` are the files that entered the context with it."""
    paths = dict.fromkeys([file for call in turn.tool_calls for file in call.files] + list(loaded))
    said = bounded(turn.content, LONGEST_WATCHED)
    return WatchedMessage(said, "output" if turn.role == "agent" else "input", tuple(paths))


async def _watch_turn(
    memory: Memory,
    row: SessionRow,
    turn: Turn,
    message: WatchedMessage,
    topics: TopicSet,
    exchange: int,
    stored: Activations,
    known: Tier1 | None,
) -> tuple[Activations, tuple[Trouble, ...]]:
    """Judges one recorded turn of a session with these activations. Returns its activations after the turn, and the
    patterns that a limit stopped. `known` is the result of tier 1, None if the turn was judged ahead."""
    ttl = memory.settings.watchers.topic_ttl
    if turn.role == "user" and stored.ahead and fingerprint(turn.content) in stored.ahead:
        _, after = await activations.change(memory.state, row.session, lambda one: one.recorded(turn.content))
        return after, ()
    judged = Activated()
    if turn.role == "agent":
        await gate_log.answered(memory, row.session, topics, message, exchange)
    if topics.topics:
        if known is None:
            known = await run_sync(partial(first_tier, memory, topics, message, retry=True))
        seen = Seen(message, topics, known)
        judged = await judge_message(memory, row.session, seen, stored, exchange, turn=turn.number)
    corrected = turn.role == "agent" and (judged.corrections or stored.corrections)
    if not judged.topics and not corrected:
        return stored, judged.troubles

    def change(one: Activations) -> Activations:
        one = one.fired(judged.topics, exchange, ttl)
        return one.answered(turn.number, judged.corrections) if turn.role == "agent" else one

    _, after = await activations.change(memory.state, row.session, change)
    return after, judged.troubles


async def _take_waiting(memory: Memory, row: SessionRow, exchange: int, before: Activations) -> Activations:
    """Adds events that arrived while no conversation of their project was open. Returns the session's activations."""
    if row.kind == "subagent":
        return before
    ttl = memory.settings.watchers.topic_ttl
    keys = (await project_of(memory, Caller(), row.project or "global")).keys
    projects = sorted({row.project, *keys} - {""})
    taken = await activations.take(memory.state, row.session, projects, lambda events: _firing(events, exchange, ttl))
    return (await activations.session_topics(memory.state, row.session)).active if taken else before


async def _keep_troubles(memory: Memory, topics: TopicSet, tier1: Tier1) -> None:
    """Logs the patterns that a limit stopped or skipped, and stores the stopped ones for `topics list`."""
    for trouble in tier1.troubles:
        log.warning("%s: line %d: %s", topics.topics[trouble.topic].path, trouble.line, trouble.what)
        if not trouble.fault:
            continue
        digest = topics.topics[trouble.topic].digest
        known = await memory.state.get(activations.CUT_OFF, trouble.topic)
        record = {"digest": digest, "line": trouble.line, "what": trouble.what}
        if known != record:
            await memory.state.put(activations.CUT_OFF, trouble.topic, record, waits=False)


def _notes(before: Activations, after: Activations, exchange: int, ttl: int) -> tuple[str, ...]:
    """Returns a line about new topics, and one for each new correction."""
    known = before.living(exchange, ttl)
    new = [one for name, one in after.living(exchange, ttl).items() if name not in known]
    lines = [f"topics now active: {', '.join(f'{one.name} ({one.by})' for one in new)}"] if new else []
    for one in after.corrections:
        if one not in before.corrections:
            lines.append(f"correction ({one.topic}): {' '.join(neutralise(one.hint).split())}")
    return tuple(lines)
