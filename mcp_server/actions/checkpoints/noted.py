"""Noted: what a checkpoint says of a conversation beyond its turns, kept up to date as they are said (S3, SPEC §11).

    a turn is on disk → `heard` notes what it settles, opens, closes and touches → state.db
    a checkpoint is made, a context compiled → `noted`

The notes follow from the transcript: what the state does not have is noted from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.core.checkpoints import noted as notes
from mcp_server.core.checkpoints.enrichment import Enrichment, merged
from mcp_server.core.checkpoints.noted import Noted
from mcp_server.core.checkpoints.open_items import after, found_in
from mcp_server.core.model import Turn
from mcp_server.memory import Memory

NAMESPACE = "checkpoint"
"""Namespace of the state: session → its notes."""

QUICK = 5_000
"""Characters that are looked through in less time than a thread takes to begin."""


async def heard(memory: Memory, session: str, turns: Sequence[Turn]) -> None:
    """Notes turns that were just recorded, oldest first. Call it under the transcript's lock.

    A turn counts once, whoever calls; turns that were recorded and not noted (a crash came between) are noted now.
    """
    if not turns:
        return
    before = notes.from_dict(await memory.state.get(NAMESPACE, session))
    if turns[-1].number <= before.turn:
        return
    if turns[0].number > before.turn + 1:
        turns = await sessions.session_turns(memory, session)
    new = await _after(before, turns)
    await memory.state.put(NAMESPACE, session, new.as_dict(), waits=False)  # the transcript has it all


async def noted(memory: Memory, session: str, until: int | None = None) -> Noted:
    """The notes of a session as of its last turn, or of turn number `until`. Raises NotFound."""
    row = await sessions.require(memory, session)
    last = row.turns if until is None else min(until, row.turns)
    before = notes.from_dict(await memory.state.get(NAMESPACE, row.session))
    if before.turn == last:
        return before
    turns = [turn for turn in await sessions.turns_of(memory, row) if turn.number <= last]
    return await _after(Noted() if before.turn > last else before, turns)


async def learn(memory: Memory, session: str, turn: int, said: Enrichment) -> None:
    """What an LLM made of the notes as they were after turn number `turn` counts from now on; what was done since stays
    done."""
    async with memory.locks.transcript(session):
        stored = await memory.state.get(NAMESPACE, session)
        if stored is None:
            return
        before = notes.from_dict(stored)
        since = [one for one in await sessions.session_turns(memory, session) if one.number > turn]

        def learned() -> Noted:
            found = merged(before.decisions, before.open_items, said)
            items = list(found.open_items)
            for one in since:
                items = after(items, found_in(one.role, one.content))
            return replace(before, decisions=found.decisions, open_items=tuple(items))

        await memory.state.put(NAMESPACE, session, (await run_sync(learned)).as_dict())


async def forget(memory: Memory, session: str) -> None:
    """Drops the notes of a session whose transcript was written anew: they are made from there again."""
    await memory.state.remove(NAMESPACE, session)


async def forget_old(memory: Memory) -> int:
    """Drops the notes of sessions that ended long ago; returns how many. They can be made again from the
    transcripts."""
    kept = await memory.state.keys_of(NAMESPACE)
    old = sorted(set(kept) & await sessions.ended_long_ago(memory)) if kept else []
    if old:
        await memory.state.remove(NAMESPACE, *old)
    return len(old)


async def _after(before: Noted, turns: Sequence[Turn]) -> Noted:
    new = [turn for turn in turns if turn.number > before.turn]
    if sum(len(turn.content) for turn in new) <= QUICK:
        return notes.noted(new, before)
    return await run_sync(notes.noted, new, before)
