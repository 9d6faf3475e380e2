"""The steps after a turn is on disk, and those that close a session, all under the transcript's lock.

    read the session's state → in one thread: Clarity's counts, chunks → one transaction
    → curation, compaction → a checkpoint if the client's window is full → chunks come back from cold storage → notes

A step that fails is logged and becomes a note; the turn stays recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from anyio.to_thread import run_sync

from mcp_server.checkpoints import checkpoint
from mcp_server.checkpoints.kept import end_rewind
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import ContextChunk
from mcp_server.conversations.sessions import AS_OF
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Turn
from mcp_server.pressure import advisor, cold, pressure
from mcp_server.pressure.advisor import QUIET
from mcp_server.relevance import clarity, live_set
from mcp_server.relevance.chunks import CHECKPOINT_PER, LiveChunk, chunks_of, step_of
from mcp_server.relevance.live_set import Lookups, gauges_of
from mcp_server.storage.values import STEPS as CURATED
from mcp_server.storage.values import LiveSetCounts, SessionRow

STEPS = "checkpoint_steps"
"""Namespace of the state: session → the last step of the client's gauge that made a checkpoint."""


async def checkpoint_if_full(memory: Memory, session: str, new: Sequence[Turn]) -> None:
    """Makes a checkpoint if the client's gauge has reached the next step with the turns `new`. Call it under the
    transcript's lock."""
    said = next((turn.context_tokens for turn in reversed(new) if turn.context_tokens is not None), None)
    if said is None:
        return
    knobs = memory.settings.context
    step = step_of(said / knobs.limit_tokens, knobs.compaction_trigger_pct, CHECKPOINT_PER)
    before = int(await memory.state.get(STEPS, session) or 0)
    if step > before:
        await checkpoint.before(memory, session, "full", since=new[-1].number)
    if step != before:
        await memory.state.put(STEPS, session, step)


T = TypeVar("T")
log = logging.getLogger(__name__)


async def after_turn(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], loaded: Sequence[ContextChunk]
) -> tuple[str, ...]:
    """Processes turns that were just recorded in `row`'s session, oldest first. Returns notes for the answer. `loaded`
    are the items that entered the client's context with the last turn. Call it under the transcript's lock."""
    notes: list[str] = []
    session = row.session

    def failed(what: str, error: Exception) -> None:
        expected = isinstance(error, ContextManagerError)  # its message says enough
        log.warning("%s failed: %s", what, error, exc_info=not expected)
        notes.append(f"the turn is recorded, but {what} failed: {error}")

    async def step(what: str, doing: Awaitable[T], otherwise: T) -> T:
        try:
            return await doing
        except Exception as error:  # the turn is recorded, so observe must not fail
            failed(what, error)
            return otherwise

    counts = (clarity.NAMESPACE, f"{clarity.STATE}:{session}")
    places = (counts, (CURATED, session), (AS_OF, session))
    stored = await step("reading the session's state", memory.state.get_all(places), None)
    if stored is not None and stored[-1] is not None:
        await step("ending the rewound state", end_rewind(memory, session, turns), None)
        stored = await step("reading the session's state", memory.state.get_all(places), None)

    def since(number: int) -> Sequence[Turn]:
        """Returns the turns after `number`: more than `turns` if a crash kept some from being processed."""
        return turns if turns[0].number <= number + 1 else sessions.read_turns(memory, row.path)

    def computed() -> tuple[dict[tuple[str, str], Any], list[LiveChunk]]:
        entries: dict[tuple[str, str], Any] = {}
        try:
            if stored is not None and memory.settings.clarity.enabled:
                entries[counts] = clarity.counted(memory, stored[0], since)
        except Exception as error:
            failed("Clarity", error)
        return entries, [chunk for turn in turns for chunk in chunks_of(session, turn, memory.tokens.count)]

    async def entering() -> LiveSetCounts:
        entries, chunks = await run_sync(computed)
        return await live_set.enter(memory, session, turns, chunks, loaded, entries)

    entered = await step("updating the live set", entering(), None)
    if entered is None:
        return tuple(notes)
    lookups = Lookups(memory, session)
    curated = int(stored[1] or 0) if stored is not None else 0
    reliefs = await step("pressure", pressure.relieve(memory, session, turns, entered, lookups, curated), [])
    if any(relief.plan.event != "curation" for relief in reliefs) or any(turn.name == COMPACTION for turn in turns):
        await step("pruning Clarity's items", clarity.prune(memory, session, dry_run=False), None)
    await step("making a checkpoint", checkpoint_if_full(memory, session, turns), None)
    back = []
    if reliefs or entered.shortened:
        back = await step("recovering", cold.come_back(memory, session, turns, lookups), [])
    told = pressure.notes(memory, row, turns[-1], reliefs, len(back), entered)
    notes += await step("reading the gauges", told, ())
    if gauges_of(memory, entered, turns[-1].context_tokens).advised >= QUIET:
        advice = await step("advice", advisor.note(memory, session, turns[-1].context_tokens), "")
        notes += [advice] if advice else []
    return tuple(notes)


async def close_session(memory: Memory, row: SessionRow) -> SessionRow:
    """Closes a session under the caller's lock on its transcript, and returns its new row. Makes a checkpoint, seals
    the transcript, and then moves the live chunks to cold storage."""
    await checkpoint.before(memory, row.session, "end")
    closed = await sessions.seal(memory, row)
    try:
        await cold.put_away(memory, row.session, await sessions.session_turns(memory, row.session))
    except ContextManagerError as error:  # the session is closed anyway
        log.warning("the live context of %s did not go to cold storage: %s", row.session, error)
    return closed
