"""Watch: which topics does what was just said bring in, and what is an agent told about its last answer? (S4 §4, §5)

    tier 1: triggers → tiers 2 and 3: `judge` → activations and corrections, stored → the compiler shows them

It comes after a turn is on disk and outside its lock, since the gate may ask an LLM.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyio import move_on_after
from anyio.to_thread import run_sync

from mcp_server.actions.projects import project_of
from mcp_server.actions.watching import gate_log, judge
from mcp_server.actions.watching.senses import watchers
from mcp_server.core.model import COMPACTION, Caller, Turn
from mcp_server.core.source_keys import content_sha
from mcp_server.core.text.fencing import neutralise
from mcp_server.core.text.query import bounded
from mcp_server.core.topics import Heard, Match, Mention
from mcp_server.core.watchers.activations import Activation, Activations, Correction, fingerprint
from mcp_server.core.watchers.patterns import Tier1
from mcp_server.memory import Memory
from mcp_server.store import activations
from mcp_server.store.activations import Event, Standing
from mcp_server.store.changes import Change
from mcp_server.store.state import SessionRow
from mcp_server.store.topic_files import TopicSet

log = logging.getLogger(__name__)

ALL_PATTERNS = 5
"""All patterns together may take so many times what one may."""

AHEAD_SECONDS = 0.6
"""What the gate may take while a prompt waits."""

LONGEST_WATCHED = 20_000
"""Characters of a message that are watched, at its beginning and its end: a turn may not wait for a book."""

LONGEST_SHOWN = 60
"""Characters that are shown of what a trigger matched."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What a message brings in: the topics that come in, and the corrections that it earns."""

    topics: tuple[Activation, ...] = ()
    corrections: tuple[Correction, ...] = ()


async def heard(memory: Memory, row: SessionRow, turns: Sequence[Turn], loaded: Sequence[str] = ()) -> tuple[str, ...]:
    """Judges the turns that were just recorded in `row`'s session, oldest first; `loaded` are files that entered the
    client's context with the last. Returns notes for the answer; what goes wrong is one of them, and never raised."""
    try:
        return await _heard(memory, row, turns, loaded)
    except Exception as error:  # the turn is recorded, whatever becomes of the rest
        log.warning("watching for topics failed: %s", error, exc_info=True)
        return (f"the turn is recorded, but watching for topics failed: {error}",)


@dataclass(frozen=True, slots=True)
class Seen:
    """What tier 1 sees in a message, among the topics that there are at this moment."""

    message: Heard
    topics: TopicSet
    tier1: Tier1


def look(memory: Memory, prompt: str) -> Seen:
    """Tier 1 for a prompt. It reads files and counts: call it in a thread."""
    message = Heard(bounded(prompt, LONGEST_WATCHED))
    topics = memory.topics.read()
    return Seen(message, topics, first_tier(memory, topics, message) if topics.topics else Tier1())


async def ahead(memory: Memory, session: str, prompt: str, seen: Seen) -> tuple[TopicSet, Standing]:
    """Judges a prompt that a client's hook tells of before its transcript does; returns the topics, and where the
    session stands then. The turn is not judged again when it is recorded, unless an LLM took longer than a prompt can
    wait: then arithmetic decides, until it is."""
    message, topics, tier1 = seen.message, seen.topics, seen.tier1
    if not topics.topics:
        return topics, Standing()
    standing = await activations.standing(memory.state, session)
    stored = standing.active
    if fingerprint(prompt) in stored.ahead or standing.last == ("user", content_sha(prompt)):
        return topics, standing
    ttl = memory.settings.watchers.topic_ttl
    exchange = 1 + standing.exchanges
    judged = None
    with move_on_after(AHEAD_SECONDS):
        judged = await judge_message(memory, session, message, topics, stored, exchange, known=tier1)
    late = judged is None
    found = judged or await judge_message(memory, session, message, topics, stored, exchange, known=tier1, quiet=True)

    def change(one: Activations) -> Activations:
        one = one.fired(found.topics, exchange, ttl)
        return one if late else one.judged_ahead(prompt)

    _, after = await activations.change(memory.state, session, change, waits=False)
    return topics, replace(standing, active=after)


async def judge_message(
    memory: Memory,
    session: str,
    message: Heard,
    topics: TopicSet,
    stored: Activations,
    exchange: int,
    *,
    turn: int = 0,
    known: Tier1 | None = None,
    quiet: bool = False,
) -> Judged:
    """What a message brings in at this exchange; turn `turn` of an agent is what corrections are about. `known` is
    tier 1 of whoever has it already. `quiet`: only somebody asks, so no LLM is called and nothing is logged."""
    tier1 = await run_sync(first_tier, memory, topics, message) if known is None else known
    if tier1.troubles:
        await _keep_troubles(memory, topics, tier1)
    verdicts = await judge.judge(
        memory, session, message, topics, tier1, leave_out=stored.off, quiet=quiet, exchange=exchange, turn=turn
    )
    came = {verdict.topic: verdict for verdict in verdicts if verdict.active}
    fired = tuple(
        Activation(
            name,
            exchange,
            said_by(tier1.matches.get(name, ()), verdict.score),
            verdict.score,
            people=_people(tier1.matches.get(name, ())),
        )
        for name, verdict in came.items()
    )
    wrong = (
        Correction(match.topic, match.correction, turn)
        for name in came
        for match in tier1.matches.get(name, ())
        if match.correction and message.direction == "output"
    )
    return Judged(fired, tuple(dict.fromkeys(wrong)))


def first_tier(memory: Memory, topics: TopicSet, message: Heard) -> Tier1:
    """Tier 1, within the time that the settings allow. It is this thread's own time that counts: a machine that is busy
    with other things must not keep a topic out."""
    seconds = memory.settings.watchers.regex_ms / 1000
    end = time.thread_time() + ALL_PATTERNS * seconds
    return watchers(topics).matches(message, seconds, lambda: end - time.thread_time())


def said_by(matches: Sequence[Match], score: float | None) -> str:
    """What set a topic off, in a few words: `pattern “inbox”`, `likeness 0.31`."""
    if matches:
        said = " ".join(neutralise(matches[0].said).split())
        shown = said if len(said) <= LONGEST_SHOWN else f"{said[: LONGEST_SHOWN - 1]}…"
        return f"{matches[0].kind.replace('_', ' ')} “{shown}”"
    return "likeness" if score is None else f"likeness {score:.2f}"


async def _heard(memory: Memory, row: SessionRow, turns: Sequence[Turn], loaded: Sequence[str]) -> tuple[str, ...]:
    topics = await run_sync(memory.topics.read)
    ttl = memory.settings.watchers.topic_ttl
    exchange = await memory.state.count_turns(row.session, "user")
    before = await activations.of(memory.state, row.session)
    await _take_waiting(memory, row, exchange)
    spoken = [turn for turn in turns if turn.role in ("user", "agent") and turn.name != COMPACTION]
    after = before
    for place, turn in enumerate(spoken):
        at = exchange - sum(later.role == "user" for later in spoken[place + 1 :])
        if exchange - at <= ttl:  # what earlier exchanges brought in has left again
            after = await _heard_one(memory, row, turn, loaded if turn is turns[-1] else (), topics, at)
    after = await activations.of(memory.state, row.session) if not spoken else after
    if after != before:
        memory.changes.publish(Change("session", None, row.session))
    return _notes(before, after, exchange, ttl)


async def _heard_one(
    memory: Memory, row: SessionRow, turn: Turn, loaded: Sequence[str], topics: TopicSet, exchange: int
) -> Activations:
    ttl = memory.settings.watchers.topic_ttl
    stored = await activations.of(memory.state, row.session)
    if turn.role == "user" and stored.ahead and fingerprint(turn.content) in stored.ahead:
        _, after = await activations.change(memory.state, row.session, lambda one: one.recorded(turn.content))
        return after
    paths = dict.fromkeys([file for call in turn.tool_calls for file in call.files] + list(loaded))
    said = bounded(turn.content, LONGEST_WATCHED)
    message = Heard(said, "output" if turn.role == "agent" else "input", tuple(paths))
    judged = Judged()
    if turn.role == "agent":
        await gate_log.answered(memory, row.session, topics, message, exchange)
    if topics.topics:
        judged = await judge_message(memory, row.session, message, topics, stored, exchange, turn=turn.number)

    corrected = turn.role == "agent" and (judged.corrections or stored.corrections)
    if not judged.topics and not corrected:
        return stored

    def change(one: Activations) -> Activations:
        one = one.fired(judged.topics, exchange, ttl)
        return one.answered(turn.number, judged.corrections) if turn.role == "agent" else one

    _, after = await activations.change(memory.state, row.session, change)
    return after


async def _take_waiting(memory: Memory, row: SessionRow, exchange: int) -> None:
    """Events that no conversation was open for come into this one, if it is of their project."""
    if row.kind == "subagent":
        return
    ttl = memory.settings.watchers.topic_ttl
    keys = (await project_of(memory, Caller(), row.project or "global")).keys

    def how(events: list[Event]) -> activations.Change:
        return lambda one: one.fired([as_fired(event, exchange) for event in events], exchange, ttl)

    await activations.take(memory.state, row.session, sorted({row.project, *keys} - {""}), how)


def as_fired(event: Event, exchange: int) -> Activation:
    """What an event from outside makes of its topic."""
    return Activation(event.topic, exchange, event.by, payloads=(event.payload,) if event.payload else ())


async def _keep_troubles(memory: Memory, topics: TopicSet, tier1: Tier1) -> None:
    """Remembers which pattern was cut off, for whoever asks how the topics are."""
    for trouble in filter(lambda one: one.fault, tier1.troubles):
        digest = topics.topics[trouble.topic].digest
        known = await memory.state.get(activations.CUT_OFF, trouble.topic)
        record = {"digest": digest, "line": trouble.line, "what": trouble.what}
        if known != record:
            await memory.state.put(activations.CUT_OFF, trouble.topic, record, waits=False)
        log.warning("%s: line %d: %s", topics.topics[trouble.topic].path, trouble.line, trouble.what)


def _people(matches: Sequence[Match]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.said.lstrip("@") for one in matches if isinstance(one.trigger, Mention)))


def _notes(before: Activations, after: Activations, exchange: int, ttl: int) -> tuple[str, ...]:
    """One line about what came in, one for each new correction."""
    known = before.living(exchange, ttl)
    new = [one for name, one in after.living(exchange, ttl).items() if name not in known]
    lines = [f"topics now active: {', '.join(f'{one.name} ({one.by})' for one in new)}"] if new else []
    for one in after.corrections:
        if one not in before.corrections:
            lines.append(f"correction ({one.topic}): {' '.join(neutralise(one.hint).split())}")
    return tuple(lines)
