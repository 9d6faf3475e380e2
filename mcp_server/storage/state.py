"""The state of a workspace: sessions, source keys of turns, references, folder ids, and small JSON values.

Both engines run the statements below. Names in braces are the parts in which their SQL differs: see `Dialect`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, get_args

from mcp_server.conversations.source_keys import Known, TurnKey
from mcp_server.model import Delivery, Kind, Role
from mcp_server.storage.forgotten import clean_value
from mcp_server.storage.values import Place, Recorded, SessionRow, stored_moment
from mcp_server.text.forgotten import Forgotten

T = TypeVar("T")

SESSION_COLUMNS = tuple(field.name for field in fields(SessionRow))
KEY_COLUMNS = tuple(field.name for field in fields(TurnKey))
_SESSION, _KEY = ", ".join(SESSION_COLUMNS), ", ".join(KEY_COLUMNS)
_SET_SESSION = ", ".join(f"{name} = excluded.{name}" for name in SESSION_COLUMNS[1:])
_SET_KEY = ", ".join(f"{name} = excluded.{name}" for name in KEY_COLUMNS[1:])
_PUT = (
    "INSERT INTO {entry} ({ws_}namespace, key, value) VALUES ({ws}?, ?, ?) "
    "ON CONFLICT ({ws_}namespace, key) DO UPDATE SET value = excluded.value"
)

PLACES = 100
"""Most values that one statement reads."""


class Dialect:
    """The SQL in which the engines differ. `parts` has the names of the tables, and:

    `here`   the beginning of a condition: selects the rows of this workspace
    `ws_`    the beginning of a list of columns, and `ws` of a list of values: the workspace's number
    `among`  the end of a condition: the value is in a list, which is bound as `array` returns it
    `same`   an operator that compares two values, which may be NULL
    """

    def __init__(self, mark: str, array: Callable[[list[Any]], Any], parts: Mapping[str, str]) -> None:
        self.array = array
        self.parts = parts
        self.statement: Callable[[str], str] = cache(lambda text: text.format_map(parts).replace("?", mark))
        """Returns a statement of this file in the engine's SQL."""


class Transaction:
    """Runs statements within an open transaction."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self._connection = connection
        self._dialect = dialect

    def run(self, statement: str, *values: object) -> Any:
        """Runs a statement, and returns its cursor. Lists are values for `among`. Texts are made `storable`."""
        return self._connection.execute(self._dialect.statement(statement), self._bound(values))

    def rows(self, statement: str, *values: object) -> list[Any]:
        found: list[Any] = self.run(statement, *values).fetchall()
        return found

    def each(self, statement: str, values: Sequence[Sequence[object]]) -> None:
        if values:
            self._connection.cursor().executemany(self._dialect.statement(statement), map(self._bound, values))

    def _bound(self, values: Sequence[object]) -> list[object]:
        return [
            storable(one) if isinstance(one, str) else self._dialect.array(one) if isinstance(one, list) else one
            for one in values
        ]


class Store(Protocol):
    """Runs functions in transactions of an engine, on a thread of their own."""

    def read(self, fn: Callable[[Any], T]) -> Awaitable[T]: ...
    def write(self, fn: Callable[[Any], T], *, waits: bool = True) -> Awaitable[T]: ...


class Tables:
    """Runs statements on the tables of the state."""

    def __init__(self, store: Store, dialect: Dialect) -> None:
        self.store = store
        self.dialect = dialect

    def read(self, work: Callable[[Transaction], T]) -> Awaitable[T]:
        """Returns `work(transaction)`. All its queries see the same snapshot."""
        return self.store.read(lambda connection: work(Transaction(connection, self.dialect)))

    def write(self, work: Callable[[Transaction], T], *, waits: bool = True) -> Awaitable[T]:
        """Returns `work(transaction)` after the commit. Without `waits`, the commit does not wait for the disk: a power
        cut may lose it, a crash of the process cannot."""
        return self.store.write(lambda connection: work(Transaction(connection, self.dialect)), waits=waits)

    def rows(self, statement: str, *values: object) -> Awaitable[list[Any]]:
        return self.read(lambda transaction: transaction.rows(statement, *values))

    def value(self, statement: str, *values: object) -> Awaitable[Any]:
        return self.read(lambda transaction: transaction.rows(statement, *values)[0][0])

    def run(self, statement: str, *values: object) -> Awaitable[None]:
        return self.write(lambda transaction: transaction.run(statement, *values) and None)


class State(Tables, ABC):
    """The state of one workspace. Every method is one transaction, or a part of the open unit of work."""

    damage: str | None = None
    """A sentence about a damaged file that was replaced, for `status`."""

    @abstractmethod
    async def complete(self) -> bool:
        """Returns False until the transcripts were read back into a new or emptied state."""

    @abstractmethod
    def completed(self) -> Awaitable[None]:
        """Records that the transcripts were read back."""

    @abstractmethod
    def data_version(self) -> Awaitable[int]:
        """Returns a number that changes when another process changes the state."""

    # sessions and source keys

    def session(self, session: str) -> Awaitable[SessionRow | None]:
        return self.read(lambda transaction: _session_row(transaction, session))

    async def sessions(self, open_only: bool = False) -> list[SessionRow]:
        """Returns all sessions, or the open ones, oldest first."""
        where = "status = 'open'" if open_only else "true"
        rows = await self.rows(f"SELECT {_SESSION} FROM {{session}} WHERE {{here}}{where} ORDER BY opened, session")
        return [_session(row) for row in rows]

    def save_session(
        self, row: SessionRow, keys: Sequence[TurnKey] = (), entries: Mapping[Place, Any] = MappingProxyType({})
    ) -> Awaitable[None]:
        """Writes the session's row, adds the keys of newly recorded turns, and writes the values of `entries`."""
        values = (
            *(row.session, row.path, row.status, row.project, row.kind, row.delivery, row.title),
            *(stored_moment(row.opened), stored_moment(row.last_arrival), row.turns),
            *(row.last_at and stored_moment(row.last_at), row.size),
        )

        def save(transaction: Transaction) -> None:
            transaction.run(
                f"INSERT INTO {{session}} ({{ws_}}{_SESSION}) VALUES ({{ws}}?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                f"ON CONFLICT ({{ws_}}session) DO UPDATE SET {_SET_SESSION}",
                *values,
            )
            transaction.each(
                f"INSERT INTO {{turn_key}} ({{ws_}}session, {_KEY}) VALUES ({{ws}}?, ?, ?, ?, ?, ?) "
                f"ON CONFLICT ({{ws_}}session, number) DO UPDATE SET {_SET_KEY}",
                [(row.session, key.number, key.role, key.sha, key.nth, key.turn_id) for key in keys],
            )
            put_entries(transaction, entries)

        return self.write(save)

    async def keys(self, session: str) -> list[TurnKey]:
        """Returns the keys of all turns of a session, ordered by number."""
        statement = f"SELECT {_KEY} FROM {{turn_key}} WHERE {{here}}session = ? ORDER BY number"
        return [TurnKey(*row) for row in await self.rows(statement, session)]

    def last_number(self, session: str) -> Awaitable[int]:
        """Returns the number of the last turn with known keys; 0 for none."""
        return self.value("SELECT coalesce(max(number), 0) FROM {turn_key} WHERE {here}session = ?", session)

    def count_turns(self, session: str, role: Role) -> Awaitable[int]:
        """Returns the number of a session's turns of one role."""
        return self.value("SELECT count(*) FROM {turn_key} WHERE {here}session = ? AND role = ?", session, role)

    def recorded(self, session: str, role: Role, sha: str, turn_id: str | None) -> Awaitable[Recorded]:
        """Returns the data that is needed to record an arriving turn, and to decide whether it is a repeat."""
        one = f"SELECT {_KEY} FROM {{turn_key}} WHERE {{here}}session = ?"

        def ask(transaction: Transaction) -> Recorded:
            same = transaction.rows(f"{one} AND turn_id = ?", session, turn_id) if turn_id else []
            last = transaction.rows(f"{one} ORDER BY number DESC LIMIT 1", session)
            count = "SELECT count(*) FROM {turn_key} WHERE {here}session = ? AND role = ? AND sha = ?"
            nth = transaction.rows(count, session, role, sha)[0][0]
            known, newest = (TurnKey(*rows[0]) if rows else None for rows in (same, last))
            return Recorded(_session_row(transaction, session), known, newest, int(nth))

        return self.read(ask)

    def known(
        self, session: str, arriving: Sequence[tuple[Role, str, str]], *, anywhere: bool = False
    ) -> Awaitable[Known]:
        """Returns the recorded turns that match an arriving sequence of `(role, sha, turn_id)`.

        With `anywhere`, the ids are unique in all sessions, and other sessions are searched for them too.
        """
        ids = [turn_id for _, _, turn_id in arriving]
        shas = sorted({sha for _, sha, _ in arriving})

        def ask(transaction: Transaction) -> Known:
            given = "SELECT turn_id FROM {turn_key} WHERE {here}session %s ? AND turn_id {among}"
            here = transaction.rows(given % "=", session, ids)
            elsewhere = transaction.rows(given % "<>", session, ids) if anywhere else []
            same = transaction.rows(
                "SELECT role, sha, turn_id, number FROM {turn_key} "
                "WHERE {here}session = ? AND sha {among} ORDER BY number",
                session,
                shas,
            )
            counts: Counter[tuple[Role, str]] = Counter((role, sha) for role, sha, _, _ in same)
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

        return self.read(ask)

    def name_turns(self, session: str, named: Sequence[tuple[int, str]]) -> Awaitable[None]:
        """Adds ids to recorded turns that have none: pairs of number and id."""
        statement = "UPDATE {turn_key} SET turn_id = ? WHERE {here}session = ? AND number = ? AND turn_id IS NULL"
        values = [(turn_id, session, number) for number, turn_id in named]
        return self.write(lambda transaction: transaction.each(statement, values))

    def forget_keys(self, session: str) -> Awaitable[None]:
        """Deletes the keys of a session whose transcripts were rewritten."""
        return self.run("DELETE FROM {turn_key} WHERE {here}session = ?", session)

    # forgetting

    def held(self, request: Forgotten) -> Awaitable[dict[str, int]]:
        """Returns for each table the number of rows that contain text of a request."""

        def count(transaction: Transaction) -> dict[str, int]:
            found = {table: len(_stale(transaction, table, request)[1]) for table in self._tables(transaction)}
            return {table: number for table, number in found.items() if number}

        return self.read(count)

    async def scrub(self, request: Forgotten) -> str:
        """Removes the text of a request from all rows, and the traces of deleted rows from the disk.

        Returns a sentence about traces that are left on the disk, or "".
        """

        def clean(transaction: Transaction) -> None:
            for table in self._tables(transaction):
                columns, stale = _stale(transaction, table, request)
                same = " AND ".join(f'"{column}" {{same}} ?' for column in columns)
                marks = ", ".join("?" * len(columns))
                for row, fresh in stale:
                    transaction.run(f'DELETE FROM "{table}" WHERE {same}', *row)
                    transaction.run(f'INSERT INTO "{table}" VALUES ({marks}) ON CONFLICT DO NOTHING', *fresh)

        await self.write(clean)
        return await self._wipe()

    @abstractmethod
    def _tables(self, transaction: Transaction) -> Sequence[str]:
        """Returns the names of all tables with texts."""

    @abstractmethod
    def _wipe(self) -> Awaitable[str]:
        """Overwrites the space of deleted rows, as far as the engine can. Returns the same as `scrub`."""

    async def empty(self, kept: Iterable[str]) -> None:
        """Deletes everything except folder ids and the entries of these namespaces.

        The transcripts must be read back afterwards. Call it only if no other process uses the workspace.
        """
        spared = list(kept)

        def clear(transaction: Transaction) -> None:
            for table in self._tables(transaction):
                if table not in (self.dialect.parts["directory"], self.dialect.parts["entry"]):
                    transaction.run(f'DELETE FROM "{table}" WHERE {{here}}true')
            transaction.run("DELETE FROM {entry} WHERE {here}NOT namespace {among}", spared)
            self._emptied(transaction)

        await self.write(clear)

    @abstractmethod
    def _emptied(self, transaction: Transaction) -> None:
        """Makes `complete` return False."""

    # references

    @abstractmethod
    def log_access(self, path: str, kind: str, at: datetime) -> Awaitable[None]:
        """Records that a file was read or recovered."""

    async def references(self, paths: Iterable[str]) -> dict[str, int]:
        """Returns how often each of these files was read or recovered; others are left out."""
        statement = "SELECT path, count(*) FROM {access} WHERE {here}path {among} GROUP BY path"
        return {str(path): int(count) for path, count in await self.rows(statement, sorted(set(paths)))}

    async def last_accesses(self, paths: Iterable[str]) -> dict[str, datetime]:
        """Returns when each of these files was last read or recovered; others are left out."""
        statement = "SELECT path, max(at) FROM {access} WHERE {here}path {among} GROUP BY path"
        rows = await self.rows(statement, sorted(set(paths)))
        return {str(path): datetime.fromisoformat(at) for path, at in rows}

    async def access_since(self) -> datetime | None:
        """Returns the time of the first recorded read or recovery; None without any."""
        first = await self.value("SELECT min(at) FROM {access} WHERE {here}true")
        return datetime.fromisoformat(first) if first else None

    # folders without a name

    async def directory_ids(self) -> dict[str, str]:
        """Returns the random id of each folder."""
        return dict(await self.rows("SELECT folder, id FROM {directory} WHERE {here}true"))

    async def name_directory(self, folder: str, new_id: str) -> str:
        """Stores a folder's id and returns it: `new_id`, unless another process was first."""
        statement = "INSERT INTO {directory} ({ws_}folder, id) VALUES ({ws}?, ?) ON CONFLICT DO NOTHING"
        await self.run(statement, folder, new_id)
        return (await self.directory_ids())[folder]

    # small values

    def get(self, namespace: str, key: str) -> Awaitable[Any]:
        place = (namespace, key)
        return self.read(lambda transaction: read_entries(transaction, [place]).get(place))

    def get_all(self, places: Sequence[Place]) -> Awaitable[list[Any]]:
        """Returns the values at these places (namespace and key), in their order, from one snapshot; None if
        missing."""

        def ask(transaction: Transaction) -> list[Any]:
            return list(map(read_entries(transaction, places).get, places))

        return self.read(ask)

    def entries(self, namespace: str) -> Awaitable[dict[str, Any]]:
        return self.read(lambda transaction: _entries(transaction, namespace))

    def entries_of(self, *namespaces: str) -> Awaitable[list[dict[str, Any]]]:
        """Returns the values of each of these namespaces by key, from one snapshot."""
        return self.read(lambda transaction: [_entries(transaction, namespace) for namespace in namespaces])

    def session_and_entries(
        self, session: str, places: Sequence[Place], namespaces: Sequence[str] = ()
    ) -> Awaitable[tuple[SessionRow | None, list[Any], list[dict[str, Any]]]]:
        """Returns a session, the values at these places, and the values of these namespaces by key, from one snapshot;
        None for a missing session or value."""

        def ask(transaction: Transaction) -> tuple[SessionRow | None, list[Any], list[dict[str, Any]]]:
            values = list(map(read_entries(transaction, places).get, places))
            return _session_row(transaction, session), values, [_entries(transaction, one) for one in namespaces]

        return self.read(ask)

    async def keys_of(self, namespace: str) -> list[str]:
        statement = "SELECT key FROM {entry} WHERE {here}namespace = ? ORDER BY key"
        return [key for (key,) in await self.rows(statement, namespace)]

    def put(self, namespace: str, key: str, value: Any, *, waits: bool = True) -> Awaitable[None]:
        """Stores a JSON value. `waits` is as in `write`."""
        stored = json.dumps(value)
        return self.write(lambda transaction: transaction.run(_PUT, namespace, key, stored) and None, waits=waits)

    def add(self, namespace: str, key: str, value: Any, most: int) -> Awaitable[None]:
        """Appends to a list of JSON values and keeps the last `most`. Does not wait for the disk."""

        def appended(stored: Mapping[Place, Any]) -> tuple[None, Mapping[Place, Any]]:
            listed = stored.get((namespace, key))
            return None, {(namespace, key): [*(listed if isinstance(listed, list) else []), value][-most:]}

        return self.change_entries([(namespace, key)], appended, waits=False)

    def change_entries(
        self,
        places: Iterable[Place],
        change: Callable[[Mapping[Place, Any]], tuple[T, Mapping[Place, Any]]],
        *,
        waits: bool = True,
    ) -> Awaitable[T]:
        """Reads and writes several values in one transaction; other processes wait meanwhile.

        `change` gets the stored values by place, and returns a result and the values to write; None deletes one. It
        must be pure, because it may be called again. Returns the result.
        """
        asked = sorted(set(places))

        def apply(transaction: Transaction) -> T:
            result, changed = change(self._locked(transaction, asked))
            put_entries(transaction, changed)
            return result

        return self.write(apply, waits=waits)

    def _locked(self, transaction: Transaction, places: Sequence[Place]) -> dict[Place, Any]:
        """Returns the stored values at these places, and prevents other transactions from changing them meanwhile."""
        return read_entries(transaction, places)

    async def session_entry(self, namespace: str, session: str, waiting: str) -> tuple[Any, int, tuple[str, str], bool]:
        """Returns an entry of a session, the number of the user's turns, role and SHA-256 of the session's last turn
        ("" for none), and whether the namespace `waiting` has entries, all from one snapshot."""
        turns = "FROM {turn_key} WHERE {here}session = ?"
        rows = await self.rows(
            "SELECT (SELECT value FROM {entry} WHERE {here}namespace = ? AND key = ?), "
            f"(SELECT count(*) {turns} AND role = 'user'), "
            f"(SELECT role {turns} ORDER BY number DESC LIMIT 1), "
            f"(SELECT sha {turns} ORDER BY number DESC LIMIT 1), "
            "EXISTS (SELECT 1 FROM {entry} WHERE {here}namespace = ?)",
            *(namespace, session, session, session, session, waiting),
        )
        value, users, role, sha, waits = rows[0]
        return (None if value is None else json.loads(value)), int(users), (role or "", sha or ""), bool(waits)

    def remove(self, namespace: str, *keys: str) -> Awaitable[None]:
        """Removes values; missing ones are skipped."""
        return self.run("DELETE FROM {entry} WHERE {here}namespace = ? AND key {among}", namespace, list(keys))


def _entries(transaction: Transaction, namespace: str) -> dict[str, Any]:
    rows = transaction.rows("SELECT key, value FROM {entry} WHERE {here}namespace = ? ORDER BY key", namespace)
    return {key: json.loads(value) for key, value in rows}


def read_entries(transaction: Transaction, places: Sequence[Place], lock: str = "") -> dict[Place, Any]:
    """Returns the stored values at these places; missing ones are left out. `lock` is appended to the queries."""
    found: dict[Place, Any] = {}
    for first in range(0, len(places), PLACES):
        some = places[first : first + PLACES]
        # Not a list of pairs, for which SQLite would read the whole table.
        these = " OR ".join(["namespace = ? AND key = ?"] * len(some))
        statement = f"SELECT namespace, key, value FROM {{entry}} WHERE {{here}}({these}){lock}"
        for namespace, key, stored in transaction.rows(statement, *(part for place in some for part in place)):
            if (value := json.loads(stored)) is not None:
                found[namespace, key] = value
    return found


def put_entries(transaction: Transaction, entries: Mapping[Place, Any]) -> None:
    """Writes entries in the caller's transaction; None deletes one."""
    for place, value in entries.items():
        if value is None:
            transaction.run("DELETE FROM {entry} WHERE {here}namespace = ? AND key = ?", *place)
        else:
            transaction.run(_PUT, *place, json.dumps(value))


def storable(text: str) -> str:
    """Returns the text without U+0000 and halves of surrogate pairs, which databases refuse."""
    clean = text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\0", "\ufffd")


_Row = tuple[object, ...]


def _stale(transaction: Transaction, table: str, request: Forgotten) -> tuple[list[str], list[tuple[_Row, _Row]]]:
    """Returns the columns of a table, and its rows with forgotten text, each before and after cleaning."""
    cursor = transaction.run(f'SELECT * FROM "{table}" WHERE {{here}}true')
    columns = [column[0] for column in cursor.description]
    stale = []
    for row in cursor:
        fresh = tuple(clean_value(name, value, request) for name, value in zip(columns, row, strict=True))
        if fresh != row:
            stale.append((row, fresh))
    return columns, stale


def _session_row(transaction: Transaction, session: str) -> SessionRow | None:
    rows = transaction.rows(f"SELECT {_SESSION} FROM {{session}} WHERE {{here}}session = ?", session)
    return _session(rows[0]) if rows else None


def _session(row: tuple[Any, ...]) -> SessionRow:
    stored = dict(zip(SESSION_COLUMNS, row, strict=True))
    for name in ("opened", "last_arrival", "last_at"):
        stored[name] = datetime.fromisoformat(stored[name]) if stored[name] else None
    for name, known in (("kind", get_args(Kind)), ("delivery", get_args(Delivery))):
        stored[name] = stored[name] if stored[name] in known else None
    return SessionRow(**stored)
