"""Cold: what left a session's live context comes back, because somebody asks or because the talk returns to it.

    recover_chunk   by id: into the live context, whole
    find_cold       by words: what could come back
    come_back       by itself, after a user's message: score ≥ keep and the gate open, a few a turn, then immune
    expire          records whose time is over

A chunk that comes back is first live again, then its record goes: a crash in between leaves both, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from mcp_server.actions import pressure, pressure_log, sessions
from mcp_server.actions.anchor import anchored_ids
from mcp_server.actions.checkpoints import named_chunks
from mcp_server.actions.live_set import live_set
from mcp_server.actions.search import SearchRequest, find
from mcp_server.actions.similar import similar
from mcp_server.core.compiler.history import exchanges
from mcp_server.core.model import COMPACTION, Turn
from mcp_server.core.pressure.chunks import LiveChunk
from mcp_server.core.pressure.cold import ColdRecord
from mcp_server.core.scoring.live_chunks import score
from mcp_server.core.text.words import content_words
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.store.changes import Change

IMMUNE = 3
"""Exchanges after its own in which what came back cannot be dropped again."""

MOST_SHARE = 0.10
"""Of the limit: more does not come back by itself in one turn."""

LOOKED_AT = 300
"""Hits of a search among which cold ones are looked for."""

EXPIRED = "cold_expired"


@dataclass(frozen=True, slots=True)
class Recovered:
    """A chunk that came back (`done`), or would. `tokens_added` is what that adds to the live context; `note` says what
    else there is to know. `score` is how well it suits the message, where that was asked."""

    record: ColdRecord
    done: bool
    tokens_added: int
    note: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class ColdFound:
    """A record that suits some words, with the score of the search."""

    record: ColdRecord
    score: float


async def recover_chunk(memory: Memory, chunk_id: str, *, dry_run: bool) -> Recovered:
    """Brings one chunk back into its session's live context, whole; with `dry_run` only says what would come back.

    Raises:
        NotFound: cold storage has no such chunk.
    """
    record = await run_sync(memory.cold.find, chunk_id)
    if dry_run:
        return await _planned(memory, record)
    async with memory.locks.transcript(record.session_id):
        record = await run_sync(memory.cold.find, chunk_id)
        planned = await _planned(memory, record)
        row = await sessions.current_row(memory, record.session_id)
        if row is not None and row.status == "closed":
            if record.form != "whole":
                await run_sync(memory.cold.put, replace(record, form="whole", shown=None, drop_reason="session_end"))
        else:
            turns = await sessions.session_turns(memory, record.session_id)
            await _restore(memory, [record], turns)
    memory.changes.publish(Change("session", None, record.session_id))
    await run_sync(pressure_log.recovered, memory, record, "asked", None, "")
    return replace(planned, done=True)


async def go_cold_again(memory: Memory, record: ColdRecord) -> None:
    """Undoes a recovery: the record is written again, and the chunk stands as it says."""
    async with memory.locks.transcript(record.session_id):
        await run_sync(memory.cold.put, record)
        chunk = await _chunk(memory, record)
        if chunk is not None:
            count = memory.tokens.count
            short = chunk.one_line if record.form == "one line" else await run_sync(count, record.shown or "")
            tokens = record.tokens if record.form == "cold" else short or 0
            await memory.live.put(
                record.session_id, [replace(chunk, form=record.form, shown=record.shown, tokens=tokens, immune=0)]
            )
    memory.changes.publish(Change("session", None, record.session_id))


async def find_cold(memory: Memory, query: str, session: str | None = None, limit: int = 10) -> list[ColdFound]:
    """The cold records that suit `query` best, of one session or of all: what was said is found by the ordinary search,
    what a client only named by its name. What is live, and rests in cold storage only as a copy, is left out."""
    found = await find(
        memory, SearchRequest(query=query, limit=LOOKED_AT, scope="all", session=session, category="conversation")
    )
    by_turn: dict[tuple[str, int], float] = {}
    for hit in found.hits:
        place = hit.passage.session, hit.passage.turn or 0
        by_turn[place] = max(hit.score, by_turn.get(place, 0.0))

    def matching() -> list[ColdFound]:
        asked = set(content_words(query))
        records = memory.cold.of(session) if session is not None else memory.cold.all()
        suiting = []
        for record in records:
            value = by_turn.get((record.session_id, record.turn), 0.0) if record.content else 0.0
            if not record.content and asked:
                value = len(asked & set(content_words(record.name))) / len(asked)
            if value > 0 and record.form != "whole":
                suiting.append(ColdFound(record, value))
        return sorted(suiting, key=lambda one: (-one.score, one.record.session_id, one.record.turn, one.record.part))

    return (await run_sync(matching))[:limit]


async def come_back(
    memory: Memory, session: str, new: Sequence[Turn], turns: Sequence[Turn] | None = None, shortened: int | None = None
) -> list[Recovered]:
    """What returns by itself after a user's message among the turns `new`: what in cold storage is about it, the best
    first, at most `context.auto_recover`; nothing that the client's own compaction took away. Call it under the
    transcript's lock. `turns` are all of the session's, `shortened` counts its chunks that are not whole, if they are
    known."""
    knobs = memory.settings.context
    asks = any(turn.role == "user" for turn in new)
    if not (asks and knobs.cold_storage_enabled and knobs.auto_recover):
        return []
    if not (await memory.live.shortened(session) if shortened is None else shortened):
        return []
    turns = turns or await sessions.session_turns(memory, session)
    chunks = await live_set(memory, session)
    judged = await similar(memory, session, chunks, turns)
    if not judged.gate_open:
        return []
    now, weights = memory.clock(), pressure.weights_of(memory.settings)
    anchored = await anchored_ids(memory, session, chunks)
    found: list[tuple[float, LiveChunk]] = []
    window = max((turn.number for turn in turns if turn.role == "system" and turn.name == COMPACTION), default=0)
    for chunk in chunks:
        if chunk.form != "whole" and chunk.turn > window and chunk.id not in judged.unknown:
            age = (now - (chunk.accessed or chunk.added)).total_seconds() / 3600
            important = chunk.important or chunk.id in anchored
            total = score(judged.scaled.get(chunk.id, 0.0), age, important, weights).total
            if total >= knobs.relevance_keep:
                found.append((total, chunk))
    found.sort(key=lambda pair: (-pair[0], pair[1].turn, pair[1].part))
    back = await _fitting(memory, session, turns, found)
    await _restore(memory, [one.record for one in back], turns)
    for one in back:
        await run_sync(pressure_log.recovered, memory, one.record, "automatic", one.score, judged.query)
    return back


async def _fitting(
    memory: Memory, session: str, turns: Sequence[Turn], found: Sequence[tuple[float, LiveChunk]]
) -> list[Recovered]:
    """Of chunks with their scores, the best first, those that come back: so many and so much as may, and as there is
    room for below compaction. Where there is none, room is made, if what goes for it suits the message less."""
    knobs = memory.settings.context
    most = int(MOST_SHARE * knobs.limit_tokens)
    back: list[Recovered] = []
    for total, chunk in found:
        if len(back) == knobs.auto_recover:
            break
        try:
            record = await run_sync(memory.cold.get, session, chunk.id)
        except NotFound:  # its time was over; search still finds it
            continue
        if record.drop_reason == "wound_back":
            continue
        added = record.tokens - (0 if chunk.form == "cold" else chunk.tokens)
        if added <= most:
            most -= added
            back.append(Recovered(record, True, added, score=total))
    below = int(knobs.compaction_trigger_pct * knobs.limit_tokens) - 1
    live = await memory.live.tokens(session)
    if back and live + sum(one.tokens_added for one in back) > below:
        least = min(one.score or 0.0 for one in back)
        target = max(0, below - sum(one.tokens_added for one in back))
        room = await pressure.plan(memory, session, turns, "compaction", target=target)
        if room.changes and all(one.action == "drop" and one.score < least for one in room.changes):
            live = (await pressure.carry_out(memory, room)).tokens_after
    while back and live + sum(one.tokens_added for one in back) > below:
        back.pop()
    return back


async def expire(memory: Memory) -> int:
    """Deletes the records whose time is over and that no kept checkpoint names; returns how many. All are looked at
    once a day: calling it again that day does nothing."""
    today = memory.clock().date().isoformat()
    if await memory.state.get(EXPIRED, "day") == today:
        return 0

    def clear() -> int:
        expired = expired_records(memory)
        memory.cold.remove_all(expired)
        return len(expired)

    removed = await run_sync(clear)
    await memory.state.put(EXPIRED, "day", today)
    return removed


def expired_records(memory: Memory) -> list[ColdRecord]:
    """The records whose time is over and that no kept checkpoint names."""
    expired = memory.cold.expired(memory.clock())
    named = named_chunks(memory) if expired else frozenset()
    return [record for record in expired if record.chunk_id not in named]


async def _planned(memory: Memory, record: ColdRecord) -> Recovered:
    """What bringing a chunk back would do."""
    row = await sessions.current_row(memory, record.session_id)
    if row is None:
        return Recovered(record, False, 0, "its conversation is not there any more; this is its text")
    if row.status == "closed":
        note = f"its conversation is over: it is live again when something is said in it; {row.path} has every word"
        return Recovered(record, False, 0, note)
    chunk = await _chunk(memory, record)
    if chunk is None or chunk.form == "whole":
        return Recovered(record, False, 0, "it is live, whole")
    added = record.tokens - (0 if chunk.form == "cold" else chunk.tokens)
    mirror = (
        ""
        if row.delivery == "replace"
        else ("it comes back into our mirror; the client keeps its own window: paste what it should see again")
    )
    return Recovered(record, False, added, mirror)


async def _chunk(memory: Memory, record: ColdRecord) -> LiveChunk | None:
    chunks = await live_set(memory, record.session_id)
    return next((chunk for chunk in chunks if chunk.id == record.chunk_id), None)


async def _restore(memory: Memory, records: Sequence[ColdRecord], turns: Sequence[Turn]) -> None:
    """Makes the chunks of `records` whole and live, all in one transaction, and then deletes the records."""
    if not records:
        return
    session = records[0].session_id
    by_id = {record.chunk_id: record for record in records}
    exchange = exchanges(turns)[-1] + 1 if turns else 0
    back = [
        replace(chunk, form="whole", shown=None, tokens=by_id[chunk.id].tokens, immune=exchange + IMMUNE + 1)
        for chunk in await live_set(memory, session)
        if chunk.id in by_id
    ]
    await memory.live.put(session, back)
    await run_sync(memory.cold.remove_all, records)
