"""The state of the workspace in `.local/state.db`: sessions, keys of turns, references, and small values.

Sessions and keys are a cache of the transcripts. A damaged or missing file is replaced by an empty one; `complete` is
False until the transcripts were read back into it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

from mcp_server.conversations.source_keys import Known, TurnKey
from mcp_server.model import Delivery, Kind, Role
from mcp_server.storage.local import scrubbing
from mcp_server.storage.local.database import StateFile
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.sqlite import driver
from mcp_server.storage.values import Place, Recorded, SessionRow, moment_text
from mcp_server.text.forgotten import Forgotten

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
    """Creates the tables that a new file or a file of an older version lacks."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < VERSION:
        for statement in TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")


def count_conversations(local: Path) -> tuple[int, str]:
    """Returns the number of sessions in `state.db` and the time of the last arrival (ISO 8601, "" for none).

    Returns (0, "") if the file cannot be read at once. It is opened with the library that has it open already: if
    another SQLite library in this process closes the file, the system drops all locks that the process has on it, and
    the next process that closes it deletes the write-ahead log under us.
    """
    try:
        with closing(
            driver().module.connect(f"{(local / 'state.db').resolve().as_uri()}?mode=ro", uri=True, timeout=0.2)
        ) as read:
            count, last = read.execute("SELECT count(*), max(last_arrival) FROM sessions").fetchone()
    except driver().error:
        return 0, ""
    return count, last or ""


T = TypeVar("T")

WIPE_TRIES = 100
"""Tries, 50 ms apart, to empty the write-ahead log while other processes read."""


class State:
    """The state of one workspace. Made by `State.open`; every method is one transaction."""

    def __init__(self, file: StateFile) -> None:
        self.file = file
        self._complete: int | None = None  # the number of replacements when the file was found complete

    @classmethod
    async def open(cls, path: Path, locks: Locks) -> State:
        """Opens or creates the file. A damaged one is moved aside under a new name, never deleted."""
        return cls(await StateFile.create(path, locks, create))

    async def close(self) -> None:
        """Closes the file; a second call does nothing."""
        await self.file.close()

    @property
    def damage(self) -> str | None:
        """Returns a sentence about a damaged file that was moved aside, for `status`; None without one."""
        moved = self.file.moved_aside
        return f"a damaged state.db was moved aside as {moved.name}; what it knew was read back" if moved else None

    async def data_version(self) -> int:
        """Returns a number that changes when another connection commits, or when the file is replaced."""
        return await self.file.data_version()

    async def complete(self) -> bool:
        """Returns False for a new file, until the transcripts were read back into it."""
        if self._complete != self.file.replaced and await self.get("state", "complete") is True:
            self._complete = self.file.replaced
        return self._complete == self.file.replaced

    async def completed(self) -> None:
        """Records that the transcripts were read back."""
        await self.put("state", "complete", True)

    # sessions and source keys

    async def session(self, session: str) -> SessionRow | None:
        """Returns a session; None if it is unknown."""
        rows = await self._rows("SELECT * FROM sessions WHERE session = ?", (session,))
        return _session(rows[0]) if rows else None

    async def sessions(self, open_only: bool = False) -> list[SessionRow]:
        """Returns all sessions, or the open ones, oldest first."""
        where = "WHERE status = 'open'" if open_only else ""
        return [_session(row) for row in await self._rows(f"SELECT * FROM sessions {where} ORDER BY opened, session")]

    async def save_session(self, row: SessionRow, keys: Sequence[TurnKey] = ()) -> None:
        """Writes the session's row and adds the keys of newly recorded turns."""
        await self.file.write(lambda connection: _save(connection, row, keys))

    async def keys(self, session: str) -> list[TurnKey]:
        """Returns the keys of all turns of a session, ordered by number."""
        rows = await self._rows("SELECT * FROM turn_keys WHERE session = ? ORDER BY number", (session,))
        return [_key(row) for row in rows]

    async def last_number(self, session: str) -> int:
        """Returns the number of the last turn with known keys; 0 for none."""
        rows = await self._rows("SELECT coalesce(max(number), 0) FROM turn_keys WHERE session = ?", (session,))
        return int(rows[0][0])

    async def count_turns(self, session: str, role: Role) -> int:
        """Returns the number of a session's turns of one role."""
        rows = await self._rows("SELECT count(*) FROM turn_keys WHERE session = ? AND role = ?", (session, role))
        return int(rows[0][0])

    async def recorded(self, session: str, role: Role, sha: str, turn_id: str | None) -> Recorded:
        """Returns what is needed to record an arriving turn, and to tell whether it is a repeat."""

        def ask(connection: sqlite3.Connection) -> Recorded:
            one = "SELECT * FROM turn_keys WHERE session = ?"
            same = connection.execute(f"{one} AND turn_id = ?", (session, turn_id)).fetchone() if turn_id else None
            last = connection.execute(f"{one} ORDER BY number DESC LIMIT 1", (session,)).fetchone()
            count = "SELECT count(*) FROM turn_keys WHERE session = ? AND role = ? AND sha = ?"
            (nth,) = connection.execute(count, (session, role, sha)).fetchone()
            row = connection.execute("SELECT * FROM sessions WHERE session = ?", (session,)).fetchone()
            return Recorded(
                _session(row) if row else None, _key(same) if same else None, _key(last) if last else None, nth
            )

        return await self.file.read(ask)

    async def known(self, session: str, arriving: Sequence[tuple[Role, str, str]], *, anywhere: bool = False) -> Known:
        """Returns the recorded turns that match an arriving sequence of `(role, sha, turn_id)`.

        With `anywhere`, ids are unique beyond the session: other sessions are searched too.
        """
        ids = json.dumps([turn_id for _, _, turn_id in arriving])
        shas = json.dumps(sorted({sha for _, sha, _ in arriving}))

        def ask(connection: sqlite3.Connection) -> Known:
            given = "turn_id IN (SELECT value FROM json_each(?))"
            here = connection.execute(
                f"SELECT turn_id FROM turn_keys WHERE session = ? AND {given}", (session, ids)
            ).fetchall()
            elsewhere = (
                connection.execute(f"SELECT turn_id FROM turn_keys WHERE session <> ? AND {given}", (session, ids))
                if anywhere
                else ()
            )
            same = connection.execute(
                "SELECT role, sha, turn_id, number FROM turn_keys "
                "WHERE session = ? AND sha IN (SELECT value FROM json_each(?)) ORDER BY number",
                (session, shas),
            ).fetchall()
            counts = Counter((role, sha) for role, sha, _, _ in same)
            nameless: dict[tuple[Role, str], tuple[int, ...]] = {}
            for role, sha, turn_id, number in same:
                if turn_id is None:
                    nameless[role, sha] = (*nameless.get((role, sha), ()), number)
            return Known(
                frozenset(turn_id for (turn_id,) in here),
                counts,
                nameless,
                frozenset(turn_id for (turn_id,) in elsewhere),
            )

        return await self.file.read(ask)

    async def name_turns(self, session: str, named: Sequence[tuple[int, str]]) -> None:
        """Adds ids to recorded turns that have none: pairs of number and id."""
        sql = "UPDATE turn_keys SET turn_id = ? WHERE session = ? AND number = ? AND turn_id IS NULL"
        values = [(turn_id, session, number) for number, turn_id in named]
        await self.file.write(lambda connection: connection.executemany(sql, values) and None)

    async def forget_keys(self, session: str) -> None:
        """Deletes the keys of a session whose transcripts were rewritten."""
        await self._execute("DELETE FROM turn_keys WHERE session = ?", (session,))

    # forgetting

    async def held(self, request: Forgotten) -> dict[str, int]:
        """Returns for each table the number of rows that contain text of a request."""
        return await self.file.read(lambda connection: scrubbing.held(connection, request))

    async def scrub(self, request: Forgotten) -> str:
        """Removes the text of a request from all rows, and from pages that deleted rows left behind.

        Returns a sentence if the write-ahead log could not be emptied because another process kept reading, else "".
        """
        from anyio import sleep

        await self.file.write(lambda connection: scrubbing.scrub(connection, request))
        for _ in range(WIPE_TRIES):
            if await self.file.outside(scrubbing.wipe):
                return ""
            await sleep(0.05)
        return ".local/state.db-wal: another process kept reading; it is emptied when that one ends"

    async def empty(self, kept: Iterable[str]) -> None:
        """Deletes everything except folder ids and the entries of these namespaces, and rewrites the file.

        The transcripts must be read back afterwards. Only for a process that is alone on the workspace.
        """
        spared = json.dumps(list(kept))

        def clear(connection: sqlite3.Connection) -> None:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                if table not in ("directories", "entries"):
                    connection.execute(f"DELETE FROM {table}")
            connection.execute("DELETE FROM entries WHERE namespace NOT IN (SELECT value FROM json_each(?))", (spared,))

        await self.file.write(clear)
        self._complete = None
        await self.file.outside(scrubbing.wipe)

    # references

    async def log_access(self, path: str, kind: str, at: datetime) -> None:
        """Records that a file was read or recovered."""
        await self._execute("INSERT INTO access_log VALUES (?, ?, ?)", (path, kind, moment_text(at)))

    async def references(self, paths: Iterable[str]) -> dict[str, int]:
        """Returns how often each of these files was read or recovered; others are left out."""
        asked = json.dumps(sorted(set(paths)))
        sql = "SELECT path, count(*) FROM access_log WHERE path IN (SELECT value FROM json_each(?)) GROUP BY path"
        return {str(path): int(count) for path, count in await self._rows(sql, (asked,))}

    async def last_accesses(self, paths: Iterable[str]) -> dict[str, datetime]:
        """Returns when each of these files was last read or recovered; others are left out."""
        asked = json.dumps(sorted(set(paths)))
        sql = "SELECT path, max(at) FROM access_log WHERE path IN (SELECT value FROM json_each(?)) GROUP BY path"
        return {str(path): datetime.fromisoformat(at) for path, at in await self._rows(sql, (asked,))}

    async def access_since(self) -> datetime | None:
        """Returns the time of the first recorded read or recovery; None without any."""
        first = (await self._rows("SELECT min(at) FROM access_log"))[0][0]
        return datetime.fromisoformat(first) if first else None

    # folders without a name

    async def directory_ids(self) -> dict[str, str]:
        """Returns the random id of each folder."""
        return dict(await self._rows("SELECT folder, id FROM directories"))

    async def name_directory(self, folder: str, new_id: str) -> str:
        """Stores a folder's id and returns it: `new_id`, unless another process was first."""
        await self._execute("INSERT OR IGNORE INTO directories VALUES (?, ?)", (folder, new_id))
        return (await self.directory_ids())[folder]

    # small values

    async def get(self, namespace: str, key: str) -> Any:
        """Returns a stored value, or None."""
        return await self.file.read(lambda connection: entry(connection, (namespace, key)))

    async def get_all(self, places: Sequence[tuple[str, str]]) -> list[Any]:
        """Returns the values at these places (namespace and key), in their order, as of one moment; None if missing."""
        return await self.file.read(lambda connection: [entry(connection, place) for place in places])

    async def entries(self, namespace: str) -> dict[str, Any]:
        """Returns the values of a namespace by key."""
        rows = await self._rows("SELECT key, value FROM entries WHERE namespace = ? ORDER BY key", (namespace,))
        return {key: json.loads(value) for key, value in rows}

    async def keys_of(self, namespace: str) -> list[str]:
        """Returns the keys of a namespace."""
        return [key for (key,) in await self._rows("SELECT key FROM entries WHERE namespace = ?", (namespace,))]

    async def put(self, namespace: str, key: str, value: Any, *, waits: bool = True) -> None:
        """Stores a JSON value. Without `waits` a power cut may lose it, a crash of the process cannot."""
        row = (namespace, key, json.dumps(value))
        sql = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)"
        await self.file.write(lambda connection: connection.execute(sql, row) and None, waits=waits)

    async def add(self, namespace: str, key: str, value: Any, most: int) -> None:
        """Appends to a list of JSON values and keeps the last `most`. Does not wait for the disk."""

        def appended(stored: Mapping[Place, Any]) -> tuple[None, Mapping[Place, Any]]:
            listed = stored.get((namespace, key))
            return None, {(namespace, key): [*(listed if isinstance(listed, list) else []), value][-most:]}

        await self.change_entries([(namespace, key)], appended, waits=False)

    async def change_entries(
        self,
        places: Iterable[Place],
        change: Callable[[Mapping[Place, Any]], tuple[T, Mapping[Place, Any]]],
        *,
        waits: bool = True,
    ) -> T:
        """Reads and writes several values in one transaction; other processes wait meanwhile.

        `change` gets the stored values by place, and returns a result and the values to write; None deletes one. It
        must be pure, because it may be called again. Returns the result.
        """

        def apply(connection: sqlite3.Connection) -> T:
            stored = {place: value for place in places if (value := entry(connection, place)) is not None}
            result, changed = change(stored)
            put_entries(connection, changed)
            return result

        return await self.file.write(apply, waits=waits)

    async def session_entry(self, namespace: str, session: str, waiting: str) -> tuple[Any, int, tuple[str, str], bool]:
        """Returns a session's entry with its number of user turns, its last turn, and whether namespace `waiting` has
        an entry."""

        def ask(connection: sqlite3.Connection) -> tuple[Any, int, tuple[str, str], bool]:
            turns = "FROM turn_keys WHERE session = ?"
            (users,) = connection.execute(f"SELECT count(*) {turns} AND role = 'user'", (session,)).fetchone()
            last = connection.execute(f"SELECT role, sha {turns} ORDER BY number DESC LIMIT 1", (session,)).fetchone()
            some = "SELECT EXISTS (SELECT 1 FROM entries WHERE namespace = ?)"
            (waits,) = connection.execute(some, (waiting,)).fetchone()
            return entry(connection, (namespace, session)), users, last or ("", ""), bool(waits)

        return await self.file.read(ask)

    async def remove(self, namespace: str, *keys: str) -> None:
        """Removes values; missing ones are skipped."""
        sql = "DELETE FROM entries WHERE namespace = ? AND key IN (SELECT value FROM json_each(?))"
        await self._execute(sql, (namespace, json.dumps(keys)))

    async def _rows(self, sql: str, values: tuple[object, ...] = ()) -> list[Any]:
        return await self.file.read(lambda connection: connection.execute(sql, values).fetchall())

    async def _execute(self, sql: str, values: tuple[object, ...]) -> None:
        await self.file.write(lambda connection: connection.execute(sql, values) and None)


def put_entries(connection: sqlite3.Connection, entries: Mapping[Place, Any]) -> None:
    """Writes entries in the caller's transaction; None deletes one."""
    for place, value in entries.items():
        if value is None:
            connection.execute("DELETE FROM entries WHERE namespace = ? AND key = ?", place)
        else:
            connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (*place, json.dumps(value)))


def entry(connection: sqlite3.Connection, place: Place) -> Any:
    """Returns the value of an entry; None if it is missing."""
    row = connection.execute("SELECT value FROM entries WHERE namespace = ? AND key = ?", place).fetchone()
    return json.loads(row[0]) if row else None


def _save(connection: sqlite3.Connection, row: SessionRow, keys: Sequence[TurnKey]) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(row.session, row.path, row.status, row.project, row.kind, row.delivery, row.title),
            *(
                moment_text(row.opened),
                moment_text(row.last_arrival),
                row.turns,
                row.last_at and moment_text(row.last_at),
                row.size,
            ),
        ),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO turn_keys VALUES (?, ?, ?, ?, ?, ?)",
        [(row.session, key.number, key.role, key.sha, key.nth, key.turn_id) for key in keys],
    )


def _session(row: Any) -> SessionRow:
    (*names, opened, last_arrival, turns, last_at, size) = row
    session, path, status, project, kind, delivery, title = names
    return SessionRow(
        session=session,
        path=path,
        status=status,
        project=project,
        kind=kind if kind in get_args(Kind) else None,
        delivery=delivery if delivery in get_args(Delivery) else None,
        title=title,
        opened=datetime.fromisoformat(opened),
        last_arrival=datetime.fromisoformat(last_arrival),
        turns=turns,
        last_at=datetime.fromisoformat(last_at) if last_at else None,
        size=size,
    )


def _key(row: Any) -> TurnKey:
    _, number, role, sha, nth, turn_id = row
    return TurnKey(number, role, sha, nth, turn_id)
