"""Cold: what left a session's live context comes back, because somebody asks or because the talk returns to it.

    recover_chunk   by id: into the live context, whole
    find_cold       by words: what could come back
    come_back       by itself, after a user's message: score ≥ keep and the gate open, a few a turn, then immune
    expire          records whose time is over, and what crashes left

What comes back by itself comes for what it says, not for being young: its score counts no recency. A chunk that comes
back is first live again, then its record goes: a crash in between leaves both, and the record of what stands whole in
the live context counts for nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from mcp_server.checkpoints.stored import named_chunks
from mcp_server.context.slots.history import exchanges
from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.knowledge.anchor import anchored_ids
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Turn
from mcp_server.pressure import log, pressure
from mcp_server.pressure.cold_records import ColdRecord
from mcp_server.pressure.put_away import put_away
from mcp_server.relevance.chunks import LiveChunk, score
from mcp_server.relevance.live_set import change, live_set
from mcp_server.relevance.similar import Seen, says_something
from mcp_server.search.search import SearchRequest, find
from mcp_server.storage.values import Change
from mcp_server.text.words import content_words

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
        turns = await sessions.session_turns(memory, record.session_id)
        if await _is_over(memory, record.session_id):
            whole = replace(record, form="whole", shown=None, drop_reason="session_end", immune=_immune(turns))
            await run_sync(memory.cold.put, whole)
        else:
            await _restore(memory, [record], turns)
    memory.changes.publish(Change("session", None, record.session_id))
    await run_sync(log.recovered, memory, record, "asked", None, "")
    return replace(planned, done=True)


async def go_cold_again(memory: Memory, record: ColdRecord) -> None:
    """Undoes a recovery: the record is written again, and the chunk stands as it says."""
    async with memory.locks.transcript(record.session_id):
        await run_sync(memory.cold.put, record)
        chunk = None if await _is_over(memory, record.session_id) else await _chunk(memory, record)
        if chunk is not None:
            count = memory.tokens.count
            short = chunk.one_line if record.form == "one line" else await run_sync(count, record.shown or "")
            tokens = record.tokens if record.form == "cold" else short or 0
            again = replace(chunk, form=record.form, shown=record.shown, tokens=tokens, immune=0)
            await change(memory, record.session_id, [again])
    memory.changes.publish(Change("session", None, record.session_id))


async def find_cold(memory: Memory, query: str, session: str | None = None, limit: int = 10) -> list[ColdFound]:
    """The cold records that suit `query` best, of one session or of all: what was said is found by the ordinary search,
    what a client only named by its name. What stands whole is left out: as a copy at a session's end, or, for all that
    a crash left of it, in a live context."""
    found = await find(
        memory, SearchRequest(query=query, limit=LOOKED_AT, scope="all", session=session, category="conversation")
    )
    by_turn: dict[tuple[str, int], float] = {}
    for hit in found.hits:
        place = hit.passage.session, hit.passage.turn or 0
        by_turn[place] = max(hit.score, by_turn.get(place, 0.0))

    live = await memory.live.whole(session)

    def matching() -> list[ColdFound]:
        asked = set(content_words(query))
        records = memory.cold.of(session) if session is not None else memory.cold.all()
        suiting = []
        for record in records:
            value = by_turn.get((record.session_id, record.turn), 0.0) if record.content else 0.0
            if not record.content and asked:
                value = len(asked & set(content_words(record.name))) / len(asked)
            if value > 0 and record.form != "whole" and record.chunk_id not in live:
                suiting.append(ColdFound(record, value))
        return sorted(suiting, key=lambda one: (-one.score, one.record.session_id, one.record.turn, one.record.part))

    return (await run_sync(matching))[:limit]


async def come_back(
    memory: Memory, session: str, new: Sequence[Turn], seen: Seen | None = None, shortened: int | None = None
) -> list[Recovered]:
    """What returns by itself after a user's message among the turns `new`: what in cold storage is about it, the best
    first, at most `context.auto_recover`; nothing that the client's own compaction took away, and nothing for a message
    that is about nothing ("ok, thanks"). Call it under the transcript's lock. `seen` is what others looked up under the
    same lock, `shortened` counts the session's chunks that are not whole, if that is known."""
    knobs = memory.settings.context
    asks = any(turn.role == "user" and says_something(turn) for turn in new)
    if not (asks and knobs.cold_storage_enabled and knobs.auto_recover):
        return []
    if not (await memory.live.shortened(session) if shortened is None else shortened):
        return []
    seen = seen or Seen(memory, session)
    turns, compared = await seen.turns(), await seen.compared()
    if not compared.gate_open:
        return []
    chunks = await live_set(memory, session)
    weights, suiting = pressure.weights_of(memory.settings), compared.suiting(chunks)
    anchored = await anchored_ids(memory, session, chunks)
    found: list[tuple[float, LiveChunk]] = []
    window = max((turn.number for turn in turns if turn.role == "system" and turn.name == COMPACTION), default=0)
    for chunk in chunks:
        if chunk.form != "whole" and chunk.turn > window and chunk.id in suiting:
            important = chunk.important or chunk.id in anchored
            total = score(suiting[chunk.id], math.inf, important, weights).total
            if total >= knobs.relevance_keep:
                found.append((total, chunk))
    found.sort(key=lambda pair: (-pair[0], -pair[1].turn, pair[1].part))
    back = await _fitting(memory, seen, found)
    await _restore(memory, [one.record for one in back], turns)
    for one in back:
        await run_sync(log.recovered, memory, one.record, "automatic", one.score, compared.query)
    return back


async def _fitting(memory: Memory, seen: Seen, found: Sequence[tuple[float, LiveChunk]]) -> list[Recovered]:
    """Of chunks with their scores, the best first, those that come back: so many and so much as may, and as there is
    room for below compaction. Where there is none, room is made for as many as possible by dropping what suits the
    message less."""
    knobs, session = memory.settings.context, seen.session
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
    while back and live > (target := below - sum(one.tokens_added for one in back)):
        turns, judged = await seen.turns(), await seen.compared()
        room = await pressure.plan(memory, session, turns, "compaction", target=max(0, target), judged=judged)
        least = back[-1].score or 0.0
        if room.tokens_after <= target and all(one.action == "drop" and one.score < least for one in room.changes):
            await pressure.carry_out(memory, room, turns=turns)
            break
        back.pop()
    return back


async def expire(memory: Memory) -> int:
    """Deletes the records whose time is over and that no kept checkpoint names; returns how many. All are looked at
    once a day: calling it again that day does nothing. What a crash cut off is finished too: a session's end, a drop,
    a recovery."""
    today = memory.clock().date().isoformat()
    if await memory.state.get(EXPIRED, "day") == today:
        return 0

    def clear() -> int:
        expired = expired_records(memory)
        memory.cold.remove_all(expired)
        return len(expired)

    removed = await run_sync(clear)
    for session in await memory.live.sessions():
        with contextlib.suppress(ContextManagerError):  # a broken transcript: `status` names it
            async with memory.locks.transcript(session):
                await _mend(memory, session)
    await memory.state.put(EXPIRED, "day", today)
    return removed


async def _mend(memory: Memory, session: str) -> None:
    """Puts away the live set of a session that is over, and the records of what is live and whole all the same."""
    if await _is_over(memory, session):
        await put_away(memory, session, await sessions.session_turns(memory, session))
        return
    live = await memory.live.whole(session)
    left = await run_sync(lambda: [record for record in memory.cold.of(session) if record.chunk_id in live])
    await run_sync(memory.cold.remove_all, left)


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


async def _is_over(memory: Memory, session: str) -> bool:
    """Whether a session has ended: then cold storage alone says how its chunks stand."""
    row = await sessions.current_row(memory, session)
    return row is not None and row.status == "closed"


def _immune(turns: Sequence[Turn]) -> int:
    """The exchange from which on something that comes back now can be dropped again."""
    return (exchanges(turns)[-1] + 1 if turns else 0) + IMMUNE + 1


async def _chunk(memory: Memory, record: ColdRecord) -> LiveChunk | None:
    chunks = await live_set(memory, record.session_id)
    return next((chunk for chunk in chunks if chunk.id == record.chunk_id), None)


async def _restore(memory: Memory, records: Sequence[ColdRecord], turns: Sequence[Turn]) -> None:
    """Makes the chunks of `records` whole and live, all in one transaction, and then deletes the records."""
    if not records:
        return
    session = records[0].session_id
    by_id = {record.chunk_id: record for record in records}
    back = [
        replace(chunk, form="whole", shown=None, tokens=by_id[chunk.id].tokens, immune=_immune(turns))
        for chunk in await live_set(memory, session)
        if chunk.id in by_id
    ]
    await change(memory, session, back)
    await run_sync(memory.cold.remove_all, records)
