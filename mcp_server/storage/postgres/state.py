"""The state of a team's workspace.

State and files are written in the same transactions, so the state need not be rebuilt from the transcripts, except
after `empty`.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.storage import state
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.state import Dialect, State, Transaction
from mcp_server.storage.values import Place, stored_moment

_EMPTIED = "state emptied"
"""A counter that exists between `empty` and `completed`."""

_TABLES = ("session", "turn_key", "access", "directory", "entry", "live_chunk")
WS = "current_setting('app.ws')::bigint"
"""SQL for the number of the transaction's workspace."""

POSTGRES = Dialect(
    "%s",
    list,
    {
        **{name: name for name in _TABLES},
        "here": f"ws = {WS} AND ",
        "ws_": "ws, ",
        "ws": f"{WS}, ",
        "among": "= ANY(?)",
        "same": "IS NOT DISTINCT FROM",
    },
)


class TeamState(State):
    """The state of one workspace."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, POSTGRES)
        self._database = database
        self._complete = False

    async def complete(self) -> bool:
        if not self._complete:
            self._complete = not await self.rows("SELECT 1 FROM counter WHERE {here}name = ?", _EMPTIED)
        return self._complete

    def completed(self) -> Awaitable[None]:
        return self.run("DELETE FROM counter WHERE {here}name = ?", _EMPTIED)

    async def data_version(self) -> int:
        """Returns the number of the last change notice of any process."""
        rows = await self.rows("SELECT value FROM counter WHERE {here}name = 'change'")
        return int(rows[0][0]) if rows else 0

    def log_access(self, path: str, kind: str, at: datetime) -> Awaitable[None]:
        statement = "INSERT INTO access ({ws_}path, kind, at, id) VALUES ({ws}?, ?, ?, ?)"
        return self.run(statement, path, kind, stored_moment(at), secrets.randbits(63))

    def _tables(self, transaction: Transaction) -> Sequence[str]:
        return (*_TABLES, "change")  # change notices name files and sessions

    def _wipe(self) -> Awaitable[str]:
        return run_sync(self._database.vacuum)

    def _emptied(self, transaction: Transaction) -> None:
        transaction.run("INSERT INTO counter (ws, name, value) VALUES ({ws}?, 1) ON CONFLICT DO NOTHING", _EMPTIED)
        self._complete = False

    def _locked(self, transaction: Transaction, places: Sequence[Place]) -> dict[Place, Any]:
        # Only rows can be locked, so each missing value gets a row, which no other transaction sees.
        row = "INSERT INTO entry ({ws_}namespace, key, value) VALUES ({ws}?, ?, 'null') ON CONFLICT DO NOTHING"
        transaction.each(row, places)
        stored = state.read_entries(transaction, places, " FOR UPDATE")
        state.put_entries(transaction, {place: None for place in places if place not in stored})
        return stored


def read_entries(connection: Connection, places: Sequence[Place]) -> dict[Place, Any]:
    return state.read_entries(Transaction(connection, POSTGRES), places)


def put_entries(connection: Connection, entries: Mapping[Place, Any]) -> None:
    state.put_entries(Transaction(connection, POSTGRES), entries)
