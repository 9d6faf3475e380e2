"""The state of a team's workspace: sessions, source keys of turns, references, folder ids, and small JSON values.

State and files are written in the same transactions, so the state is always complete: nothing is ever read back.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any, TypeVar, get_args

from psycopg.sql import SQL, Identifier, Placeholder

from mcp_server.conversations.source_keys import Known, TurnKey
from mcp_server.model import Delivery, Kind, Role
from mcp_server.storage.copies import clean_value
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.values import Place, Recorded, SessionRow, moment_text
from mcp_server.text.forgotten import Forgotten

T = TypeVar("T")
_Row = tuple[object, ...]

_SESSION: str = "session, path, status, project, kind, delivery, title, opened, last_arrival, turns, last_at, size"
_KEY: str = "number, role, sha, nth, turn_id"

_EMPTIED = "state emptied"
"""The counter that exists from `empty` to `completed`."""

_TABLES = ("session", "turn_key", "access", "directory", "entry", "live_chunk", "change")
"""The tables of the state, and of the change notices, which name files and sessions."""


class TeamState:
    """The state of one workspace. Every method is one transaction, or a part of the open unit of work."""

    damage: str | None = None

    def __init__(self, database: Database) -> None:
        self._database = database
        self._complete = False

    async def complete(self) -> bool:
        """Returns True unless the state was emptied: state and transcripts change together."""
        if not self._complete:
            self._complete = not await self._rows("SELECT 1 FROM counter WHERE ws = %s AND name = %s", _EMPTIED)
        return self._complete

    async def completed(self) -> None:
        """Records that the state has been read back from the transcripts."""
        await self._execute("DELETE FROM counter WHERE ws = %s AND name = %s", _EMPTIED)

    async def data_version(self) -> int:
        """Returns the number of the last change notice of any process."""
        rows = await self._rows("SELECT value FROM counter WHERE ws = %s AND name = 'change'")
        return int(rows[0][0]) if rows else 0

    # sessions and source keys

    async def session(self, session: str) -> SessionRow | None:
        """Returns a session; None if it is unknown."""
        rows = await self._rows(f"SELECT {_SESSION} FROM session WHERE ws = %s AND session = %s", session)
        return _session(rows[0]) if rows else None

    async def sessions(self, open_only: bool = False) -> list[SessionRow]:
        """Returns all sessions, or the open ones, oldest first."""
        where: str = "AND status = 'open'" if open_only else ""
        rows = await self._rows(f"SELECT {_SESSION} FROM session WHERE ws = %s {where} ORDER BY opened, session")
        return [_session(row) for row in rows]

    async def save_session(self, row: SessionRow, keys: Sequence[TurnKey] = ()) -> None:
        """Writes the session's row and adds the keys of newly recorded turns."""
        await self._database.call(lambda connection: _save(connection, self._ws, row, keys))

    async def keys(self, session: str) -> list[TurnKey]:
        """Returns the keys of all turns of a session, ordered by number."""
        rows = await self._rows(f"SELECT {_KEY} FROM turn_key WHERE ws = %s AND session = %s ORDER BY number", session)
        return [TurnKey(*row) for row in rows]

    async def last_number(self, session: str) -> int:
        """Returns the number of the last turn with known keys; 0 for none."""
        rows = await self._rows("SELECT coalesce(max(number), 0) FROM turn_key WHERE ws = %s AND session = %s", session)
        return int(rows[0][0])

    async def count_turns(self, session: str, role: Role) -> int:
        """Returns the number of a session's turns of one role."""
        rows = await self._rows(
            "SELECT count(*) FROM turn_key WHERE ws = %s AND session = %s AND role = %s", session, role
        )
        return int(rows[0][0])

    async def recorded(self, session: str, role: Role, sha: str, turn_id: str | None) -> Recorded:
        """Returns what is needed to record an arriving turn, and to tell whether it is a repeat."""

        def ask(connection: Connection) -> Recorded:
            one: str = f"SELECT {_KEY} FROM turn_key WHERE ws = %s AND session = %s"
            here = (self._ws, session)
            same = connection.execute(f"{one} AND turn_id = %s", (*here, turn_id)).fetchone() if turn_id else None
            last = connection.execute(f"{one} ORDER BY number DESC LIMIT 1", here).fetchone()
            nth = connection.execute(
                "SELECT count(*) FROM turn_key WHERE ws = %s AND session = %s AND role = %s AND sha = %s",
                (*here, role, sha),
            ).fetchone()
            row = connection.execute(f"SELECT {_SESSION} FROM session WHERE ws = %s AND session = %s", here).fetchone()
            return Recorded(
                _session(row) if row else None,
                TurnKey(*same) if same else None,
                TurnKey(*last) if last else None,
                int(nth[0]) if nth else 0,
            )

        return await self._database.call(ask)

    async def known(self, session: str, arriving: Sequence[tuple[Role, str, str]], *, anywhere: bool = False) -> Known:
        """Returns the recorded turns that match an arriving sequence of `(role, sha, turn_id)`.

        With `anywhere`, ids are unique beyond the session: other sessions are searched too.
        """
        ids = [turn_id for _, _, turn_id in arriving]
        shas = sorted({sha for _, sha, _ in arriving})

        def ask(connection: Connection) -> Known:
            named = connection.execute(
                "SELECT turn_id, session FROM turn_key WHERE ws = %s AND turn_id = ANY(%s)", (self._ws, ids)
            ).fetchall()
            same = connection.execute(
                "SELECT role, sha, turn_id, number FROM turn_key "
                "WHERE ws = %s AND session = %s AND sha = ANY(%s) ORDER BY number",
                (self._ws, session, shas),
            ).fetchall()
            counts: Counter[tuple[Role, str]] = Counter((role, sha) for role, sha, _, _ in same)
            nameless: dict[tuple[Role, str], tuple[int, ...]] = {}
            for role, sha, turn_id, number in same:
                if turn_id is None:
                    nameless[role, sha] = (*nameless.get((role, sha), ()), number)
            return Known(
                frozenset(turn_id for turn_id, where in named if where == session),
                counts,
                nameless,
                frozenset(turn_id for turn_id, where in named if where != session) if anywhere else frozenset(),
            )

        return await self._database.call(ask)

    async def name_turns(self, session: str, named: Sequence[tuple[int, str]]) -> None:
        """Adds ids to recorded turns that have none: pairs of number and id."""
        statement: str = (
            "UPDATE turn_key SET turn_id = %s WHERE ws = %s AND session = %s AND number = %s AND turn_id IS NULL"
        )
        values = [(turn_id, self._ws, session, number) for number, turn_id in named]
        await self._database.call(lambda connection: _execute_all(connection, statement, values))

    async def forget_keys(self, session: str) -> None:
        """Deletes the keys of a session whose transcripts were rewritten."""
        await self._execute("DELETE FROM turn_key WHERE ws = %s AND session = %s", session)

    # forgetting

    async def held(self, request: Forgotten) -> dict[str, int]:
        """Returns for each table the number of rows that contain text of a request."""
        return await self._database.call(
            lambda connection: {
                table: len(stale) for table in _TABLES if (stale := _stale(connection, self._ws, table, request)[1])
            }
        )

    async def scrub(self, request: Forgotten) -> str:
        """Removes the text of a request from all rows, and lets the server reuse the space of deleted rows. Returns a
        sentence if only an administrator can do that, else ""."""
        from anyio.to_thread import run_sync

        await self._database.call(lambda connection: _scrub(connection, self._ws, request))
        return await run_sync(self._database.vacuum)

    async def empty(self, kept: Iterable[str]) -> None:
        """Deletes everything except folder ids and the entries of these namespaces.

        The transcripts must be read back afterwards. Only for a process that is alone on the workspace.
        """

        def clear(connection: Connection) -> None:
            for table in _TABLES:
                if table not in ("directory", "entry"):
                    connection.execute(SQL("DELETE FROM {} WHERE ws = %s").format(Identifier(table)), (self._ws,))
            connection.execute("DELETE FROM entry WHERE ws = %s AND namespace <> ALL(%s)", (self._ws, list(kept)))
            connection.execute(
                "INSERT INTO counter (ws, name, value) VALUES (%s, %s, 1) ON CONFLICT DO NOTHING", (self._ws, _EMPTIED)
            )

        await self._database.call(clear)
        self._complete = False

    # references

    async def log_access(self, path: str, kind: str, at: datetime) -> None:
        """Records that a file was read or recovered."""
        await self._execute(
            "INSERT INTO access (ws, path, kind, at, id) VALUES (%s, %s, %s, %s, %s)",
            path,
            kind,
            moment_text(at),
            secrets.randbits(63),
        )

    async def references(self, paths: Iterable[str]) -> dict[str, int]:
        """Returns how often each of these files was read or recovered; others are left out."""
        rows = await self._rows(
            "SELECT path, count(*) FROM access WHERE ws = %s AND path = ANY(%s) GROUP BY path", sorted(set(paths))
        )
        return {str(path): int(count) for path, count in rows}

    async def last_accesses(self, paths: Iterable[str]) -> dict[str, datetime]:
        """Returns when each of these files was last read or recovered; others are left out."""
        rows = await self._rows(
            "SELECT path, max(at) FROM access WHERE ws = %s AND path = ANY(%s) GROUP BY path", sorted(set(paths))
        )
        return {str(path): datetime.fromisoformat(at) for path, at in rows}

    async def access_since(self) -> datetime | None:
        """Returns the time of the first recorded read or recovery; None without any."""
        first = (await self._rows("SELECT min(at) FROM access WHERE ws = %s"))[0][0]
        return datetime.fromisoformat(first) if first else None

    # folders without a name

    async def directory_ids(self) -> dict[str, str]:
        """Returns the random id of each folder."""
        return dict(await self._rows("SELECT folder, id FROM directory WHERE ws = %s"))

    async def name_directory(self, folder: str, new_id: str) -> str:
        """Stores a folder's id and returns it: `new_id`, unless another process was first."""
        await self._execute("INSERT INTO directory VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", folder, new_id)
        return (await self.directory_ids())[folder]

    # small values

    async def get(self, namespace: str, key: str) -> Any:
        """Returns a stored value, or None."""
        return (await self.get_all([(namespace, key)]))[0]

    async def get_all(self, places: Sequence[tuple[str, str]]) -> list[Any]:
        """Returns the values at these places (namespace and key), in their order, as of one moment; None if missing."""
        found = await self._database.call(lambda connection: read_entries(connection, self._ws, places))
        return [found.get(place) for place in places]

    async def entries(self, namespace: str) -> dict[str, Any]:
        """Returns the values of a namespace by key."""
        rows = await self._rows("SELECT key, value FROM entry WHERE ws = %s AND namespace = %s ORDER BY key", namespace)
        return {key: json.loads(value) for key, value in rows}

    async def keys_of(self, namespace: str) -> list[str]:
        """Returns the keys of a namespace."""
        rows = await self._rows("SELECT key FROM entry WHERE ws = %s AND namespace = %s ORDER BY key", namespace)
        return [key for (key,) in rows]

    async def put(self, namespace: str, key: str, value: Any, *, waits: bool = True) -> None:
        """Stores a JSON value."""
        stored = json.dumps(value)
        await self._database.call(lambda connection: _put_json(connection, self._ws, (namespace, key), stored))

    async def add(self, namespace: str, key: str, value: Any, most: int) -> None:
        """Appends to a list of JSON values and keeps the last `most`."""

        def appended(stored: Mapping[Place, Any]) -> tuple[None, Mapping[Place, Any]]:
            listed = stored.get((namespace, key))
            return None, {(namespace, key): [*(listed if isinstance(listed, list) else []), value][-most:]}

        await self.change_entries([(namespace, key)], appended)

    async def change_entries(
        self,
        places: Iterable[Place],
        change: Callable[[Mapping[Place, Any]], tuple[T, Mapping[Place, Any]]],
        *,
        waits: bool = True,
    ) -> T:
        """Reads and writes several values in one transaction; other processes wait meanwhile.

        `change` gets the stored values by place, and returns a result and the values to write; None deletes one.
        """
        asked = sorted(set(places))

        def apply(connection: Connection) -> T:
            # A missing value gets a row meanwhile, which no other transaction sees: only rows can be locked.
            for place in asked:
                connection.execute(
                    "INSERT INTO entry (ws, namespace, key, value) VALUES (%s, %s, %s, 'null') ON CONFLICT DO NOTHING",
                    (self._ws, *place),
                )
            stored = read_entries(connection, self._ws, asked, lock=True)
            result, changed = change(stored)
            put_entries(connection, self._ws, {**{place: None for place in asked if place not in stored}, **changed})
            return result

        return await self._database.call(apply)

    async def session_entry(self, namespace: str, session: str, waiting: str) -> tuple[Any, int, tuple[str, str], bool]:
        """Returns a session's entry with its number of user turns, its last turn, and whether namespace `waiting` has
        an entry."""
        turns: str = "FROM turn_key WHERE ws = %s AND session = %s"
        here = (self._ws, session)
        rows = await self._database.call(
            lambda connection: connection.execute(
                "SELECT (SELECT value FROM entry WHERE ws = %s AND namespace = %s AND key = %s), "
                f"(SELECT count(*) {turns} AND role = 'user'), "
                f"(SELECT role {turns} ORDER BY number DESC LIMIT 1), "
                f"(SELECT sha {turns} ORDER BY number DESC LIMIT 1), "
                "EXISTS (SELECT 1 FROM entry WHERE ws = %s AND namespace = %s)",
                (self._ws, namespace, session, *here, *here, *here, self._ws, waiting),
            ).fetchall()
        )
        value, users, role, sha, waits = rows[0]
        return (None if value is None else json.loads(value)), int(users), (role or "", sha or ""), bool(waits)

    async def remove(self, namespace: str, *keys: str) -> None:
        """Removes values; missing ones are skipped."""
        await self._execute(
            "DELETE FROM entry WHERE ws = %s AND namespace = %s AND key = ANY(%s)", namespace, list(keys)
        )

    @property
    def _ws(self) -> int:
        return self._database.ws

    async def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._database.call(
            lambda connection: connection.execute(statement, (self._ws, *values)).fetchall()
        )

    async def _execute(self, statement: str, *values: object) -> None:
        await self._database.call(lambda connection: connection.execute(statement, (self._ws, *values)) and None)


def read_entries(connection: Connection, ws: int, places: Sequence[Place], *, lock: bool = False) -> dict[Place, Any]:
    """Returns the stored values at these places; missing ones are left out. With `lock` they stay locked until the
    transaction ends."""
    locking: str = " FOR UPDATE OF e" if lock else ""
    rows = connection.execute(
        "SELECT e.namespace, e.key, e.value FROM unnest(%s::text[], %s::text[]) AS p (namespace, key) "
        f"JOIN entry e ON e.ws = %s AND e.namespace = p.namespace AND e.key = p.key{locking}",
        ([namespace for namespace, _ in places], [key for _, key in places], ws),
    ).fetchall()
    found = {(namespace, key): json.loads(value) for namespace, key, value in rows}
    return {place: value for place, value in found.items() if value is not None}


def put_entries(connection: Connection, ws: int, entries: Mapping[Place, Any]) -> None:
    """Writes entries in the caller's transaction; None deletes one."""
    for place, value in entries.items():
        if value is None:
            connection.execute("DELETE FROM entry WHERE ws = %s AND namespace = %s AND key = %s", (ws, *place))
        else:
            _put_json(connection, ws, place, json.dumps(value))


def _put_json(connection: Connection, ws: int, place: Place, value: str) -> None:
    connection.execute(
        "INSERT INTO entry (ws, namespace, key, value) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (ws, namespace, key) DO UPDATE SET value = excluded.value",
        (ws, *place, value),
    )


def _execute_all(connection: Connection, statement: str, values: Sequence[tuple[object, ...]]) -> None:
    if values:
        connection.cursor().executemany(statement, values)


def _save(connection: Connection, ws: int, row: SessionRow, keys: Sequence[TurnKey]) -> None:
    connection.execute(
        f"INSERT INTO session (ws, {_SESSION}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
        "ON CONFLICT (ws, session) DO UPDATE SET path = excluded.path, status = excluded.status, "
        "project = excluded.project, kind = excluded.kind, delivery = excluded.delivery, title = excluded.title, "
        "opened = excluded.opened, last_arrival = excluded.last_arrival, turns = excluded.turns, "
        "last_at = excluded.last_at, size = excluded.size",
        (
            *(ws, row.session, row.path, row.status, row.project, row.kind, row.delivery, storable(row.title)),
            *(moment_text(row.opened), moment_text(row.last_arrival), row.turns),
            *(moment_text(row.last_at) if row.last_at else None, row.size),
        ),
    )
    _execute_all(
        connection,
        f"INSERT INTO turn_key (ws, session, {_KEY}) VALUES (%s, %s, %s, %s, %s, %s, %s) "
        "ON CONFLICT (ws, session, number) DO UPDATE SET role = excluded.role, sha = excluded.sha, "
        "nth = excluded.nth, turn_id = excluded.turn_id",
        [(ws, row.session, key.number, key.role, key.sha, key.nth, key.turn_id) for key in keys],
    )


def _stale(
    connection: Connection, ws: int, table: str, request: Forgotten
) -> tuple[list[str], list[tuple[_Row, _Row]]]:
    """Returns the columns of a table, and its rows with forgotten text, each before and after cleaning."""
    cursor = connection.execute(SQL("SELECT * FROM {} WHERE ws = %s").format(Identifier(table)), (ws,))
    columns = [column.name for column in cursor.description or ()]
    stale = [(row, fresh) for row in cursor if (fresh := tuple(map(clean_value, columns, row, repeat(request)))) != row]
    return columns, stale


def _scrub(connection: Connection, ws: int, request: Forgotten) -> None:
    for table in _TABLES:
        columns, stale = _stale(connection, ws, table, request)
        name = Identifier(table)
        same = SQL(" AND ").join(SQL("{} IS NOT DISTINCT FROM %s").format(Identifier(column)) for column in columns)
        marks = SQL(", ").join([Placeholder()] * len(columns))
        for row, fresh in stale:
            connection.execute(SQL("DELETE FROM {} WHERE {}").format(name, same), row)
            connection.execute(SQL("INSERT INTO {} VALUES ({}) ON CONFLICT DO NOTHING").format(name, marks), fresh)


def storable(text: str) -> str:
    """Returns the text without U+0000 and halves of surrogate pairs, which PostgreSQL refuses."""
    clean = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\0", "\ufffd")


def _session(row: tuple[Any, ...]) -> SessionRow:
    session, path, status, project, kind, delivery, title, opened, last_arrival, turns, last_at, size = row
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
