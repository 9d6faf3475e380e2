"""The live set: which pieces a session's context is made of now, kept beside its transcript.

The transcript is the truth about what was said, cold storage about what left; the live set only says what is where. It
is lost with `.local/state.db` and then made again from both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.pressure.advisor_items import ESTIMATES, ItemType
from mcp_server.relevance.chunks import ChunkKind, LiveChunk, chunk_id, chunks_of
from mcp_server.relevance.gauges import GROWTH_WINDOW, Gauges
from mcp_server.storage.live_values import LiveSetCounts


async def gauges(memory: Memory, session: str, client_tokens: int | None = None) -> Gauges:
    """How full the session's context is. Without `client_tokens`: what the client said last, if that is not old."""
    entered = await memory.live.counts(session)
    if not entered.live + entered.cold:  # a set that was lost holds what it held
        live = sum(chunk.tokens for chunk in await live_set(memory, session) if chunk.form != "cold")
        entered = replace(entered, now=replace(entered.now, live=live))
    return gauges_of(memory, entered, client_tokens)


def gauges_of(memory: Memory, entered: LiveSetCounts, client_tokens: int | None = None) -> Gauges:
    """As `gauges`, of a live set that was just looked at."""
    said = (client_tokens, entered.now.client, *(one.client for one in reversed(entered.earlier)))
    client = next((tokens for tokens in said if tokens is not None), None)
    return Gauges(entered.now.live, memory.settings.context.limit_tokens, client)


QUICK = 5_000
"""Characters that are counted in less time than a thread takes to begin."""

FIRST_LOADED = 1000
"""`part` of the first thing that was loaded with a turn: behind the turn's own tool calls."""


async def enter(memory: Memory, session: str, turns: Sequence[Turn], loaded: Sequence[LiveChunk] = ()) -> LiveSetCounts:
    """Turns that were just recorded, and what was loaded with the last of them, become live; returns how full that
    makes the set. What was loaded before counts as accessed once more. A set that was lost, or that another version
    never kept, is made again first."""

    def counted() -> list[LiveChunk]:
        return [chunk for turn in turns for chunk in chunks_of(session, turn, memory.tokens.count)]

    quick = memory.tokens.is_loaded and sum(len(turn.content) for turn in turns) <= QUICK
    said = counted() if quick else await run_sync(counted)
    before = {chunk.id: chunk for chunk in await memory.live.of(session)} if loaded else {}
    again = [
        replace(chunk, accesses=before[chunk.id].accesses + 1, added=before[chunk.id].added)
        if chunk.id in before
        else chunk
        for chunk in loaded
    ]
    first, last = turns[0].number, turns[-1]
    reading = (memory.clock(), last.context_tokens, GROWTH_WINDOW)
    entered = await memory.live.add(session, first, [*said, *again], *reading)
    if entered is None:
        await memory.live.put(session, await _made_again(memory, session))
        entered = await memory.live.add(session, last.number + 1, again, *reading)
        await run_sync(_without_copies, memory, session)
    return entered or await memory.live.counts(session)


def _without_copies(memory: Memory, session: str) -> None:
    """A session that goes on is live again: what its end had put away is no longer cold."""
    memory.cold.remove_all([record for record in memory.cold.of(session) if record.form == "whole"])


def loaded_chunk(
    session: str,
    turn: int,
    place: int,
    kind: ItemType,
    name: str,
    at: datetime,
    *,
    tokens: int | None = None,
    tags: tuple[str, ...] = (),
    topics: tuple[str, ...] = (),
    mtime: datetime | None = None,
) -> LiveChunk:
    """A file, skill or agent output that a client says it loaded; without a count of its own it gets S2's estimate."""
    return LiveChunk(
        id=chunk_id(session, f"{kind}:{name}"),
        kind=kind,
        turn=turn,
        part=FIRST_LOADED + place,
        tokens=tokens if tokens is not None else ESTIMATES[kind],
        added=at,
        name=name,
        accessed=at,
        tags=tags,
        topics=topics,
        mtime=mtime,
    )


async def live_set(memory: Memory, session: str) -> list[LiveChunk]:
    """All chunks of an open session, cold ones too, in the order in which they came; as a session that is over left
    them. Writes nothing: a lost set is made again for whoever asks, and kept with the next turn."""
    return await memory.live.of(session) or await _made_again(memory, session)


async def change(memory: Memory, session: str, chunks: Sequence[LiveChunk]) -> None:
    """Puts chunks of an open session in the place of those with the same ids. A set that was lost is kept again first:
    what is changed would be all of it. Call it under the transcript's lock."""
    kept = [] if await memory.live.any_of(session) else await _made_again(memory, session)
    changed = {chunk.id for chunk in chunks}
    await memory.live.put(session, [*(chunk for chunk in kept if chunk.id not in changed), *chunks])


async def holders(memory: Memory, session: str, kinds: Sequence[ChunkKind]) -> list[LiveChunk]:
    """The chunks of some kinds that are in the context of an open session, cold ones left out, as they came."""
    if await memory.live.any_of(session):
        return await memory.live.of_kinds(session, kinds)
    made = await _made_again(memory, session)
    return [chunk for chunk in made if chunk.form != "cold" and chunk.kind in kinds]


async def _made_again(memory: Memory, session: str) -> list[LiveChunk]:
    """The live set by transcript and cold storage: what has a record stands as the record says."""
    turns = await sessions.session_turns(memory, session)
    records = {record.chunk_id: record for record in await run_sync(memory.cold.of, session)}

    def chunks() -> list[LiveChunk]:
        made = []
        for turn in turns:
            for chunk in chunks_of(session, turn, memory.tokens.count):
                record = records.pop(chunk.id, None)
                if record is not None and record.form == "whole":
                    chunk = replace(chunk, immune=record.immune)
                elif record is not None:
                    tokens = chunk.one_line if record.form == "one line" else memory.tokens.count(record.shown or "")
                    cold = record.form == "cold"
                    chunk = replace(
                        chunk, form=record.form, shown=record.shown, tokens=chunk.tokens if cold else tokens or 0
                    )
                made.append(chunk)
        for record in records.values():  # what a client had named: no transcript holds it
            if record.kind in ESTIMATES:
                made.append(
                    LiveChunk(
                        id=record.chunk_id,
                        kind=record.kind,
                        turn=record.turn,
                        part=record.part,
                        tokens=record.tokens,
                        added=record.timestamp,
                        form=record.form,
                        name=record.name,
                    )
                )
        return made

    return await run_sync(chunks)
