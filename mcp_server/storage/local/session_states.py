"""All that the state holds of one session, read and put back raw, each in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_server.relevance.chunks import LiveChunk
from mcp_server.storage.local.live_sets import COLUMNS, chunk_of, insert_chunks
from mcp_server.storage.local.state import State

Place = tuple[str, str]
"""Namespace and key of an entry."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """`entries` by namespace and key, as JSON values; `rows` are the live chunks, each a list of values in the order of
    `columns`."""

    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    columns: tuple[str, ...] = COLUMNS
    rows: tuple[tuple[Any, ...], ...] = ()

    @property
    def chunks(self) -> list[LiveChunk]:
        """The live chunks. Raises Invalid for rows of a version that this one cannot read."""
        return [chunk_of(dict(zip(self.columns, row, strict=True))) for row in self.rows]

    def with_chunks(self, chunks: list[LiveChunk]) -> SessionState:
        """The same with these live chunks."""
        rows = tuple(tuple(values[1:]) for values in insert_chunks("", chunks)[1])
        return SessionState(self.entries, COLUMNS, rows)

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint's `state`."""
        return {"entries": self.entries, "live": {"columns": list(self.columns), "rows": [list(r) for r in self.rows]}}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SessionState:
        """What `to_json` gave; what is missing is empty."""
        live = stored.get("live") or {}
        rows = tuple(tuple(row) for row in live.get("rows", ()))
        return cls(stored.get("entries") or {}, tuple(live.get("columns", COLUMNS)), rows)


class SessionStates:
    """The port."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def read(self, session: str, places: Sequence[Place]) -> SessionState:
        """The session's live chunks and the entries at these places, as of one moment."""
        select = f"SELECT {', '.join(COLUMNS)} FROM live_chunks WHERE session = ? ORDER BY turn, part, id"

        def ask(connection: sqlite3.Connection) -> SessionState:
            entries: dict[str, dict[str, Any]] = {}
            for namespace, key in places:
                row = connection.execute(
                    "SELECT value FROM entries WHERE namespace = ? AND key = ?", (namespace, key)
                ).fetchone()
                if row is not None:
                    entries.setdefault(namespace, {})[key] = json.loads(row[0])
            return SessionState(entries, rows=tuple(tuple(row) for row in connection.execute(select, (session,))))

        return await self._state.read(ask)

    async def put(
        self, session: str, places: Sequence[Place], entries: Mapping[str, Mapping[str, Any]], chunks: list[LiveChunk]
    ) -> None:
        """Puts all of it in the place of what is there: chunks, and the entries at these places, also where they are
        missing now."""

        def write(connection: sqlite3.Connection) -> None:
            for namespace, key in places:
                if key in entries.get(namespace, {}):
                    row = (namespace, key, json.dumps(entries[namespace][key]))
                    connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", row)
                else:
                    connection.execute("DELETE FROM entries WHERE namespace = ? AND key = ?", (namespace, key))
            connection.execute("DELETE FROM live_chunks WHERE session = ?", (session,))
            connection.executemany(*insert_chunks(session, chunks))

        await self._state.write(write)
