"""Transactions of one workspace, and units of work.

`run(fn)` calls `fn(connection)` in a transaction of its own, or in the open unit of work, which the locks open. A unit
of work belongs to the task that opened it and to the tasks and threads that it starts meanwhile (a context variable).
If an exception leaves the unit, it is rolled back. A statement that PostgreSQL refuses ends the transaction: the unit
then fails as a whole, even if a caller caught the error.

A task may work under leases (`leased`). Right before a transaction that wrote something is committed, each lease checks
that it is still valid.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from anyio.to_thread import run_sync
from psycopg import pq
from psycopg.sql import SQL, Identifier
from psycopg_pool import PoolTimeout

from mcp_server.errors import Unavailable
from mcp_server.storage.postgres.connections import OPTIONS, Address, release, shared
from mcp_server.storage.postgres.connections import Connection as Connection
from mcp_server.storage.postgres.migrate import ROLE, SCHEMA
from mcp_server.storage.values import Change

T = TypeVar("T")
Confirm = Callable[[Connection], None]
"""Raises an error if the transaction of a connection may not be committed."""

LOCK_SECONDS = 120
"""Seconds that a caller waits for a lock before it gets an error, because the holder probably hangs."""

STATEMENT_SECONDS = 150
"""Seconds after which the server ends a statement. Longer than LOCK_SECONDS, whose error is clearer."""

DEADLOCK_TRIES = 5
"""Attempts to run a transaction that the server ends because of a deadlock. A unit of work is not run again."""

IDLE_SECONDS = 120
"""Seconds after which the server ends a transaction whose client is silent, so that a broken connection keeps no
lock."""

TRIES = 4
"""Connections that are tried if the server has closed idle ones, for example by a restart."""


@dataclass(slots=True)
class Unit:
    """An open unit of work: its connection, and the change notices that are sent after its commit."""

    connection: Connection
    open: bool = True
    published: list[Change] = field(default_factory=list)
    turn: threading.RLock = field(default_factory=threading.RLock)
    """Held by each call, so that calls of parallel tasks do not mix within the transaction."""


class Database:
    """Transactions of one workspace."""

    def __init__(self, address: Address, ws: int) -> None:
        self.address = address
        self.ws = ws
        self.process = secrets.token_hex(8)
        """The name of this process in leases and change notices."""
        self._unit: ContextVar[Unit | None] = ContextVar("unit", default=None)
        self._leases: ContextVar[tuple[Confirm, ...]] = ContextVar("leases", default=())
        self._begin = (
            f"BEGIN; SET LOCAL ROLE {ROLE}; SET LOCAL search_path = {SCHEMA}, public; SET LOCAL app.ws = '{ws}'; "
            f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'; "
            f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'"
        )

    def open(self) -> None:
        """Opens the connections, if no other workspace of this process has opened them."""
        self.connections = shared(self.address)
        self._pool = self.connections.pool

    def close(self) -> None:
        """Closes the connections, if no other workspace of this process uses them."""
        release(self.address)

    @property
    def current(self) -> Unit | None:
        """Returns the open unit of work that the calling task belongs to."""
        unit = self._unit.get()
        return unit if unit is not None and unit.open else None

    def run(self, fn: Callable[[Connection], T]) -> T:
        """Returns `fn(connection)` after its transaction is committed; within a unit of work, as a part of it.

        Blocks: call it in a worker thread if it may take over a millisecond. Raises Unavailable if the server does not
        answer. Then nothing is stored, unless the connection was lost between the commit and its answer.
        """
        unit = self.current
        if unit is None:
            return self.apart(fn)
        with explained(self.address), unit.turn:
            return fn(unit.connection)

    def apart(self, fn: Callable[[Connection], T]) -> T:
        """Returns `fn(connection)` of a separate transaction, even within a unit of work. After a deadlock `fn` is
        called again."""
        with explained(self.address):
            for left in range(DEADLOCK_TRIES, 0, -1):
                try:
                    return self._once(fn)
                except psycopg.errors.DeadlockDetected:
                    if left == 1:
                        raise
                    time.sleep(random.uniform(0, 0.2))  # so that the other transaction runs first
        raise AssertionError("unreachable")

    def rows(self, statement: Any, *values: object) -> list[tuple[Any, ...]]:
        """Returns the rows of a query, whose first value is the workspace."""
        return self.run(lambda connection: connection.rows(statement, *values))

    async def call(self, fn: Callable[[Connection], T], *, waits: bool = True) -> T:
        """Returns `run(fn)`, called in a worker thread. Ignores `waits`: a commit always waits for the server's
        disk."""
        return await run_sync(self.run, fn)

    read = write = call

    def vacuum(self) -> str:
        """Lets the server reuse the space of deleted rows. Returns a message if only an administrator can, else ""."""
        with (
            explained(self.address),
            psycopg.connect(self.address.connection, autocommit=True, **OPTIONS) as connection,
        ):
            said: list[str] = []
            connection.add_notice_handler(lambda notice: said.append(notice.message_primary or ""))
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (SCHEMA,)).fetchall()
            for (table,) in tables:
                connection.execute(SQL("VACUUM {}").format(Identifier(SCHEMA, table)))
        return f"deleted rows are still on the disk: {said[0]}; an administrator must run VACUUM" if said else ""

    def enter(self) -> Unit:
        """Begins a unit of work, but does not make it the caller's unit (see `within`). `leave` ends it. Skips
        connections that the server has closed."""
        with explained(self.address):
            for left in range(TRIES, 0, -1):
                connection = self._pool.getconn()
                connection.ws = self.ws
                try:
                    connection.execute(self._begin)
                except psycopg.OperationalError:
                    self._pool.putconn(connection)
                    if left == 1:
                        raise
                    self._pool.check()  # replaces all other connections that are broken
                except BaseException:
                    self._pool.putconn(connection)
                    raise
                else:
                    return Unit(connection)
        raise AssertionError("unreachable")

    def leave(self, unit: Unit, *, keep: bool) -> None:
        """Commits a unit of work, or rolls it back, and returns its connection to the pool."""
        with explained(self.address), unit.turn:
            unit.open = False
            try:
                if keep:
                    self._check_commit(unit.connection)
                    unit.connection.execute("COMMIT")
            finally:
                if not unit.connection.closed and unit.connection.info.transaction_status != pq.TransactionStatus.IDLE:
                    with contextlib.suppress(psycopg.Error):
                        unit.connection.execute("ROLLBACK")
                self._pool.putconn(unit.connection)

    def within(self, unit: Unit) -> contextlib.AbstractContextManager[None]:
        """Makes a unit of work the caller's unit during the block."""
        return _set(self._unit, unit)

    def leased(self, confirm: Confirm) -> contextlib.AbstractContextManager[None]:
        """Calls `confirm` before each commit of the caller, and of the tasks that it starts, during the block."""
        return _set(self._leases, (*self._leases.get(), confirm))

    def _once(self, fn: Callable[[Connection], T]) -> T:
        unit, ok = self.enter(), False
        try:
            result = fn(unit.connection)
            ok = True
        finally:
            self.leave(unit, keep=ok)
        return result

    def _check_commit(self, connection: Connection) -> None:
        """Raises Unavailable if an open transaction cannot be committed, or if a lease was lost."""
        if connection.info.transaction_status == pq.TransactionStatus.INERROR:
            raise Unavailable("a statement of this call failed, so nothing was stored; repeat the call")
        leases = self._leases.get()
        if not leases or connection.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,):
            return  # a transaction without an id has written nothing
        for confirm in leases:
            confirm(connection)


@contextlib.contextmanager
def _set(variable: ContextVar[T], value: T) -> Iterator[None]:
    before = variable.get()
    variable.set(value)
    try:
        yield
    finally:
        variable.set(before)


@contextlib.contextmanager
def explained(address: Address) -> Iterator[None]:
    """Raises Unavailable, with what to do, for an error of the server or the connection in the block."""
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable(f"{address.shown}: no connection became free; check the server, and try again") from error
    except psycopg.errors.LockNotAvailable as error:
        raise Unavailable(
            f"{address.shown}: another process has held a lock for {LOCK_SECONDS} s; end it if it hangs, and try again"
        ) from error
    except psycopg.errors.DeadlockDetected as error:
        raise Unavailable(f"{address.shown}: two calls waited for each other; nothing was stored, try again") from error
    except psycopg.errors.QueryCanceled as error:
        raise Unavailable(f"{address.shown}: the server ended a statement that took too long; try again") from error
    except psycopg.Error as error:
        line = " ".join(str(error).split())
        raise Unavailable(f"{address.shown}: {line}; check the server, then repeat the call") from error
