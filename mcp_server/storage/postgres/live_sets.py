"""Live sets of a team's workspace: the chunks of each open session's context."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from mcp_server.relevance.chunks import ChunkKind, LiveChunk, Standing
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.postgres.state import put_entries, read_entries, storable
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
_ALL: str = f"SELECT {_NAMES} FROM live_chunk WHERE ws = %s AND session = %s ORDER BY turn, part, id"
_INSERT = (
    f"INSERT INTO live_chunk (ws, session, {_NAMES}) VALUES ({', '.join(['%s'] * (len(CHUNK_COLUMNS) + 2))}) "
    "ON CONFLICT (ws, session, id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in CHUNK_COLUMNS if name != "id")
)
_COUNTS: str = (
    "SELECT coalesce(sum(tokens) FILTER (WHERE form <> 'cold'), 0), count(*) FILTER (WHERE form <> 'cold'), "
    "count(*) FILTER (WHERE form = 'cold'), count(*) FILTER (WHERE form <> 'whole') "
    "FROM live_chunk WHERE ws = %s AND session = %s"
)
_ANY: str = "SELECT 1 FROM live_chunk WHERE ws = %s AND session = %s LIMIT 1"


class TeamLiveSets:
    """The live sets of one workspace. Every method is one transaction, or a part of the open unit of work."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, session: str) -> list[LiveChunk]:
        """Returns all chunks of a session, also cold ones, in their order."""
        return [_chunk(row) for row in await self._rows(_ALL, session)]

    async def of_kinds(self, session: str, kinds: Sequence[ChunkKind]) -> list[LiveChunk]:
        """Returns the chunks of these kinds that are not cold, in their order."""
        rows = await self._rows(
            f"SELECT {_NAMES} FROM live_chunk WHERE ws = %s AND session = %s AND form <> 'cold' AND kind = ANY(%s) "
            "ORDER BY turn, part, id",
            session,
            list(kinds),
        )
        return [_chunk(row) for row in rows]

    async def any_of(self, session: str) -> bool:
        """Returns whether a session has a live set."""
        return bool(await self._rows(_ANY, session))

    async def sessions(self) -> list[str]:
        """Returns the sessions that have a live set."""
        rows = await self._rows("SELECT DISTINCT session FROM live_chunk WHERE ws = %s ORDER BY session")
        return [session for (session,) in rows]

    async def whole(self, session: str | None = None) -> frozenset[str]:
        """Returns the ids of the chunks that are whole, of one session or of all."""
        select: str = "SELECT id FROM live_chunk WHERE ws = %s AND form = 'whole'"
        if session is None:
            rows = await self._rows(select)
        else:
            rows = await self._rows(f"{select} AND session = %s", session)
        return frozenset(number for (number,) in rows)

    async def tokens(self, session: str) -> int:
        """Returns the number of live tokens: cold chunks have none."""
        return int((await self._rows(_COUNTS, session))[0][0])

    async def add(
        self,
        session: str,
        turn: int,
        chunks: Sequence[LiveChunk],
        at: datetime,
        client: int | None,
        keep: timedelta,
        entries: Mapping[tuple[str, str], Any] = MappingProxyType({}),
    ) -> LiveSetCounts | None:
        """Adds the chunks of turn number `turn`, and notes the gauges; earlier readings are kept for `keep`. Returns
        None, and adds no chunk, if the set does not hold the turn before.

        `entries` are values by namespace and key that the same transaction stores, in either case.
        """
        rows = self._values(session, chunks)

        def write(connection: Connection) -> LiveSetCounts | None:
            put_entries(connection, self._ws, entries)
            last = connection.execute(
                "SELECT coalesce(max(turn), 0) FROM live_chunk WHERE ws = %s AND session = %s "
                "AND kind IN ('message', 'tool')",
                (self._ws, session),
            ).fetchone()
            if last is None or last[0] < turn - 1:
                return None
            _insert(connection, rows)
            counted = connection.execute(_COUNTS, (self._ws, session)).fetchone()
            assert counted is not None
            tokens, live, cold, shortened = counted
            now, before = Reading(at, int(tokens), client), self._readings(connection, session)
            kept = [one for one in before[:-1] if timedelta() <= at - one.at <= keep] + before[-1:]
            listed = [[moment_text(one.at), one.live, one.client] for one in [*kept[-MOST_READINGS:], now]]
            put_entries(connection, self._ws, {(READINGS, session): listed})
            return LiveSetCounts(now, tuple(kept), int(live), int(cold), int(shortened))

        return await self._database.call(write)

    async def readings(self, session: str) -> list[Reading]:
        """Returns the last gauge readings, oldest first."""
        return await self._database.call(lambda connection: self._readings(connection, session))

    async def counts(self, session: str) -> LiveSetCounts:
        """Returns the readings and counts of the live set as it is now."""

        def ask(connection: Connection) -> LiveSetCounts:
            counted = connection.execute(_COUNTS, (self._ws, session)).fetchone()
            assert counted is not None
            tokens, live, cold, shortened = counted
            *earlier, last = self._readings(connection, session) or [Reading(datetime.fromtimestamp(0, UTC), 0)]
            now = Reading(last.at, int(tokens), last.client)
            return LiveSetCounts(now, tuple(earlier), int(live), int(cold), int(shortened))

        return await self._database.call(ask)

    async def shortened_chunks(self, session: str) -> list[Standing] | None:
        """Returns the chunks of a session that are not whole, in their order; None if it has no live set."""

        def ask(connection: Connection) -> list[Standing] | None:
            if connection.execute(_ANY, (self._ws, session)).fetchone() is None:
                return None
            rows = connection.execute(
                "SELECT id, kind, turn, part, form, shown, name FROM live_chunk WHERE ws = %s AND session = %s "
                "AND form <> 'whole' ORDER BY turn, part, id",
                (self._ws, session),
            )
            return [Standing(*row) for row in rows]

        return await self._database.call(ask)

    async def cold_turns(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """Returns the id of the cold chunk of each of these turns (session, number); other turns are left out."""
        asked = list(dict.fromkeys(places))
        if not asked:
            return {}
        rows = await self._database.call(
            lambda connection: connection.execute(
                "SELECT c.session, c.turn, c.id FROM unnest(%s::text[], %s::bigint[]) AS p (session, turn) "
                "JOIN live_chunk c ON c.ws = %s AND c.session = p.session AND c.turn = p.turn "
                "WHERE c.part = 0 AND c.form = 'cold'",
                ([session for session, _ in asked], [turn for _, turn in asked], self._ws),
            ).fetchall()
        )
        return {(session, turn): number for session, turn, number in rows}

    async def knows(self, chunk_id: str) -> bool:
        """Returns whether any session has a chunk of this id."""
        return bool(await self._rows("SELECT 1 FROM live_chunk WHERE ws = %s AND id = %s LIMIT 1", chunk_id))

    async def put(self, session: str, chunks: Iterable[LiveChunk]) -> None:
        """Adds chunks, or replaces those with the same ids, in one transaction."""
        rows = self._values(session, chunks)
        if rows:
            await self._database.call(lambda connection: _insert(connection, rows))

    async def clear(self, session: str) -> None:
        """Deletes the live set of a session that has ended."""

        def write(connection: Connection) -> None:
            connection.execute("DELETE FROM live_chunk WHERE ws = %s AND session = %s", (self._ws, session))
            put_entries(connection, self._ws, {(READINGS, session): None, (STEPS, session): None})

        await self._database.call(write)

    async def read_state(self, session: str, places: Sequence[Place]) -> SessionState:
        """Returns the session's live chunks and the entries at these places."""

        def ask(connection: Connection) -> SessionState:
            entries: dict[str, dict[str, Any]] = {}
            stored = read_entries(connection, self._ws, places)
            for namespace, key in places:
                if (namespace, key) in stored:
                    entries.setdefault(namespace, {})[key] = stored[namespace, key]
            return SessionState(entries, rows=tuple(connection.execute(_ALL, (self._ws, session)).fetchall()))

        return await self._database.call(ask)

    async def replace_state(
        self,
        session: str,
        places: Sequence[Place],
        entries: Mapping[str, Mapping[str, Any]],
        chunks: Sequence[LiveChunk],
    ) -> None:
        """Replaces the live chunks and the entries at these places, in one transaction. Missing entries are deleted."""

        def write(connection: Connection) -> None:
            put_entries(connection, self._ws, {(name, key): entries.get(name, {}).get(key) for name, key in places})
            connection.execute("DELETE FROM live_chunk WHERE ws = %s AND session = %s", (self._ws, session))
            _insert(connection, self._values(session, chunks))

        await self._database.call(write)

    @property
    def _ws(self) -> int:
        return self._database.ws

    async def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._database.call(
            lambda connection: connection.execute(statement, (self._ws, *values)).fetchall()
        )

    def _values(self, session: str, chunks: Iterable[LiveChunk]) -> list[tuple[Any, ...]]:
        return [
            (self._ws, session, *(storable(one) if isinstance(one, str) else one for one in values_of(chunk)))
            for chunk in chunks
        ]

    def _readings(self, connection: Connection, session: str) -> list[Reading]:
        listed = read_entries(connection, self._ws, [(READINGS, session)]).get((READINGS, session)) or ()
        return [Reading(datetime.fromisoformat(at), live, client) for at, live, client in listed]


def _insert(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        connection.cursor().executemany(_INSERT, rows)


def _chunk(row: tuple[Any, ...]) -> LiveChunk:
    return chunk_of(dict(zip(CHUNK_COLUMNS, row, strict=True)))
