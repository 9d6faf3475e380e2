"""The live set: which pieces a session's context is made of now, kept beside its transcript.

The transcript is the truth about what was said, cold storage about what left; the live set only says what is where. It
is lost with `.local/state.db` and then made again from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.core.advisor.items import ESTIMATES
from mcp_server.core.model import Turn
from mcp_server.core.pressure.chunks import LiveChunk, chunk_id, chunks_of
from mcp_server.memory import Memory

FIRST_LOADED = 1000
"""`part` of the first thing that was loaded with a turn: behind the turn's own tool calls."""


async def enter(memory: Memory, session: str, turn: Turn, loaded: Sequence[LiveChunk]) -> None:
    """A turn and what was loaded with it become live. What was loaded before counts as accessed once more."""
    said = await run_sync(lambda: list(chunks_of(session, turn, memory.tokens.count)))
    before = {chunk.id: chunk for chunk in await memory.live.of(session)} if loaded else {}
    again = [
        replace(chunk, accesses=before[chunk.id].accesses + 1, added=before[chunk.id].added)
        if chunk.id in before
        else chunk
        for chunk in loaded
    ]
    await memory.live.put(session, [*said, *again])


def loaded_chunk(
    session: str,
    turn: int,
    place: int,
    kind: str,
    name: str,
    at: datetime,
    *,
    tokens: int | None = None,
    tags: tuple[str, ...] = (),
    topics: tuple[str, ...] = (),
    mtime: datetime | None = None,
) -> LiveChunk:
    """A file, skill or agent output that a client says it loaded; without a count of its own it gets S2's estimate."""
    kind_known = next(known for known in ESTIMATES if known == kind)
    return LiveChunk(
        id=chunk_id(session, f"{kind}:{name}"),
        kind=kind_known,
        turn=turn,
        part=FIRST_LOADED + place,
        tokens=tokens if tokens is not None else ESTIMATES[kind_known],
        added=at,
        name=name,
        accessed=at,
        tags=tags,
        topics=topics,
        mtime=mtime,
    )


async def live_set(memory: Memory, session: str) -> list[LiveChunk]:
    """All chunks of an open session, cold ones too, in the order in which they came."""
    chunks = await memory.live.of(session)
    if chunks:
        return chunks
    chunks = await _made_again(memory, session)
    await memory.live.put(session, chunks)
    return chunks


async def _made_again(memory: Memory, session: str) -> list[LiveChunk]:
    """The live set by transcript and cold storage: what has a record stands as the record says."""
    turns = await sessions.session_turns(memory, session)
    records = {record.chunk_id: record for record in await run_sync(memory.cold.of, session)}

    def chunks() -> Iterable[LiveChunk]:
        for turn in turns:
            for chunk in chunks_of(session, turn, memory.tokens.count):
                record = records.get(chunk.id)
                if record is None:
                    yield chunk
                else:
                    tokens = memory.tokens.count(record.shown or "") if record.form != "cold" else chunk.tokens
                    yield replace(chunk, form=record.form, shown=record.shown, tokens=tokens)

    return await run_sync(lambda: list(chunks()))
