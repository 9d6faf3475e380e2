"""Keeps the notes of each session in state.db while it goes on: items, touched files, the last tool call.

    a turn is on disk → `added` → state.db
    a checkpoint is made → `noted`, `outcome_of`

Notes that are missing from the state are made again from the transcript.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.checkpoints.enrichment import Enrichment, merged
from mcp_server.conversations import sessions
from mcp_server.knowledge import notes as notes_
from mcp_server.knowledge.notes import Noted, Outcome, Review
from mcp_server.memory import Memory
from mcp_server.model import Turn

NAMESPACE = "checkpoint"
"""Namespace of the state: session → its notes."""


def added(memory: Memory, stored: object, since: Callable[[int], Sequence[Turn]]) -> dict[str, Any]:
    """Returns the stored notes of a session with the turns after their last one, as they are stored. Slow: call it in a
    thread. `since` returns the turns after a number, oldest first."""
    before = notes_.from_dict(stored)
    return notes_.noted(since(before.turn), memory.recognizer(), before).as_dict()


async def noted(memory: Memory, session: str, until: int | None = None) -> Noted:
    """Returns the notes of a session as of its last turn, or of turn number `until`. Raises NotFound."""
    row = await sessions.require(memory, session)
    last = row.turns if until is None else min(until, row.turns)
    before = notes_.from_dict(await memory.state.get(NAMESPACE, row.session))
    if before.turn == last:
        return before
    turns = [turn for turn in await sessions.turns_of(memory, row) if turn.number <= last]
    return await _after(memory, Noted() if before.turn > last else before, turns)


async def outcome_of(memory: Memory, notes: Noted) -> Outcome:
    """Returns the decisions and open items that follow from a session's notes."""
    return await run_sync(lambda: notes_.outcome(notes, memory.recognizer()))


async def learn(memory: Memory, session: str, turn: int, said: Enrichment) -> None:
    """Stores a model's review of the notes, as they were after turn number `turn`."""
    async with memory.locks.transcript(session):
        stored = await memory.state.get(NAMESPACE, session)
        if stored is None:
            return
        before = notes_.from_dict(stored)
        until = await noted(memory, session, turn)
        found = await outcome_of(memory, until)
        both = merged(found.decisions, found.open_items, said)
        after = replace(before, review=Review(turn, both.decisions, both.open_items))
        await memory.state.put(NAMESPACE, session, after.as_dict())


async def forget(memory: Memory, session: str) -> None:
    """Drops the notes of a session whose transcript was rewritten. They are made again when they are needed."""
    await memory.state.remove(NAMESPACE, session)


async def forget_old(memory: Memory) -> int:
    """Drops the notes of sessions that ended long ago and returns how many."""
    kept = await memory.state.keys_of(NAMESPACE)
    old = sorted(set(kept) & await sessions.ended_long_ago(memory)) if kept else []
    if old:
        await memory.state.remove(NAMESPACE, *old)
    return len(old)


async def _after(memory: Memory, before: Noted, turns: Sequence[Turn]) -> Noted:
    return await run_sync(lambda: notes_.noted(turns, memory.recognizer(), before))
