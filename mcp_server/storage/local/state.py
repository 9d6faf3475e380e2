"""The state of the workspace in `.local/state.db`: sessions, keys of turns, references, and small values.

Sessions and keys are a cache of the transcripts. A damaged or missing file is replaced by an empty one; `complete` is
False until the transcripts were read back into it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Iterable
from contextlib import closing
from datetime import datetime
from pathlib import Path

from anyio import sleep

from mcp_server.storage.local.locks import Locks
from mcp_server.storage.sqlite import ReplaceableDatabase, driver
from mcp_server.storage.state import Dialect, State, Transaction
from mcp_server.storage.values import stored_moment

VERSION = 3

TABLES = """
-- One row for each session: its open (or last) transcript, and how far it was read.
CREATE TABLE IF NOT EXISTS sessions (
    session      TEXT PRIMARY KEY,
    path         TEXT NOT NULL,
    status       TEXT NOT NULL,           -- open | closed
    project      TEXT NOT NULL,           -- raw key, '' for the global one
    kind         TEXT,                    -- NULL until a call names it
    delivery     TEXT,                    -- NULL until a call names it
    title        TEXT NOT NULL,
    opened       TEXT NOT NULL,
    last_arrival TEXT NOT NULL,
    turns        INTEGER NOT NULL,        -- number of the last turn
    last_at      TEXT,                    -- time of the last entry of the transcript
    size         INTEGER NOT NULL         -- bytes of the transcript that these rows know
) STRICT;

-- Both source keys of every turn, to recognize repeats.
CREATE TABLE IF NOT EXISTS turn_keys (
    session TEXT NOT NULL,
    number  INTEGER NOT NULL,
    role    TEXT NOT NULL,
    sha     TEXT NOT NULL,
    nth     INTEGER NOT NULL,
    turn_id TEXT,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS turn_keys_id ON turn_keys (session, turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS turn_keys_sha ON turn_keys (session, sha);
CREATE INDEX IF NOT EXISTS turn_keys_turn ON turn_keys (turn_id) WHERE turn_id IS NOT NULL;

-- Reads and recoveries of files: the reference count of knowledge scores. Compiling never writes here.
CREATE TABLE IF NOT EXISTS access_log (
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    at   TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS access_log_path ON access_log (path);

-- Random ids of folders that have no other name (`dir:` project keys).
CREATE TABLE IF NOT EXISTS directories (folder TEXT PRIMARY KEY, id TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- The chunks of open sessions' live contexts. A cold chunk keeps its row, because it may be recovered.
CREATE TABLE IF NOT EXISTS live_chunks (
    session   TEXT NOT NULL,
    id        TEXT NOT NULL,
    turn      INTEGER NOT NULL,
    part      INTEGER NOT NULL,
    kind      TEXT NOT NULL,           -- message | tool | file | skill | agent
    tokens    INTEGER NOT NULL,        -- of the present form
    added     TEXT NOT NULL,
    form      TEXT NOT NULL,           -- whole | one line | summary | excerpt | cold
    shown     TEXT,                    -- the text of a summary or an excerpt
    one_line  INTEGER,                 -- tokens that a tool's call would have without its result
    name      TEXT NOT NULL,
    important INTEGER NOT NULL,
    system    INTEGER NOT NULL,
    immune    INTEGER NOT NULL,        -- the exchange until which a recovery protects it
    accesses  INTEGER NOT NULL,
    accessed  TEXT,
    tags      TEXT NOT NULL,           -- JSON lists
    topics    TEXT NOT NULL,
    mtime     TEXT,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;

-- Small values by namespace, as JSON.
CREATE TABLE IF NOT EXISTS entries (
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    value     TEXT NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
"""


def create(connection: sqlite3.Connection) -> None:
    """Creates the tables that a new file or a file of an older version lacks. Inside a transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < VERSION:
        for statement in TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def count_conversations(local: Path) -> tuple[int, str]:
    """Returns the number of sessions in `state.db` and the time of the last arrival (ISO 8601, "" for none).

    Returns (0, "") if the file cannot be read within 0.2 s. Uses the SQLite library that already has the file open: if
    another SQLite library in this process closed the file, the system would drop all locks of this process on it, and
    the next process that closes it would delete the write-ahead log while this process uses it.
    """
    try:
        with closing(
            driver().module.connect(f"{(local / 'state.db').resolve().as_uri()}?mode=ro", uri=True, timeout=0.2)
        ) as read:
            count, last = read.execute("SELECT count(*), max(last_arrival) FROM sessions").fetchone()
    except driver().error:
        return 0, ""
    return count, last or ""


WIPE_TRIES = 100
"""Most attempts, 50 ms apart, to empty the write-ahead log while other processes read."""

SQLITE = Dialect(
    "?",
    json.dumps,
    {
        "session": "sessions",
        "turn_key": "turn_keys",
        "access": "access_log",
        "directory": "directories",
        "entry": "entries",
        "live_chunk": "live_chunks",
        "here": "",
        "ws_": "",
        "ws": "",
        "among": "IN (SELECT value FROM json_each(?))",
        "same": "IS",
    },
)


class LocalState(State):
    """The state of one workspace in a folder. Create it with `LocalState.open`."""

    def __init__(self, file: ReplaceableDatabase) -> None:
        super().__init__(file, SQLITE)
        self.file = file
        self._complete: int | None = None  # the number of replacements when the file was found complete

    @classmethod
    async def open(cls, path: Path, locks: Locks) -> LocalState:
        """Opens or creates the file. A damaged one is moved aside under a new name, never deleted."""
        return cls(await ReplaceableDatabase.create(path, locks, create))

    def close(self) -> Awaitable[None]:
        return self.file.close()

    @property
    def damage(self) -> str | None:  # type: ignore[override]
        """Returns a sentence about the damaged files that were moved aside, for `status`; None without one."""
        names = ", ".join(f".local/{path.name}" for path in self.file.moved_aside())
        return f"a damaged state.db was moved aside, and its content was read back; delete {names}" if names else None

    def data_version(self) -> Awaitable[int]:
        return self.file.data_version()

    async def complete(self) -> bool:
        if self._complete != self.file.replaced and await self.get("state", "complete") is True:
            self._complete = self.file.replaced
        return self._complete == self.file.replaced

    def completed(self) -> Awaitable[None]:
        return self.put("state", "complete", True)

    def log_access(self, path: str, kind: str, at: datetime) -> Awaitable[None]:
        return self.run("INSERT INTO {access} (path, kind, at) VALUES (?, ?, ?)", path, kind, stored_moment(at))

    def _tables(self, transaction: Transaction) -> list[str]:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        return [name for (name,) in transaction.rows(listed)]

    async def _wipe(self) -> str:
        for _ in range(WIPE_TRIES):
            if await self.file.outside(_rewrite):
                return ""
            await sleep(0.05)
        return ".local/state.db-wal is still in use by another process; it is emptied when that process ends"

    async def empty(self, kept: Iterable[str]) -> None:
        await super().empty(kept)
        await self.file.outside(_rewrite)

    def _emptied(self, transaction: Transaction) -> None:
        self._complete = None  # its entry was deleted


def _rewrite(connection: sqlite3.Connection) -> bool:
    """Rewrites the file without its free pages and empties the write-ahead log. Call it outside a transaction.

    Returns False if another process still reads the log; then call it again.
    """
    connection.execute("PRAGMA secure_delete = ON").fetchone()
    connection.execute("VACUUM")
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy
