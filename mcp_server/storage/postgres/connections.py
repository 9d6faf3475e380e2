"""The address of a team's memory, and the connections of this process to its database.

An address is `postgresql://USER@HOST/DATABASE?workspace=NAME`. Its other options are libpq's: `sslmode`, `passfile` and
so on are passed on unchanged. All workspaces of a process on one database share their connections.

A server for many people has many workspaces open, but PostgreSQL allows few connections. So all workspaces share one
pool for statements, and one connection that receives the alarms (NOTIFY) for change notices.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import anyio
import psycopg
from psycopg_pool import ConnectionPool

from mcp_server.errors import Invalid

DEFAULT_WORKSPACE = "main"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address. `connection` is the address for libpq; `shown` is the address without its password."""

    connection: str
    workspace: str
    shown: str


def parse(text: str) -> Address:
    """Returns the parts of an address. Raises Invalid for a malformed one; the message never has the password."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # this error's message may have a part of the password
        raise Invalid(f"the address of the memory is malformed; {_FORM}") from None
    options = dict(parse_qsl(parts.query))
    workspace = options.pop("workspace", DEFAULT_WORKSPACE)
    if not _NAME.fullmatch(workspace):
        raise Invalid(
            f"workspace={workspace[:80]!r} is not a workspace name: use 1 to 63 lower-case letters, digits, '.', '_' "
            "and '-', the first one a letter or digit"
        )
    if not parts.path.strip("/"):
        raise Invalid(f"the address of the memory names no database; {_FORM}")
    user = f"{parts.username}@" if parts.username else ""
    host = (parts.hostname or "") + (f":{port}" if port else "")
    return Address(
        urlunsplit(parts._replace(query=urlencode(options))),
        workspace,
        f"postgresql://{user}{host}{parts.path}?workspace={workspace}",
    )


_FORM = "it has the form postgresql://USER@HOST/DATABASE?workspace=NAME, with a password in PGPASSWORD or ~/.pgpass"


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that works for one workspace at a time, whose number is `ws`."""

    ws: int = 0

    def run(self, statement: str, *values: object) -> psycopg.Cursor[tuple[Any, ...]]:
        """Runs a statement whose first value is the workspace, and returns its cursor."""
        return self.execute(statement, (self.ws, *values), binary=True)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Returns the rows of a statement whose first value is the workspace."""
        return self.run(statement, *values).fetchall()

    def row(self, statement: str, *values: object) -> tuple[Any, ...]:
        """Returns the first row of a statement whose first value is the workspace; an empty tuple if there is none."""
        return self.run(statement, *values).fetchone() or ()

    def count(self, name: str, more: int) -> int:
        """Adds `more` to a counter of the workspace, and returns its new value."""
        statement = (
            "INSERT INTO counter (ws, name, value) VALUES (%s, %s, %s) "
            "ON CONFLICT (ws, name) DO UPDATE SET value = counter.value + excluded.value RETURNING value"
        )
        return int(self.row(statement, name, more)[0])

    def lock_row(self, name: str) -> None:
        """Locks the row of a lock until the transaction ends. The row is created the first time."""
        while not self.row("SELECT 1 FROM lock WHERE ws = %s AND name = %s FOR UPDATE", name):
            self.run("INSERT INTO lock (ws, name) VALUES (%s, %s) ON CONFLICT DO NOTHING", name)


CONNECTIONS = 16
"""Most connections of one process, without the one for alarms."""

UNITS = 12
"""Most simultaneous units of work of one process. The other connections are for calls outside of units."""

ALARM_SECONDS = 1.0
"""Seconds until a failed connection for alarms is opened again."""

CHANNEL = "context_manager"

OPTIONS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds, so that no call waits forever for an unreachable server
    "application_name": "context-manager",
}


class Connections:
    """The connection pool and the alarms of one database. `shared` returns them."""

    def __init__(self, address: Address) -> None:
        self.users = 0
        self.units = anyio.Semaphore(UNITS)
        """Limits the simultaneous units of work."""
        self.alarm = Alarm(address)
        self.pool: ConnectionPool[Connection] = ConnectionPool(
            address.connection,
            connection_class=Connection,
            kwargs={"autocommit": True, **OPTIONS},
            min_size=1,
            max_size=CONNECTIONS,
            timeout=30.0,
            open=False,
        )


_all: dict[str, Connections] = {}
_guard = threading.Lock()


def shared(address: Address) -> Connections:
    """Returns the connections to a database. Call `release` when they are no longer needed."""
    with _guard:
        found = _all.get(address.connection)
        if found is None:
            found = _all[address.connection] = Connections(address)
            found.pool.open()
        found.users += 1
        return found


def release(address: Address) -> None:
    """Closes the connections if no other workspace of this process uses them."""
    with _guard:
        found = _all[address.connection]
        found.users -= 1
        if found.users:
            return
        del _all[address.connection]
    with contextlib.suppress(psycopg.Error):
        found.alarm.close(found.pool)
    found.pool.close()


class Alarm:
    """Wakes the threads that wait for change notices of a workspace. One thread and one connection serve all
    workspaces.

    If a notification is lost, the notice arrives later, because listeners also read the table `change` regularly.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._waiting: dict[int, set[threading.Event]] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def of(self, ws: int) -> Iterator[threading.Event]:
        """Yields an event that is set at each alarm of a workspace."""
        event = threading.Event()
        with _guard:
            self._waiting.setdefault(ws, set()).add(event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="change alarms", daemon=True)
                self._thread.start()
        try:
            yield event
        finally:
            with _guard:
                self._waiting[ws].discard(event)

    def close(self, pool: ConnectionPool[Connection]) -> None:
        self._over.set()
        if self._thread is not None:
            with pool.connection(timeout=1.0) as connection:
                connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
            self._thread.join(2 * ALARM_SECONDS)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with psycopg.connect(self._address.connection, autocommit=True, **OPTIONS) as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._wake("")  # an alarm may have come before
                    while not self._over.is_set():
                        for notice in connection.notifies(timeout=ALARM_SECONDS, stop_after=1):
                            self._wake(notice.payload)
            except psycopg.Error:  # listeners also poll the table, and report the problem
                self._over.wait(ALARM_SECONDS)

    def _wake(self, ws: str) -> None:
        """Wakes the threads that wait for a workspace; if `ws` is empty, all threads."""
        with _guard:
            for number, events in self._waiting.items():
                if not ws or ws == str(number):
                    for event in events:
                        event.set()
