"""Live sets: which pieces each open session's context is made of, in `state.db`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, get_args

from mcp_server.core.pressure.chunks import ChunkKind, Form, LiveChunk
from mcp_server.store.state import State

COLUMNS = tuple(field.name for field in fields(LiveChunk))


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

    async def tokens(self, session: str) -> int:
        """Tokens of what is live: cold chunks have none."""
        total = "SELECT coalesce(sum(tokens), 0) FROM live_chunks WHERE session = ? AND form <> 'cold'"
        return await self._state.read(lambda connection: int(connection.execute(total, (session,)).fetchone()[0]))

    async def knows(self, chunk_id: str) -> bool:
        """Whether some session has a chunk of this id."""
        found = "SELECT 1 FROM live_chunks WHERE id = ?"
        return await self._state.read(lambda connection: connection.execute(found, (chunk_id,)).fetchone() is not None)

    async def put(self, session: str, chunks: Iterable[LiveChunk]) -> None:
        """Adds chunks, or puts them in the place of those with the same ids, all or none."""
        rows = [(session, *_values(chunk)) for chunk in chunks]
        marks = ", ".join("?" * (len(COLUMNS) + 1))
        sql = f"INSERT OR REPLACE INTO live_chunks (session, {', '.join(COLUMNS)}) VALUES ({marks})"

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(sql, rows)

        if rows:
            await self._state.write(write)

    async def clear(self, session: str) -> None:
        """Forgets the live set of a session that has ended."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM live_chunks WHERE session = ?", (session,))

        await self._state.write(write)


def _values(chunk: LiveChunk) -> list[Any]:
    return [_written(getattr(chunk, name)) for name in COLUMNS]


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds")
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False)
    return int(value) if isinstance(value, bool) else value


def _chunk(row: tuple[Any, ...]) -> LiveChunk:
    stored: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
    for name in ("added", "accessed", "mtime"):
        stored[name] = datetime.fromisoformat(stored[name]) if stored[name] else None
    for name in ("tags", "topics"):
        stored[name] = tuple(json.loads(stored[name]))
    for name in ("important", "system"):
        stored[name] = bool(stored[name])
    if stored["kind"] not in get_args(ChunkKind):
        stored["kind"] = "message"
    if stored["form"] not in get_args(Form):
        stored["form"] = "whole"
    return LiveChunk(**stored)
