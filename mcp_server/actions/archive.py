"""Archive: at the end of a session what is still live goes to cold storage (S1 "session-end"), and the live set goes.

What stands whole keeps that form in its record: what is said in the session later makes it live again, as it was. These
records are copies: the sealed transcript has every word of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from anyio.to_thread import run_sync

from mcp_server.core.model import Turn
from mcp_server.core.pressure.chunks import text_of
from mcp_server.core.pressure.cold import ColdRecord
from mcp_server.core.text.query import bounded
from mcp_server.memory import Memory


async def archive(memory: Memory, session: str, turns: Sequence[Turn]) -> int:
    """Writes what is live of a session to cold storage; returns how many records. `turns` are all of the session's.
    Call it under the transcript's lock."""
    chunks = await memory.live.of(session)
    if not chunks:
        return 0
    now, knobs = memory.clock(), memory.settings.context
    by_number = {turn.number: turn for turn in turns}
    last = bounded(next((turn.content for turn in reversed(turns) if turn.role == "user"), ""))

    def write() -> int:
        records = []
        for chunk in chunks:
            if chunk.form != "whole":  # its record is there
                continue
            turn = by_number.get(chunk.turn)
            known = turn is not None and chunk.has_text and chunk.part <= len(turn.tool_calls)
            records.append(
                ColdRecord(
                    chunk_id=chunk.id,
                    session_id=session,
                    timestamp=now,
                    content=text_of(turn, chunk.part) if turn is not None and known else "",
                    tokens=chunk.tokens,
                    drop_reason="session_end",
                    relevance_score=0.0,
                    prompt_at_drop=last,
                    recoverable_until=now + timedelta(days=knobs.recoverable_for_days),
                    kind=chunk.kind,
                    turn=chunk.turn,
                    part=chunk.part,
                    name=chunk.name,
                    form="whole",
                )
            )
        memory.cold.put_all(records, copies=True)
        return len(records)

    written = await run_sync(write) if knobs.cold_storage_enabled else 0
    await memory.live.clear(session)
    return written
