"""Live sets: which pieces each open session's context is made of, in `state.db`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, get_args

from mcp_server.relevance.chunks import ChunkKind, Form, LiveChunk, Standing
from mcp_server.storage.local.state import State

COLUMNS = tuple(field.name for field in fields(LiveChunk))
KINDS, FORMS = get_args(ChunkKind), get_args(Form)

MOST_READINGS = 100
READINGS = "gauge"
"""Namespace of the state: session → what its gauges said of late (`Reading`)."""

_TOTAL = "SELECT coalesce(sum(tokens), 0) FROM live_chunks WHERE session = ? AND form <> 'cold'"
STEPS = "curation_steps"
"""Namespace of the state: session → how often its curation was due so far (`gauges.curation_step`)."""

_COUNTS = (
    "SELECT coalesce(sum(iif(form = 'cold', 0, tokens)), 0), coalesce(sum(form <> 'cold'), 0), "
    "coalesce(sum(form = 'cold'), 0), coalesce(sum(form <> 'whole'), 0) FROM live_chunks WHERE session = ?"
)
_ANY = "SELECT EXISTS (SELECT 1 FROM live_chunks WHERE session = ?)"
_SAID = "kind IN ('message', 'tool')"


@dataclass(frozen=True, slots=True)
class Reading:
    """What the gauges said at a moment: tokens that are live, and what the client said of its own window."""

    at: datetime
    live: int
    client: int | None = None


@dataclass(frozen=True, slots=True)
class Entered:
    """A live set as it is after something was added: the gauges now and of late (oldest first, the last before among
    them however old it is), and how many chunks are live, cold, and not whole."""

    now: Reading
    earlier: tuple[Reading, ...]
    live: int
    cold: int
    shortened: int


class LiveSets:
    """The port; every method is one transaction of the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def of(self, session: str) -> list[LiveChunk]:
        """All chunks of a session, also those that are cold, in the order in which they came."""
        select = f"SELECT {', '.join(COLUMNS)} FROM live_chunks WHERE session = ? ORDER BY turn, part, id"

        def ask(connection: sqlite3.Connection) -> list[LiveChunk]:
            return [_chunk(row) for row in connection.execute(select, (session,))]

        return await self._state.read(ask)

    async def of_kinds(self, session: str, kinds: Sequence[ChunkKind]) -> list[LiveChunk]:
        """The chunks of some kinds that are in the session's context, cold ones left out, in the order in which they
        came."""
        marks = ", ".join("?" * len(kinds))
        select = (
            f"SELECT {', '.join(COLUMNS)} FROM live_chunks WHERE session = ? AND form <> 'cold' AND kind IN ({marks}) "
            "ORDER BY turn, part, id"
        )

        def ask(connection: sqlite3.Connection) -> list[LiveChunk]:
            return [_chunk(row) for row in connection.execute(select, (session, *kinds))]

        return await self._state.read(ask)

    async def any_of(self, session: str) -> bool:
        """Whether a session has a live set."""
        return await self._state.read(lambda connection: bool(connection.execute(_ANY, (session,)).fetchone()[0]))

    async def sessions(self) -> list[str]:
        """The sessions that have a live set."""
        sql = "SELECT DISTINCT session FROM live_chunks ORDER BY session"
        return await self._state.read(lambda connection: [str(row[0]) for row in connection.execute(sql)])

    async def whole(self, session: str | None = None) -> frozenset[str]:
        """The ids of the chunks that stand whole, of one session or of all."""
        sql = "SELECT id FROM live_chunks WHERE form = 'whole'" + (" AND session = ?" if session is not None else "")
        given = () if session is None else (session,)
        return await self._state.read(lambda connection: frozenset(row[0] for row in connection.execute(sql, given)))

    async def tokens(self, session: str) -> int:
        """Tokens of what is live: cold chunks have none."""
        return await self._state.read(lambda connection: int(connection.execute(_TOTAL, (session,)).fetchone()[0]))

    async def add(
        self,
        session: str,
        turn: int,
        chunks: Sequence[LiveChunk],
        at: datetime,
        client: int | None,
        keep: timedelta,
        entries: Mapping[tuple[str, str], Any] = MappingProxyType({}),
    ) -> Entered | None:
        """Adds the chunks of turn number `turn`, and notes the gauges; earlier readings are kept for `keep`. Returns
        None, and adds no chunk, if the set does not hold the turn before: then it was lost, or never made.

        `entries` are values by namespace and key that the same transaction stores, in either case.
        """
        insert, rows = insert_chunks(session, chunks)
        values = [(*place, json.dumps(value)) for place, value in entries.items()]

        def write(connection: sqlite3.Connection) -> Entered | None:
            connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", values)
            last = f"SELECT coalesce(max(turn), 0) FROM live_chunks WHERE session = ? AND {_SAID}"
            if connection.execute(last, (session,)).fetchone()[0] < turn - 1:
                return None
            connection.executemany(insert, rows)
            tokens, live, cold, shortened = connection.execute(_COUNTS, (session,)).fetchone()
            now, before = Reading(at, int(tokens), client), _readings(connection, session)
            kept = [one for one in before[:-1] if timedelta() <= at - one.at <= keep] + before[-1:]
            listed = [[_written(one.at), one.live, one.client] for one in [*kept[-MOST_READINGS:], now]]
            connection.execute(
                "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (READINGS, session, json.dumps(listed))
            )
            return Entered(now, tuple(kept), int(live), int(cold), int(shortened))

        return await self._state.write(write, waits=False)  # the transcript has it, and the next turn looks

    async def readings(self, session: str) -> list[Reading]:
        """What the gauges said of late, oldest first."""
        return await self._state.read(lambda connection: _readings(connection, session))

    async def count(self, session: str, *, cold: bool) -> int:
        """How many chunks of a session are cold, or are not."""
        sql = f"SELECT count(*) FROM live_chunks WHERE session = ? AND form {'=' if cold else '<>'} 'cold'"
        return await self._state.read(lambda connection: int(connection.execute(sql, (session,)).fetchone()[0]))

    async def entered(self, session: str) -> Entered:
        """The live set as it is, after something was done about it."""

        def ask(connection: sqlite3.Connection) -> Entered:
            tokens, live, cold, shortened = connection.execute(_COUNTS, (session,)).fetchone()
            *earlier, last = _readings(connection, session) or [Reading(datetime.fromtimestamp(0, UTC), 0)]
            now = Reading(last.at, int(tokens), last.client)
            return Entered(now, tuple(earlier), int(live), int(cold), int(shortened))

        return await self._state.read(ask)

    async def shortened(self, session: str) -> int:
        """How many chunks of a session do not stand whole."""
        sql = "SELECT count(*) FROM live_chunks WHERE session = ? AND form <> 'whole'"
        return await self._state.read(lambda connection: int(connection.execute(sql, (session,)).fetchone()[0]))

    async def standing(self, session: str) -> list[Standing] | None:
        """The chunks of a session that do not stand whole, in the order in which they came; None if it has no live
        set."""
        select = (
            "SELECT id, kind, turn, part, form, shown, name FROM live_chunks WHERE session = ? AND form <> 'whole' "
            "ORDER BY turn, part, id"
        )

        def ask(connection: sqlite3.Connection) -> list[Standing] | None:
            if not connection.execute(_ANY, (session,)).fetchone()[0]:
                return None
            return [Standing(*row) for row in connection.execute(select, (session,))]

        return await self._state.read(ask)

    async def cold_turns(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """Of turns, by session and number, those with words that are cold, with the id of that chunk."""
        sql = "SELECT id FROM live_chunks WHERE session = ? AND turn = ? AND part = 0 AND form = 'cold'"
        asked = list(dict.fromkeys(places))

        def ask(connection: sqlite3.Connection) -> dict[tuple[str, int], str]:
            rows = ((place, connection.execute(sql, place).fetchone()) for place in asked)
            return {place: str(row[0]) for place, row in rows if row}

        return await self._state.read(ask) if asked else {}

    async def knows(self, chunk_id: str) -> bool:
        """Whether some session has a chunk of this id."""
        found = "SELECT 1 FROM live_chunks WHERE id = ?"
        return await self._state.read(lambda connection: connection.execute(found, (chunk_id,)).fetchone() is not None)

    async def put(self, session: str, chunks: Iterable[LiveChunk]) -> None:
        """Adds chunks, or puts them in the place of those with the same ids, all or none."""
        sql, rows = insert_chunks(session, chunks)

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(sql, rows)

        if rows:
            await self._state.write(write)

    async def clear(self, session: str) -> None:
        """Forgets the live set of a session that has ended."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM live_chunks WHERE session = ?", (session,))
            connection.execute("DELETE FROM entries WHERE namespace IN (?, ?) AND key = ?", (READINGS, STEPS, session))

        await self._state.write(write)


def insert_chunks(session: str, chunks: Iterable[LiveChunk]) -> tuple[str, list[tuple[Any, ...]]]:
    """The statement that puts chunks into the table, and its rows."""
    marks = ", ".join("?" * (len(COLUMNS) + 1))
    sql = f"INSERT OR REPLACE INTO live_chunks (session, {', '.join(COLUMNS)}) VALUES ({marks})"
    return sql, [(session, *_values(chunk)) for chunk in chunks]


def _readings(connection: sqlite3.Connection, session: str) -> list[Reading]:
    row = connection.execute(
        "SELECT value FROM entries WHERE namespace = ? AND key = ?", (READINGS, session)
    ).fetchone()
    return [Reading(datetime.fromisoformat(at), live, client) for at, live, client in json.loads(row[0])] if row else []


def _values(chunk: LiveChunk) -> list[Any]:
    return [_written(getattr(chunk, name)) for name in COLUMNS]


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False)
    return int(value) if isinstance(value, bool) else value


def _chunk(row: tuple[Any, ...]) -> LiveChunk:
    return chunk_of(dict(zip(COLUMNS, row, strict=True)))


def chunk_of(row: Mapping[str, Any]) -> LiveChunk:
    """A chunk from its row by the names of the columns; those that this version does not know are passed over."""
    stored = {name: row[name] for name in COLUMNS if name in row}
    for name in ("added", "accessed", "mtime"):
        stored[name] = datetime.fromisoformat(stored[name]) if stored.get(name) else None
    for name in ("tags", "topics"):
        stored[name] = tuple(json.loads(stored[name])) if stored.get(name, "[]") != "[]" else ()
    for name in ("important", "system"):
        stored[name] = bool(stored.get(name))
    if stored["kind"] not in KINDS:
        stored["kind"] = "message"
    if stored["form"] not in FORMS:
        stored["form"] = "whole"
    return LiveChunk(**stored)
