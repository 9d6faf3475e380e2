"""Live state that no file holds: `.local/state.db`. What stands in transcripts is only cached here.

A damaged or missing state.db is replaced by an empty one (`state_file`); `complete` is False until the transcripts were
read back into it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

from mcp_server.conversations.source_keys import Known, TurnKey
from mcp_server.model import Delivery, Kind, Role
from mcp_server.storage.local import scrubbing
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.local.state_file import StateFile
from mcp_server.storage.local.state_tables import create
from mcp_server.text.forgotten import Forgotten

T = TypeVar("T")

WIPE_TRIES = 100
"""So often, 50 ms apart, it is tried to empty the write-ahead log while others read."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """What the state knows of a session. `kind` and `delivery` are None until a call named them (SPEC §2)."""

    session: str
    path: str
    status: str
    project: str
    kind: Kind | None
    delivery: Delivery | None
    title: str
    opened: datetime
    last_arrival: datetime
    turns: int
    last_at: datetime | None
    size: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session's row, its turns that an arriving turn may repeat (the one with its id, the last one), and the arriving
    turn's `nth`."""

    row: SessionRow | None
    same_id: TurnKey | None
    last: TurnKey | None
    nth: int


class State:
    """The port. Made by `State.open`; every method is one transaction."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._complete: int | None = None  # which file was found complete: asked at every turn, and it stays so

    @classmethod
    async def open(cls, path: Path, locks: Locks) -> State:
        """Opens or creates the file; a damaged one is moved aside under a new name, never deleted."""
        return cls(await StateFile.open(path, locks, create))

    async def close(self) -> None:
        """Closes the file; a second call does nothing."""
        await self._file.close()

    @property
    def moved_aside(self) -> Path | None:
        """Where a damaged file went, for `status` to tell."""
        return self._file.moved_aside

    async def data_version(self) -> int:
        """Another number after another connection has committed, or after the file was replaced."""
        return await self._file.data_version()

    async def complete(self) -> bool:
        """False for a new file: the transcripts were not read back yet."""
        if self._complete != self._file.replaced and await self.get("state", "complete") is True:
            self._complete = self._file.replaced
        return self._complete == self._file.replaced

    async def completed(self) -> None:
        """Says that the transcripts were read back."""
        await self.put("state", "complete", True)

    # sessions and source keys

    async def session(self, session: str) -> SessionRow | None:
        """What is known of a session, if anything is."""
        rows = await self._rows("SELECT * FROM sessions WHERE session = ?", (session,))
        return _session(rows[0]) if rows else None

    async def sessions(self, open_only: bool = False) -> list[SessionRow]:
        """All sessions, the oldest first."""
        where = "WHERE status = 'open'" if open_only else ""
        return [_session(row) for row in await self._rows(f"SELECT * FROM sessions {where} ORDER BY opened, session")]

    async def save_session(self, row: SessionRow, keys: Sequence[TurnKey] = ()) -> None:
        """Replaces the session's row and adds the keys of turns that were recorded with it."""
        await self.write(lambda connection: _save(connection, row, keys))

    async def keys(self, session: str) -> list[TurnKey]:
        """The keys of every turn of the session, in the order of their numbers."""
        rows = await self._rows("SELECT * FROM turn_keys WHERE session = ? ORDER BY number", (session,))
        return [_key(row) for row in rows]

    async def last_number(self, session: str) -> int:
        """The number of the last turn whose keys are known; 0 if there is none."""
        rows = await self._rows("SELECT coalesce(max(number), 0) FROM turn_keys WHERE session = ?", (session,))
        return int(rows[0][0])

    async def count_turns(self, session: str, role: Role) -> int:
        """How many turns of a role the session has."""
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

        return await self.read(ask)

    async def known(self, session: str, arriving: Sequence[tuple[Role, str, str]], *, anywhere: bool = False) -> Known:
        """What is recorded of an arriving sequence of `(role, sha, turn_id)`, without reading all keys. `anywhere`: the
        ids are unique beyond the session, so that other sessions are asked too."""
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

        return await self.read(ask)

    async def name_turns(self, session: str, named: Sequence[tuple[int, str]]) -> None:
        """Gives recorded turns, by number, the ids that they came without."""
        sql = "UPDATE turn_keys SET turn_id = ? WHERE session = ? AND number = ? AND turn_id IS NULL"
        values = [(turn_id, session, number) for number, turn_id in named]
        await self.write(lambda connection: connection.executemany(sql, values) and None)

    async def forget_keys(self, session: str) -> None:
        """Empties the keys of one session, whose transcripts were written anew."""
        await self._execute("DELETE FROM turn_keys WHERE session = ?", (session,))

    # what was deleted on request

    async def held(self, request: Forgotten) -> dict[str, int]:
        """How many rows of which table hold what a request names."""
        return await self.read(lambda connection: scrubbing.held(connection, request))

    async def scrub(self, request: Forgotten) -> bool:
        """Takes what a request names out of every row, and out of the pages that rows have left behind.

        False if another process kept reading for so long that the write-ahead log could not be emptied.
        """
        from anyio import sleep

        await self.write(lambda connection: scrubbing.scrub(connection, request))
        for _ in range(WIPE_TRIES):
            if await self._file.outside(scrubbing.wipe):
                return True
            await sleep(0.05)
        return False

    async def empty(self, kept: Iterable[str]) -> None:
        """Deletes every row but the names of folders and the entries of these namespaces, and writes the file anew.

        What transcripts hold has to be read back afterwards. For a process that is alone on the workspace.
        """
        spared = json.dumps(list(kept))

        def clear(connection: sqlite3.Connection) -> None:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                if table not in ("directories", "entries"):
                    connection.execute(f"DELETE FROM {table}")
            connection.execute("DELETE FROM entries WHERE namespace NOT IN (SELECT value FROM json_each(?))", (spared,))

        await self.write(clear)
        self._complete = None
        await self._file.outside(scrubbing.wipe)

    # references

    async def log_access(self, path: str, kind: str, at: datetime) -> None:
        """Notes that `path` was read or recovered."""
        await self._execute("INSERT INTO access_log VALUES (?, ?, ?)", (path, kind, _text(at)))

    async def references(self, paths: Iterable[str]) -> dict[str, int]:
        """How often each of `paths` was read or recovered; paths never touched are left out."""
        asked = json.dumps(sorted(set(paths)))
        sql = "SELECT path, count(*) FROM access_log WHERE path IN (SELECT value FROM json_each(?)) GROUP BY path"
        return {str(path): int(count) for path, count in await self._rows(sql, (asked,))}

    async def last_accesses(self, paths: Iterable[str]) -> dict[str, datetime]:
        """When each of `paths` was last read or recovered; paths never touched are left out."""
        asked = json.dumps(sorted(set(paths)))
        sql = "SELECT path, max(at) FROM access_log WHERE path IN (SELECT value FROM json_each(?)) GROUP BY path"
        return {str(path): datetime.fromisoformat(at) for path, at in await self._rows(sql, (asked,))}

    async def access_since(self) -> datetime | None:
        """When the first read or recovery was noted: so far back the references reach. None without any."""
        first = (await self._rows("SELECT min(at) FROM access_log"))[0][0]
        return datetime.fromisoformat(first) if first else None

    # folders without a name

    async def directory_ids(self) -> dict[str, str]:
        """Folder → random id."""
        return dict(await self._rows("SELECT folder, id FROM directories"))

    async def name_directory(self, folder: str, new_id: str) -> str:
        """The folder's id: `new_id`, unless another process was first."""
        await self._execute("INSERT OR IGNORE INTO directories VALUES (?, ?)", (folder, new_id))
        return (await self.directory_ids())[folder]

    # small values

    async def get(self, namespace: str, key: str) -> Any:
        """The stored value, or None."""
        rows = await self._rows("SELECT value FROM entries WHERE namespace = ? AND key = ?", (namespace, key))
        return json.loads(rows[0][0]) if rows else None

    async def get_all(self, places: Sequence[tuple[str, str]]) -> list[Any]:
        """Returns the values at these places (namespace and key), in their order, as of one moment; None if missing."""
        sql = "SELECT value FROM entries WHERE namespace = ? AND key = ?"
        rows = await self.read(lambda connection: [connection.execute(sql, place).fetchone() for place in places])
        return [json.loads(row[0]) if row else None for row in rows]

    async def entries(self, namespace: str) -> dict[str, Any]:
        """Every value of a namespace by its key."""
        rows = await self._rows("SELECT key, value FROM entries WHERE namespace = ? ORDER BY key", (namespace,))
        return {key: json.loads(value) for key, value in rows}

    async def keys_of(self, namespace: str) -> list[str]:
        """The keys of a namespace, without reading the values."""
        return [key for (key,) in await self._rows("SELECT key FROM entries WHERE namespace = ?", (namespace,))]

    async def put(self, namespace: str, key: str, value: Any, *, waits: bool = True) -> None:
        """Stores a JSON value; `waits` as in `write`."""
        row = (namespace, key, json.dumps(value))
        sql = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?)"
        await self.write(lambda connection: connection.execute(sql, row) and None, waits=waits)

    async def add(self, namespace: str, key: str, value: Any, most: int) -> None:
        """Adds to a list of JSON values, of which the last `most` stay. It does not wait for the disk (see `write`)."""

        def change(connection: sqlite3.Connection) -> None:
            sql = "SELECT value FROM entries WHERE namespace = ? AND key = ?"
            stored = connection.execute(sql, (namespace, key)).fetchone()
            listed = json.loads(stored[0]) if stored else []
            kept = [*(listed if isinstance(listed, list) else []), value][-most:]
            connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (namespace, key, json.dumps(kept)))

        await self.write(change, waits=False)

    async def remove(self, namespace: str, *keys: str) -> None:
        """Removes values; nothing happens if there are none."""
        sql = "DELETE FROM entries WHERE namespace = ? AND key IN (SELECT value FROM json_each(?))"
        await self._execute(sql, (namespace, json.dumps(keys)))

    # for the stores that keep tables of their own here

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """As `Database.read`."""
        return await self._file.read(fn)

    async def write(self, fn: Callable[[sqlite3.Connection], T], *, waits: bool = True) -> T:
        """As `Database.write`."""
        return await self._file.write(fn, waits=waits)

    async def _rows(self, sql: str, values: tuple[object, ...] = ()) -> list[Any]:
        return await self.read(lambda connection: connection.execute(sql, values).fetchall())

    async def _execute(self, sql: str, values: tuple[object, ...]) -> None:
        await self.write(lambda connection: connection.execute(sql, values) and None)


def _save(connection: sqlite3.Connection, row: SessionRow, keys: Sequence[TurnKey]) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(row.session, row.path, row.status, row.project, row.kind, row.delivery, row.title),
            *(_text(row.opened), _text(row.last_arrival), row.turns, row.last_at and _text(row.last_at), row.size),
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
        opened=_time(opened),
        last_arrival=_time(last_arrival),
        turns=turns,
        last_at=_time(last_at) if last_at else None,
        size=size,
    )


def _key(row: Any) -> TurnKey:
    _, number, role, sha, nth, turn_id = row
    return TurnKey(number, role, sha, nth, turn_id)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
