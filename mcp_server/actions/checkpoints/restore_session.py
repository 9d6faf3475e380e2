"""The session's own state of a recovery: live set, Clarity, notes, topics, gauges become what a checkpoint holds.

What was said after it stays in the transcript and goes to cold storage, from where it comes back only if asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.actions.checkpoints.session_state import put_back
from mcp_server.actions.pressure.live_set import live_set
from mcp_server.core.checkpoints.document import Checkpoint
from mcp_server.core.model import Turn
from mcp_server.core.pressure.chunks import LiveChunk, original_of
from mcp_server.core.pressure.cold import ColdRecord, DropReason
from mcp_server.memory import Memory
from mcp_server.store.recovery_intents import RecoveryIntent
from mcp_server.store.session_states import SessionState


async def restore_session(memory: Memory, intent: RecoveryIntent, then: Checkpoint) -> None:
    """The session's own state: first the cold records that it needs, on disk, then all rows in one transaction, then
    the records that it has no use for."""
    session = then.session
    stored = SessionState.from_json(then.state or {})
    there = await live_set(memory, session)
    chunks = stored.chunks or [chunk for chunk in there if chunk.turn <= then.turn]
    known = {chunk.id for chunk in chunks}
    turns = await sessions.session_turns(memory, session)
    by_number = {turn.number: turn for turn in turns}
    later = [chunk for chunk in there if chunk.id not in known and chunk.turn > then.turn]
    hidden = [await run_sync(_cold, memory, one, by_number) for one in later if one.turn <= intent.turns]
    new = [chunk for chunk in later if chunk.turn > intent.turns]
    wanted = [*chunks, *hidden]
    records = {record.chunk_id: record for record in await run_sync(memory.cold.of, session)}

    def kept() -> None:
        missing = [one for one in chunks if one.form != "whole" and not _says(records.get(one.id), one)]
        made = [_record(memory, one, session, by_number, "asked") for one in missing]
        memory.cold.put_all([*made, *(_record(memory, one, session, by_number, "wound_back") for one in hidden)])

    await run_sync(kept)
    await put_back(memory, session, stored, [*wanted, *new], then.turn, intent.turns)
    whole = {one.id for one in wanted if one.form == "whole"}
    stale = [record for number, record in records.items() if number in whole and record.form != "whole"]
    await run_sync(memory.cold.remove_all, stale)


def _cold(memory: Memory, chunk: LiveChunk, turns: Mapping[int, Turn]) -> LiveChunk:
    tokens = chunk.tokens if chunk.form == "whole" else memory.tokens.count(_original(chunk, turns))
    return replace(chunk, form="cold", shown=None, tokens=tokens, immune=0)


def _says(record: ColdRecord | None, chunk: LiveChunk) -> bool:
    return record is not None and record.form == chunk.form and record.shown == chunk.shown


def _record(
    memory: Memory, chunk: LiveChunk, session: str, turns: Mapping[int, Turn], reason: DropReason
) -> ColdRecord:
    original = _original(chunk, turns)
    tokens = memory.tokens.count(original) if original else chunk.tokens
    days = memory.settings.context.recoverable_for_days
    return ColdRecord.of(chunk, session, original, reason, memory.clock(), days, tokens=tokens)


def _original(chunk: LiveChunk, turns: Mapping[int, Turn]) -> str:
    """What a chunk says; nothing for what a client only named."""
    return original_of(chunk, turns.get(chunk.turn)) or ""
