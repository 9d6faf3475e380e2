"""Live sets in `state.db`: the chunks of each open session's context."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from mcp_server.relevance.chunks import ChunkKind, LiveChunk, Standing
from mcp_server.storage.local.state import State, entry, put_entries
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

_NAMES, _MARKS = ", ".join(CHUNK_COLUMNS), ", ".join("?" * len(CHUNK_COLUMNS))
ALL = f"SELECT {_NAMES} FROM live_chunks WHERE session = ? ORDER BY turn, part, id"
INSERT = f"INSERT OR REPLACE INTO live_chunks (session, {_NAMES}) VALUES (?, {_MARKS})"
_TOTAL = "SELECT coalesce(sum(tokens), 0) FROM live_chunks WHERE session = ? AND form <> 'cold'"
_COUNTS = (
    "SELECT coalesce(sum(iif(form = 'cold', 0, tokens)), 0), coalesce(sum(form <> 'cold'), 0), "
    "coalesce(sum(form = 'cold'), 0), coalesce(sum(form <> 'whole'), 0) FROM live_chunks WHERE session = ?"
)
_ANY = "SELECT EXISTS (SELECT 1 FROM live_chunks WHERE session = ?)"
_SAID = "kind IN ('message', 'tool')"


class LiveSets:
    """The live sets of a workspace, in `state.db`. Every method is one transaction."""

    def __init__(self, state: State) -> None:
        self._file = state.file

    async def of(self, session: str) -> list[LiveChunk]:
        """Returns all chunks of a session, also cold ones, in their order."""
        return await self._file.read(lambda connection: [_chunk(row) for row in connection.execute(ALL, (session,))])

    async def of_kinds(self, session: str, kinds: Sequence[ChunkKind]) -> list[LiveChunk]:
        """Returns the chunks of these kinds that are not cold, in their order."""
        marks = ", ".join("?" * len(kinds))
        where = f"session = ? AND form <> 'cold' AND kind IN ({marks})"
        select = f"SELECT {_NAMES} FROM live_chunks WHERE {where} ORDER BY turn, part, id"

        def ask(connection: sqlite3.Connection) -> list[LiveChunk]:
            return [_chunk(row) for row in connection.execute(select, (session, *kinds))]

        return await self._file.read(ask)

    async def any_of(self, session: str) -> bool:
        """Returns whether a session has a live set."""
        return await self._file.read(lambda connection: bool(connection.execute(_ANY, (session,)).fetchone()[0]))

    async def sessions(self) -> list[str]:
        """Returns the sessions that have a live set."""
        sql = "SELECT DISTINCT session FROM live_chunks ORDER BY session"
        return await self._file.read(lambda connection: [str(row[0]) for row in connection.execute(sql)])

    async def whole(self, session: str | None = None) -> frozenset[str]:
        """Returns the ids of the chunks that are whole, of one session or of all."""
        sql = "SELECT id FROM live_chunks WHERE form = 'whole'" + (" AND session = ?" if session is not None else "")
        given = () if session is None else (session,)
        return await self._file.read(lambda connection: frozenset(row[0] for row in connection.execute(sql, given)))

    async def tokens(self, session: str) -> int:
        """Returns the number of live tokens: cold chunks have none."""
        return await self._file.read(lambda connection: int(connection.execute(_TOTAL, (session,)).fetchone()[0]))

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
        None, and adds no chunk, if the set does not hold the turn before: then it was lost, or never made.

        `entries` are values by namespace and key that the same transaction stores, in either case.
        """
        rows = _rows(session, chunks)

        def write(connection: sqlite3.Connection) -> LiveSetCounts | None:
            put_entries(connection, entries)
            last = f"SELECT coalesce(max(turn), 0) FROM live_chunks WHERE session = ? AND {_SAID}"
            if connection.execute(last, (session,)).fetchone()[0] < turn - 1:
                return None
            connection.executemany(INSERT, rows)
            tokens, live, cold, shortened = connection.execute(_COUNTS, (session,)).fetchone()
            now, before = Reading(at, int(tokens), client), _readings(connection, session)
            kept = [one for one in before[:-1] if timedelta() <= at - one.at <= keep] + before[-1:]
            listed = [[moment_text(one.at), one.live, one.client] for one in [*kept[-MOST_READINGS:], now]]
            put_entries(connection, {(READINGS, session): listed})
            return LiveSetCounts(now, tuple(kept), int(live), int(cold), int(shortened))

        return await self._file.write(write, waits=False)  # rebuilt from the transcript if lost

    async def readings(self, session: str) -> list[Reading]:
        """Returns the last gauge readings, oldest first."""
        return await self._file.read(lambda connection: _readings(connection, session))

    async def counts(self, session: str) -> LiveSetCounts:
        """Returns the readings and counts of the live set as it is now."""

        def ask(connection: sqlite3.Connection) -> LiveSetCounts:
            tokens, live, cold, shortened = connection.execute(_COUNTS, (session,)).fetchone()
            *earlier, last = _readings(connection, session) or [Reading(datetime.fromtimestamp(0, UTC), 0)]
            now = Reading(last.at, int(tokens), last.client)
            return LiveSetCounts(now, tuple(earlier), int(live), int(cold), int(shortened))

        return await self._file.read(ask)

    async def shortened_chunks(self, session: str) -> list[Standing] | None:
        """Returns the chunks of a session that are not whole, in their order; None if it has no live set."""
        select = (
            "SELECT id, kind, turn, part, form, shown, name FROM live_chunks WHERE session = ? AND form <> 'whole' "
            "ORDER BY turn, part, id"
        )

        def ask(connection: sqlite3.Connection) -> list[Standing] | None:
            if not connection.execute(_ANY, (session,)).fetchone()[0]:
                return None
            return [Standing(*row) for row in connection.execute(select, (session,))]

        return await self._file.read(ask)

    async def cold_turns(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """Returns the id of the cold chunk of each of these turns (session, number); other turns are left out."""
        sql = "SELECT id FROM live_chunks WHERE session = ? AND turn = ? AND part = 0 AND form = 'cold'"
        asked = list(dict.fromkeys(places))

        def ask(connection: sqlite3.Connection) -> dict[tuple[str, int], str]:
            rows = ((place, connection.execute(sql, place).fetchone()) for place in asked)
            return {place: str(row[0]) for place, row in rows if row}

        return await self._file.read(ask) if asked else {}

    async def knows(self, chunk_id: str) -> bool:
        """Returns whether any session has a chunk of this id."""
        found = "SELECT 1 FROM live_chunks WHERE id = ?"
        return await self._file.read(lambda connection: connection.execute(found, (chunk_id,)).fetchone() is not None)

    async def put(self, session: str, chunks: Iterable[LiveChunk]) -> None:
        """Adds chunks, or replaces those with the same ids, in one transaction."""
        rows = _rows(session, chunks)
        if rows:
            await self._file.write(lambda connection: connection.executemany(INSERT, rows) and None)

    async def clear(self, session: str) -> None:
        """Deletes the live set of a session that has ended."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM live_chunks WHERE session = ?", (session,))
            connection.execute("DELETE FROM entries WHERE namespace IN (?, ?) AND key = ?", (READINGS, STEPS, session))

        await self._file.write(write)

    async def read_state(self, session: str, places: Sequence[Place]) -> SessionState:
        """Returns the session's live chunks and the entries at these places, as of one moment."""

        def ask(connection: sqlite3.Connection) -> SessionState:
            entries: dict[str, dict[str, Any]] = {}
            for namespace, key in places:
                if (value := entry(connection, (namespace, key))) is not None:
                    entries.setdefault(namespace, {})[key] = value
            return SessionState(entries, rows=tuple(tuple(row) for row in connection.execute(ALL, (session,))))

        return await self._file.read(ask)

    async def replace_state(
        self,
        session: str,
        places: Sequence[Place],
        entries: Mapping[str, Mapping[str, Any]],
        chunks: Sequence[LiveChunk],
    ) -> None:
        """Replaces the live chunks and the entries at these places, in one transaction. Missing entries are deleted."""

        def write(connection: sqlite3.Connection) -> None:
            put_entries(connection, {(name, key): entries.get(name, {}).get(key) for name, key in places})
            connection.execute("DELETE FROM live_chunks WHERE session = ?", (session,))
            connection.executemany(INSERT, _rows(session, chunks))

        await self._file.write(write)


def _rows(session: str, chunks: Iterable[LiveChunk]) -> list[tuple[Any, ...]]:
    return [(session, *values_of(chunk)) for chunk in chunks]


def _readings(connection: sqlite3.Connection, session: str) -> list[Reading]:
    listed = entry(connection, (READINGS, session)) or ()
    return [Reading(datetime.fromisoformat(at), live, client) for at, live, client in listed]


def _chunk(row: tuple[Any, ...]) -> LiveChunk:
    return chunk_of(dict(zip(CHUNK_COLUMNS, row, strict=True)))
