"""Live sets: the chunks of each open session's context, in the tables of the state."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import Any

from mcp_server.relevance.chunks import ChunkKind, LiveChunk, Standing
from mcp_server.storage.state import PLACES, State, Tables, Transaction, put_entries, read_entries
from mcp_server.storage.values import (
    CHUNK_COLUMNS,
    MOST_READINGS,
    READINGS,
    STEPS,
    LiveSetCounts,
    Place,
    Reading,
    SessionState,
    chunk_of,
    moment_text,
    values_of,
)

_NAMES = ", ".join(CHUNK_COLUMNS)
_OF = "FROM {live_chunk} WHERE {here}session = ?"
_ORDER = "ORDER BY turn, part, id"
_ALL = f"SELECT {_NAMES} {_OF} {_ORDER}"
_INSERT = (
    f"INSERT INTO {{live_chunk}} ({{ws_}}session, {_NAMES}) VALUES ({{ws}}?, {', '.join('?' * len(CHUNK_COLUMNS))}) "
    "ON CONFLICT ({ws_}session, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in CHUNK_COLUMNS if name != "id")
)
_COUNTS = (
    "SELECT coalesce(sum(tokens) FILTER (WHERE form <> 'cold'), 0), count(*) FILTER (WHERE form <> 'cold'), "
    f"count(*) FILTER (WHERE form = 'cold'), count(*) FILTER (WHERE form <> 'whole') {_OF}"
)
_ANY = f"SELECT 1 {_OF} LIMIT 1"


class LiveSets(Tables):
    """The live sets of one workspace. Every method is one transaction, or a part of the open unit of work."""

    def __init__(self, state: State) -> None:
        super().__init__(state.store, state.dialect)

    async def of(self, session: str) -> list[LiveChunk]:
        """Returns all chunks of a session, also cold ones, in their order."""
        return [_chunk(row) for row in await self.rows(_ALL, session)]

    async def of_kinds(self, session: str, kinds: Sequence[ChunkKind]) -> list[LiveChunk]:
        """Returns the chunks of these kinds that are not cold, in their order."""
        statement = f"SELECT {_NAMES} {_OF} AND form <> 'cold' AND kind {{among}} {_ORDER}"
        return [_chunk(row) for row in await self.rows(statement, session, list(kinds))]

    async def any_of(self, session: str) -> bool:
        return bool(await self.rows(_ANY, session))

    async def sessions(self) -> list[str]:
        rows = await self.rows("SELECT DISTINCT session FROM {live_chunk} WHERE {here}true ORDER BY session")
        return [session for (session,) in rows]

    async def whole(self, session: str | None) -> frozenset[str]:
        """Returns the ids of the chunks that are whole, of one session or of all."""
        statement = "SELECT id FROM {live_chunk} WHERE {here}form = 'whole'"
        given = () if session is None else (session,)
        return frozenset(row[0] for row in await self.rows(statement + (" AND session = ?" if given else ""), *given))

    async def tokens(self, session: str) -> int:
        """Returns the number of live tokens: cold chunks have none."""
        return int(await self.value(_COUNTS, session))

    def add(
        self,
        session: str,
        turn: int,
        chunks: Sequence[LiveChunk],
        at: datetime,
        client: int | None,
        keep: timedelta,
        entries: Mapping[Place, Any] = MappingProxyType({}),
    ) -> Awaitable[LiveSetCounts | None]:
        """Adds the chunks of turn number `turn`, and notes the gauges; earlier readings are kept for `keep`. Returns
        None, and adds no chunk, if the set does not hold the turn before: then it was lost, or never made.

        `entries` are values by namespace and key that the same transaction stores, in either case.
        """
        rows = _rows(session, chunks)

        def write(transaction: Transaction) -> LiveSetCounts | None:
            put_entries(transaction, entries)
            last = f"SELECT coalesce(max(turn), 0) {_OF} AND kind IN ('message', 'tool')"
            if transaction.rows(last, session)[0][0] < turn - 1:
                return None
            transaction.each(_INSERT, rows)
            tokens, live, cold, shortened = transaction.rows(_COUNTS, session)[0]
            now, before = Reading(at, int(tokens), client), _readings(transaction, session)
            kept = [one for one in before[:-1] if timedelta() <= at - one.at <= keep] + before[-1:]
            listed = [[moment_text(one.at), one.live, one.client] for one in [*kept[-MOST_READINGS:], now]]
            put_entries(transaction, {(READINGS, session): listed})
            return LiveSetCounts(now, tuple(kept), live, cold, shortened)

        return self.write(write, waits=False)  # rebuilt from the transcript if lost

    def readings(self, session: str) -> Awaitable[list[Reading]]:
        """Returns the last gauge readings, oldest first."""
        return self.read(lambda transaction: _readings(transaction, session))

    def counts(self, session: str) -> Awaitable[LiveSetCounts]:
        """Returns the readings and counts of the live set as it is now."""

        def ask(transaction: Transaction) -> LiveSetCounts:
            tokens, live, cold, shortened = transaction.rows(_COUNTS, session)[0]
            *earlier, last = _readings(transaction, session) or [Reading(datetime.fromtimestamp(0, UTC), 0)]
            return LiveSetCounts(Reading(last.at, int(tokens), last.client), tuple(earlier), live, cold, shortened)

        return self.read(ask)

    def shortened_chunks(self, session: str) -> Awaitable[list[Standing] | None]:
        """Returns the chunks of a session that are not whole, in their order; None if it has no live set."""
        select = f"SELECT id, kind, turn, part, form, shown, name {_OF} AND form <> 'whole' {_ORDER}"

        def ask(transaction: Transaction) -> list[Standing] | None:
            if not transaction.rows(_ANY, session):
                return None
            return [Standing(*row) for row in transaction.rows(select, session)]

        return self.read(ask)

    async def cold_turns(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """Returns the id of the cold chunk of each of these turns (session, number); other turns are left out."""
        asked = list(dict.fromkeys(places))

        def ask(transaction: Transaction) -> dict[tuple[str, int], str]:
            found: dict[tuple[str, int], str] = {}
            for first in range(0, len(asked), PLACES):
                some = asked[first : first + PLACES]
                these = " OR ".join(["session = ? AND turn = ?"] * len(some))
                statement = f"SELECT session, turn, id FROM {{live_chunk}} WHERE {{here}}({these})"
                rows = transaction.rows(f"{statement} AND part = 0 AND form = 'cold'", *chain(*some))
                found |= {(session, turn): chunk_id for session, turn, chunk_id in rows}
            return found

        return await self.read(ask) if asked else {}

    async def knows(self, chunk_id: str) -> bool:
        return bool(await self.rows("SELECT 1 FROM {live_chunk} WHERE {here}id = ? LIMIT 1", chunk_id))

    async def put(self, session: str, chunks: Iterable[LiveChunk]) -> None:
        """Adds chunks, or replaces those with the same ids, in one transaction."""
        rows = _rows(session, chunks)
        if rows:
            await self.write(lambda transaction: transaction.each(_INSERT, rows))

    def clear(self, session: str) -> Awaitable[None]:
        """Deletes the live set of a session that has ended."""
        return self.replace_state(session, [(READINGS, session), (STEPS, session)], {}, ())

    def read_state(self, session: str, places: Sequence[Place]) -> Awaitable[SessionState]:
        """Returns the session's live chunks and the entries at these places, as of one moment."""

        def ask(transaction: Transaction) -> SessionState:
            entries: dict[str, dict[str, Any]] = {}
            stored = read_entries(transaction, places)
            for namespace, key in places:
                if (namespace, key) in stored:
                    entries.setdefault(namespace, {})[key] = stored[namespace, key]
            return SessionState(entries, rows=tuple(transaction.rows(_ALL, session)))

        return self.read(ask)

    def replace_state(
        self,
        session: str,
        places: Sequence[Place],
        entries: Mapping[str, Mapping[str, Any]],
        chunks: Sequence[LiveChunk],
    ) -> Awaitable[None]:
        """Replaces the live chunks and the entries at these places, in one transaction. Missing entries are deleted."""

        def write(transaction: Transaction) -> None:
            put_entries(transaction, {(name, key): entries.get(name, {}).get(key) for name, key in places})
            transaction.run("DELETE FROM {live_chunk} WHERE {here}session = ?", session)
            transaction.each(_INSERT, _rows(session, chunks))

        return self.write(write)


def _rows(session: str, chunks: Iterable[LiveChunk]) -> list[tuple[Any, ...]]:
    return [(session, *values_of(chunk)) for chunk in chunks]


def _readings(transaction: Transaction, session: str) -> list[Reading]:
    listed = read_entries(transaction, [(READINGS, session)]).get((READINGS, session)) or ()
    return [Reading(datetime.fromisoformat(at), live, client) for at, live, client in listed]


def _chunk(row: tuple[Any, ...]) -> LiveChunk:
    return chunk_of(dict(zip(CHUNK_COLUMNS, row, strict=True)))
