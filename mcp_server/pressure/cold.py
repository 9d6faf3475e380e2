"""Cold storage of a session: finds chunks that left the live context, and brings them back.

A chunk is brought back by its id, after a search, or automatically after a user's message that is about it.

A recovered chunk is first made live, then its record is deleted. A crash in between leaves both; records of chunks that
are live and whole are ignored.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints.stored import named_chunks
from mcp_server.context.slots.session import exchanges
from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.knowledge.anchor import anchored_ids
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Turn
from mcp_server.pressure import pressure
from mcp_server.pressure.health import log_recovery
from mcp_server.relevance.chunks import ColdRecord, LiveChunk, original_of, score
from mcp_server.relevance.live_set import Lookups, change, live_set, says_something
from mcp_server.search.search import SearchRequest, find
from mcp_server.storage.values import Change
from mcp_server.text.words import bounded, content_words

IMMUNE = 3  # number of exchanges in which a recovered chunk cannot be dropped again
MAX_RECOVERED_SHARE = 0.10  # share of the limit that can come back automatically in one turn
MAX_HITS = 300  # search hits among which cold chunks are looked for
EXPIRED = "cold_expired"


@dataclass(frozen=True, slots=True)
class Recovered:
    """A chunk that came back (`done`) or would. `tokens_added` is the growth of the live context, `score` the match
    with the message if the recovery was automatic."""

    record: ColdRecord
    done: bool
    tokens_added: int
    note: str = ""
    score: float | None = None


async def recover_chunk(memory: Memory, chunk_id: str, *, dry_run: bool) -> Recovered:
    """Makes a chunk whole again in its session's live context; with `dry_run` only returns what would change. Raises
    NotFound if cold storage has no such chunk."""
    record = await run_sync(memory.cold.find, chunk_id)
    if dry_run:
        return await _planned(memory, record)
    async with memory.locks.transcript(record.session_id):
        record = await run_sync(memory.cold.find, chunk_id)
        planned = await _planned(memory, record)
        turns = await sessions.session_turns(memory, record.session_id)
        if await _is_over(memory, record.session_id):
            whole = replace(record, form="whole", shown=None, drop_reason="session_end", immune=_immune(turns))
            await run_sync(memory.cold.put_all, [whole])
        else:
            await _restore(memory, [record], turns)
    memory.changes.publish(Change("session", None, record.session_id))
    await run_sync(log_recovery, memory, record, turns, "asked")
    return replace(planned, done=True)


async def go_cold_again(memory: Memory, record: ColdRecord) -> None:
    """Undoes a recovery: writes the record again and gives the chunk the record's form."""
    async with memory.locks.transcript(record.session_id):
        await run_sync(memory.cold.put_all, [record])
        chunk = None if await _is_over(memory, record.session_id) else await _chunk(memory, record)
        if chunk is not None:
            count = memory.tokens.count
            short = chunk.one_line if record.form == "one line" else await run_sync(count, record.shown or "")
            tokens = record.tokens if record.form == "cold" else short or 0
            again = replace(chunk, form=record.form, shown=record.shown, tokens=tokens, immune=0)
            await change(memory, record.session_id, [again])
    memory.changes.publish(Change("session", None, record.session_id))


async def find_cold(memory: Memory, query: str, session: str | None = None, limit: int = 10) -> list[ColdRecord]:
    """Returns the cold records that match `query` best, of one session or of all. Text is found by the ordinary search,
    items that a client only named by their names. Chunks that are live and whole are left out."""
    found = await find(
        memory, SearchRequest(query=query, limit=MAX_HITS, scope="all", session=session, category="conversation")
    )
    by_turn: dict[tuple[str, int], float] = {}
    for hit in found.hits:
        place = hit.passage.session, hit.passage.turn or 0
        by_turn[place] = max(hit.score, by_turn.get(place, 0.0))
    asked = set(content_words(query))
    suiting: list[tuple[float, ColdRecord]] = []
    for record in await _records(memory, session):
        value = by_turn.get((record.session_id, record.turn), 0.0) if record.content else 0.0
        if not record.content and asked:
            value = len(asked.intersection(content_words(record.name))) / len(asked)
        if value > 0 and record.form != "whole":
            suiting.append((value, record))
    suiting.sort(key=lambda one: (-one[0], one[1].session_id, one[1].turn, one[1].part))
    return [record for _, record in suiting[:limit]]


async def _records(memory: Memory, session: str | None) -> list[ColdRecord]:
    """Returns the records of a session (None: of all), without those of chunks that are live and whole."""
    records = await run_sync(lambda: memory.cold.of(session) if session is not None else list(memory.cold.all()))
    live = await memory.live.whole(session)
    return [record for record in records if record.chunk_id not in live]


async def come_back(memory: Memory, session: str, new: Sequence[Turn], lookups: Lookups) -> list[Recovered]:
    """Brings cold chunks back that a user's message among the turns `new` is about; returns them, best first. At most
    `context.auto_recover` chunks come back. Chunks from before the client's own compaction do not, and a message
    without content words ("ok, thanks") brings none. Call it under the transcript's lock. `lookups` caches what is read
    under that lock."""
    knobs = memory.settings.context
    asks = any(turn.role == "user" and says_something(turn) for turn in new)
    if not (asks and knobs.cold_storage_enabled and knobs.auto_recover):
        return []
    turns, compared = await lookups.turns(), await lookups.compared(alone=True)
    if not compared.gate_open:
        return []
    chunks = await live_set(memory, session)
    suiting = compared.suiting(chunks)
    anchored = await anchored_ids(memory, session, chunks)
    found: list[tuple[float, LiveChunk]] = []
    window = max((turn.number for turn in turns if turn.role == "system" and turn.name == COMPACTION), default=0)
    here = max((suiting.get(chunk.id, 0.0) for chunk in chunks if chunk.form == "whole"), default=0.0)
    for chunk in chunks:
        if chunk.form != "whole" and chunk.turn > window and chunk.id in suiting and suiting[chunk.id] >= here:
            important = chunk.important or chunk.id in anchored
            total = score(suiting[chunk.id], math.inf, important, knobs).total
            if total >= knobs.relevance_keep:
                found.append((total, chunk))
    found.sort(key=lambda pair: (-pair[0], -pair[1].turn, pair[1].part))
    back = await _fitting(memory, lookups, found)
    await _restore(memory, [one.record for one in back], turns)
    for one in back:
        await run_sync(log_recovery, memory, one.record, turns, "automatic", one.score, compared.query)
    return back


async def _fitting(memory: Memory, lookups: Lookups, found: Sequence[tuple[float, LiveChunk]]) -> list[Recovered]:
    """Returns the chunks that come back, of candidates with their scores, best first. They stay within the limits of
    number and size and below the compaction trigger; if there is no room, chunks with lower scores are dropped."""
    knobs, session = memory.settings.context, lookups.session
    most = int(MAX_RECOVERED_SHARE * knobs.limit_tokens)
    back: list[Recovered] = []
    for total, chunk in found:
        if len(back) == knobs.auto_recover:
            break
        try:
            record = await run_sync(memory.cold.find, chunk.id, session)
        except NotFound:  # the record has expired; search still finds the turn
            continue
        if record.drop_reason == "wound_back":
            continue
        added = record.tokens - (0 if chunk.form == "cold" else chunk.tokens)
        if added <= most:
            most -= added
            back.append(Recovered(record, True, added, score=total))
    below = int(knobs.compaction_trigger_pct * knobs.limit_tokens) - 1
    live = await memory.live.tokens(session)
    while back and live > (target := below - sum(one.tokens_added for one in back)):
        room = await pressure.plan(memory, lookups, "compaction", target=max(0, target))
        least = back[-1].score or 0.0
        if room.tokens_after <= target and all(one.action == "drop" and one.score < least for one in room.changes):
            await pressure.carry_out(memory, room, turns=await lookups.turns())
            break
        back.pop()
    return back


async def put_away(memory: Memory, session: str, turns: Sequence[Turn]) -> int:
    """Copies the live chunks of a session that ends to cold storage, and deletes its live set. Returns their number. A
    record says whether its chunk was whole: if the session continues later, the chunk is live again in that form.
    `turns` are all turns of the session. Call it under the transcript's lock."""
    chunks = await memory.live.of(session)
    if not chunks:
        return 0
    now, knobs = memory.clock(), memory.settings.context
    by_number = {turn.number: turn for turn in turns}
    last = bounded(next((turn.content for turn in reversed(turns) if turn.role == "user"), ""))

    def written() -> int:
        records = []
        for chunk in chunks:
            if chunk.form == "whole":  # the others have a record already
                said, days = original_of(chunk, by_number.get(chunk.turn)) or "", knobs.recoverable_for_days
                records.append(ColdRecord.of(chunk, session, said, "session_end", now, days, prompt=last))
        memory.cold.put_all(records, copies=True)
        return len(records)

    count = await run_sync(written) if knobs.cold_storage_enabled else 0
    await memory.live.clear(session)
    return count


async def expire(memory: Memory) -> int:
    """Deletes expired records that no kept checkpoint names, and returns their number. Also finishes what a crash
    interrupted: the end of a session, a drop, a recovery. Does its work once a day."""
    today = memory.clock().date().isoformat()
    if await memory.state.get(EXPIRED, "day") == today:
        return 0
    expired = await run_sync(expired_records, memory)
    await run_sync(memory.cold.remove_all, expired)
    for session in await memory.live.sessions():
        with contextlib.suppress(ContextManagerError):  # a broken transcript: `status` names it
            async with memory.locks.transcript(session):
                await _repair(memory, session)
    await memory.state.put(EXPIRED, "day", today)
    return len(expired)


async def _repair(memory: Memory, session: str) -> None:
    """Puts away the live set of a closed session; of an open one, deletes the records of chunks that are live and
    whole."""
    if await _is_over(memory, session):
        await put_away(memory, session, await sessions.session_turns(memory, session))
        return
    live = await memory.live.whole(session)
    left = await run_sync(lambda: [record for record in memory.cold.of(session) if record.chunk_id in live])
    await run_sync(memory.cold.remove_all, left)


def expired_records(memory: Memory) -> list[ColdRecord]:
    """Returns the expired records that no kept checkpoint names."""
    now = memory.clock()
    expired = [record for record in memory.cold.all() if record.recoverable_until < now]
    named = named_chunks(memory) if expired else frozenset()
    return [record for record in expired if record.chunk_id not in named]


async def _planned(memory: Memory, record: ColdRecord) -> Recovered:
    row = await sessions.current_row(memory, record.session_id)
    chunk = await _chunk(memory, record) if row is not None and row.status != "closed" else None
    added = 0
    if row is None:
        note = "its conversation no longer exists; this is its text"
    elif row.status == "closed":
        note = f"its conversation has ended; the chunk is live again if it continues. {row.path} has all of it"
    elif chunk is None or chunk.form == "whole":
        note = "it is live already, in full length"
    else:
        added = record.tokens - (0 if chunk.form == "cold" else chunk.tokens)
        mirror = "it comes back into the memory's mirror; the client keeps its own window, so paste it there to show it"
        note = "" if row.delivery == "replace" else mirror
    return Recovered(record, False, added, note)


async def _is_over(memory: Memory, session: str) -> bool:
    """Returns whether a session is closed. The chunks of a closed session are only in cold storage."""
    row = await sessions.current_row(memory, session)
    return row is not None and row.status == "closed"


def _immune(turns: Sequence[Turn]) -> int:
    """Returns the first exchange in which a chunk that comes back now can be dropped again."""
    return (exchanges(turns)[-1] + 1 if turns else 0) + IMMUNE + 1


async def _chunk(memory: Memory, record: ColdRecord) -> LiveChunk | None:
    chunks = await live_set(memory, record.session_id)
    return next((chunk for chunk in chunks if chunk.id == record.chunk_id), None)


async def _restore(memory: Memory, records: Sequence[ColdRecord], turns: Sequence[Turn]) -> None:
    """Makes the chunks of `records` whole and live in one transaction, and then deletes the records."""
    if not records:
        return
    session, tokens = records[0].session_id, {record.chunk_id: record.tokens for record in records}
    chunks = [chunk for chunk in await live_set(memory, session) if chunk.id in tokens]
    whole = [replace(one, form="whole", shown=None, tokens=tokens[one.id], immune=_immune(turns)) for one in chunks]
    await change(memory, session, whole)
    await run_sync(memory.cold.remove_all, records)


async def cold_records(memory: Memory, session: str | None = None) -> list[ColdRecord]:
    """Returns the records of a conversation (None: of all), newest first, without those of chunks that are live and
    whole. Raises NotFound if there is no such session."""
    if session is not None:
        await sessions.require(memory, session)
    records = await _records(memory, session)
    return sorted(records, key=lambda record: (record.timestamp, record.turn, record.part), reverse=True)
