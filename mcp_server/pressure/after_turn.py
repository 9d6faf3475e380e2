"""After a turn: what follows when a message is on disk, step by step, under the transcript's lock.

    Clarity hears it → what it settles is noted → it becomes live → curation, compaction → a checkpoint if the
    client's window is full → what it is about comes back from cold storage → notes

The turn is safe by now. A step that fails is told in a note and logged; it never takes the turn back.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from mcp_server.checkpoints import checkpoint, session_state
from mcp_server.errors import ContextManagerError
from mcp_server.knowledge import session_notes
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Turn
from mcp_server.pressure import advisor, cold, pressure
from mcp_server.pressure.advise import QUIET
from mcp_server.pressure.pressure import triggers_of
from mcp_server.relevance import clarity, live_set
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.relevance.gauges import checkpoint_step
from mcp_server.relevance.live_set import gauges_of
from mcp_server.relevance.similar import Seen
from mcp_server.storage.values import SessionRow

STEPS = "checkpoint_steps"
"""Namespace of the state: session → how often a checkpoint was made since its window was last empty."""


async def checkpoint_if_full(memory: Memory, session: str, new: Sequence[Turn]) -> None:
    """Makes a checkpoint if the client's gauge has reached the next step with the turns `new`. Call it under the
    transcript's lock."""
    said = next((turn.context_tokens for turn in reversed(new) if turn.context_tokens is not None), None)
    if said is None:
        return
    step = checkpoint_step(said / memory.settings.context.limit_tokens, triggers_of(memory.settings))
    before = int(await memory.state.get(STEPS, session) or 0)
    if step > before:
        await checkpoint.before(memory, session, "hook", since=new[-1].number)
    if step != before:
        await memory.state.put(STEPS, session, step)


T = TypeVar("T")

log = logging.getLogger(__name__)


async def after_turns(
    memory: Memory, row: SessionRow, turns: Sequence[Turn], loaded: Sequence[LiveChunk] = ()
) -> tuple[str, ...]:
    """Does what follows the `turns` that were just recorded in `row`'s session, oldest first; `loaded` is what else
    entered the client's context with the last one. Returns notes for the answer."""
    notes: list[str] = []

    async def step(what: str, doing: Awaitable[T], otherwise: T) -> T:
        try:
            return await doing
        except Exception as error:  # the turn is recorded, whatever becomes of the rest
            expected = isinstance(error, ContextManagerError)  # its message says enough
            log.warning("%s failed: %s", what, error, exc_info=not expected)
            notes.append(f"the turn is recorded, but {what} failed: {error}")
            return otherwise

    session = row.session
    await step("going on from where it was wound back to", session_state.go_on(memory, session, turns), None)
    await step("Clarity", clarity.heard(memory, session, turns), None)
    await step("noting what it settles", session_notes.heard(memory, session, turns), None)
    entered = await step("keeping the live set", live_set.enter(memory, session, turns, loaded), None)
    if entered is None:
        return tuple(notes)
    seen = Seen(memory, session)
    reliefs = await step("pressure", pressure.relieve(memory, session, turns, entered, seen), [])
    if any(relief.plan.event != "curation" for relief in reliefs) or any(turn.name == COMPACTION for turn in turns):
        await step("pruning what fades", clarity.prune(memory, session, dry_run=False), None)
    await step("making a checkpoint", checkpoint_if_full(memory, session, turns), None)
    shortened = None if reliefs else entered.shortened
    back = await step("recovering", cold.come_back(memory, session, turns, seen, shortened), [])
    told = pressure.notes(memory, row, turns[-1], reliefs, len(back), entered)
    notes += await step("reading the gauges", told, ())
    if gauges_of(memory, entered, turns[-1].context_tokens).advised >= QUIET:
        advice = await step("advice", advisor.note(memory, session, turns[-1].context_tokens), "")
        notes += [advice] if advice else []
    return tuple(notes)
