"""At the end of a session its live chunks are written to cold storage, and the live set is deleted.

A record says whether the chunk was whole: if the session goes on later, the chunk is live again in that form. The
records are copies: the sealed transcript has the full text.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyio.to_thread import run_sync

from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.pressure.cold_records import ColdRecord
from mcp_server.relevance.chunks import LiveChunk, original_of
from mcp_server.text.words import bounded


async def put_away(memory: Memory, session: str, turns: Sequence[Turn]) -> int:
    """Writes what is live of a session to cold storage; returns how many records. `turns` are all of the session's.
    Call it under the transcript's lock."""
    chunks = await memory.live.of(session)
    if not chunks:
        return 0
    now, knobs = memory.clock(), memory.settings.context
    by_number = {turn.number: turn for turn in turns}
    last = bounded(next((turn.content for turn in reversed(turns) if turn.role == "user"), ""))

    def record(chunk: LiveChunk) -> ColdRecord:
        content = original_of(chunk, by_number.get(chunk.turn)) or ""
        return ColdRecord.of(chunk, session, content, "session_end", now, knobs.recoverable_for_days, prompt=last)

    def write() -> int:
        records = [record(chunk) for chunk in chunks if chunk.form == "whole"]  # of all others the record is there
        memory.cold.put_all(records, copies=True)
        return len(records)

    written = await run_sync(write) if knobs.cold_storage_enabled else 0
    await memory.live.clear(session)
    return written
