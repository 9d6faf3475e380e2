"""The live set: the chunks that a session's context consists of now, stored in state.db.

The transcript has what was said, cold storage what left; the live set only has the form of each chunk. If
`.local/state.db` is lost, the live set is made again from both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.observe import ContextChunk
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.relevance.advisor_items import ESTIMATES
from mcp_server.relevance.chunks import GROWTH_WINDOW, ChunkKind, Gauges, LiveChunk, chunk_id, chunks_of
from mcp_server.storage.values import LiveSetCounts
from mcp_server.text.redaction import redact


async def gauges(memory: Memory, session: str, client_tokens: int | None = None) -> Gauges:
    """Returns how full the session's context is. Without `client_tokens` the client's last recent count is used."""
    entered = await memory.live.counts(session)
    if not entered.live + entered.cold:  # the stored set was lost: make it again
        live = sum(chunk.tokens for chunk in await live_set(memory, session) if chunk.form != "cold")
        entered = replace(entered, now=replace(entered.now, live=live))
    return gauges_of(memory, entered, client_tokens)


def gauges_of(memory: Memory, entered: LiveSetCounts, client_tokens: int | None = None) -> Gauges:
    """Returns the gauges of a live set that was just read."""
    said = (client_tokens, entered.now.client, *(one.client for one in reversed(entered.earlier)))
    client = next((tokens for tokens in said if tokens is not None), None)
    return Gauges(entered.now.live, memory.settings.context.limit_tokens, client)


FIRST_LOADED = 1000
"""`part` of the first item that was loaded with a turn: after the turn's own tool calls."""


async def enter(
    memory: Memory,
    session: str,
    turns: Sequence[Turn],
    chunks: Sequence[LiveChunk],
    loaded: Sequence[ContextChunk] = (),
    entries: Mapping[tuple[str, str], Any] = MappingProxyType({}),
) -> LiveSetCounts:
    """Adds turns that were just recorded to the session's live set. Returns how full the set is.

    `chunks` are those of the turns, `loaded` what entered the client's context with the last of them: an item that was
    loaded before counts as accessed once more. `entries` are values by namespace and key that the same transaction
    stores. A set that is missing is first made again.
    """
    first, last = turns[0].number, turns[-1]
    before = {chunk.id: chunk for chunk in await memory.live.of(session)} if loaded else {}
    items = [_loaded_chunk(session, last, place, chunk, before) for place, chunk in enumerate(loaded)]
    reading = (memory.clock(), last.context_tokens, GROWTH_WINDOW)
    entered = await memory.live.add(session, first, [*chunks, *items], *reading, entries)
    if entered is None:
        await memory.live.put(session, await _made_again(memory, session))
        entered = await memory.live.add(session, last.number + 1, items, *reading)
        await run_sync(_without_copies, memory, session)
    return entered or await memory.live.counts(session)


def _without_copies(memory: Memory, session: str) -> None:
    """Deletes the cold records of whole chunks: a session that continues is live again."""
    memory.cold.remove_all([record for record in memory.cold.of(session) if record.form == "whole"])


def _loaded_chunk(
    session: str, turn: Turn, place: int, item: ContextChunk, before: Mapping[str, LiveChunk]
) -> LiveChunk:
    """Returns the chunk of an item that a client loaded with `turn`. Without a count of its own it has the estimate of
    its kind. `before` are the chunks of the live set by id."""
    name = redact(item.id).text
    number = chunk_id(session, f"{item.type}:{name}")
    known = before.get(number)
    return LiveChunk(
        id=number,
        kind=item.type,
        turn=turn.number,
        part=FIRST_LOADED + place,
        tokens=item.tokens if item.tokens is not None else ESTIMATES[item.type],
        added=known.added if known else turn.at,
        name=name,
        accesses=known.accesses + 1 if known else 1,
        accessed=turn.at,
        tags=tuple(redact(tag).text for tag in item.tags),
        topics=tuple(redact(topic).text for topic in item.topics),
        mtime=item.mtime,
    )


async def live_set(memory: Memory, session: str) -> list[LiveChunk]:
    """Returns all chunks of a session, cold ones too, oldest first. Writes nothing: a missing set is made again for the
    caller, and stored with the next turn."""
    return await memory.live.of(session) or await _made_again(memory, session)


async def change(memory: Memory, session: str, chunks: Sequence[LiveChunk]) -> None:
    """Replaces chunks of an open session by those with the same ids. A missing set is stored first. Call it under the
    transcript's lock."""
    kept = [] if await memory.live.any_of(session) else await _made_again(memory, session)
    changed = {chunk.id for chunk in chunks}
    await memory.live.put(session, [*(chunk for chunk in kept if chunk.id not in changed), *chunks])


async def holders(memory: Memory, session: str, kinds: Sequence[ChunkKind]) -> list[LiveChunk]:
    """Returns the chunks of some kinds in the context of an open session, without cold ones, oldest first."""
    if await memory.live.any_of(session):
        return await memory.live.of_kinds(session, kinds)
    made = await _made_again(memory, session)
    return [chunk for chunk in made if chunk.form != "cold" and chunk.kind in kinds]


async def _made_again(memory: Memory, session: str) -> list[LiveChunk]:
    """Returns the live set according to transcript and cold storage: a chunk with a record has the record's form."""
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
        for record in records.values():  # items that a client named: no transcript has them
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
