"""Locks and leases in PostgreSQL.

The outermost lock opens a unit of work: everything in it is one transaction, which is committed when the block ends and
rolled back if an exception leaves it. An inner lock belongs to the same transaction; if an exception leaves the inner
block, only that block is rolled back. Row locks end with the transaction, and so with the process.

A lease is for long work. It ends if its holder does not renew it. The work is done in the block `with lease:`. Each of
its transactions that writes is committed only if the lease still has this holder and this fencing number, which is
checked in the same transaction: a holder that was suspended writes nothing after another process has taken over.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Sequence

import anyio
from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.storage import ports
from mcp_server.storage.postgres.database import LOCK_SECONDS, Connection, Database
from mcp_server.storage.values import Change

LEASE_SECONDS = 20.0
"""Seconds after which a lease ends if its holder does not renew it."""

RENEW_SECONDS = 5.0

MAINTAINER = "maintainer"

_SOON = "set_config('idle_in_transaction_session_timeout', %s, true)"
"""Makes the server end the transaction of a process that is suspended before the commit, so that it locks the row no
longer than a lease lasts."""


def _milliseconds() -> str:
    return str(int(LEASE_SECONDS * 1000))


class Lease:
    """A lease that a thread renews until `release`, or until the block `with lease:` ends. `lost` is True after another
    process has taken it over."""

    def __init__(self, database: Database, name: str, holder: str, fence: int) -> None:
        self._database = database
        self._name = name
        self._holder = holder
        self.fence = fence
        self.lost = False
        self._over = threading.Event()
        self._released = False
        self._block = contextlib.ExitStack()
        self._renewing = threading.Thread(target=self._renew, name=f"lease {name}", daemon=True)
        self._renewing.start()

    def __enter__(self) -> Lease:
        self._block.enter_context(self._database.leased(self._confirm))
        return self

    def __exit__(self, *error: object) -> None:
        self._block.close()
        self.release()

    def _confirm(self, connection: Connection) -> None:
        """Raises Unavailable if another process has taken over the lease. Otherwise locks the lease's row, so that no
        process can take it over before the transaction ends; the lease can still be renewed."""
        if self._released:  # the task goes on after the work has ended
            return
        found = connection.execute(
            f"SELECT {_SOON} FROM lease WHERE ws = %s AND name = %s AND holder = %s AND fence = %s FOR KEY SHARE",
            (_milliseconds(), connection.ws, self._name, self._holder, self.fence),
        ).fetchone()
        if found is None:
            self.lost = True
            raise Unavailable(
                f"another process has taken over this work (lease {self._name!r}, number {self.fence}), because this "
                "process was suspended for too long; nothing of this step was stored"
            )

    def release(self, *, forget: bool = False) -> None:
        """Ends the lease; a second call does nothing."""
        self._released = True
        if not self._over.is_set():
            self._over.set()
            with contextlib.suppress(ContextManagerError):  # the lease ends by itself
                ended = "DELETE FROM lease WHERE ws = %s AND name = %s AND holder = %s"
                self._database.apart(lambda connection: connection.run(ended, self._name, self._holder))

    def _renew(self) -> None:
        while not self._over.wait(RENEW_SECONDS):
            with contextlib.suppress(ContextManagerError):
                self.lost = not self._database.apart(self._extend)
            if self.lost:
                self._over.set()

    def _extend(self, connection: Connection) -> bool:
        row = connection.execute(
            "UPDATE lease SET expires = clock_timestamp() + make_interval(secs => %s) "
            f"WHERE ws = %s AND name = %s AND holder = %s AND fence = %s RETURNING {_SOON}",
            (LEASE_SECONDS, connection.ws, self._name, self._holder, self.fence, _milliseconds()),
        ).fetchone()
        return row is not None


class TeamLocks(ports.Locks):
    """The locks of one workspace. A process has one such object per workspace."""

    session_digits = slice(32)

    def __init__(self, database: Database, committed: Callable[[Sequence[Change]], None]) -> None:
        super().__init__()
        self._database = database
        self._committed = committed  # sends the change notices of a unit of work

    def try_maintainer(self) -> Lease | None:
        return self._lease(MAINTAINER, shared=False)

    def share(self, name: str) -> Lease | None:
        return self._lease(f"share-{name}", shared=True)

    def try_exclusive(self, name: str) -> Lease | None:
        return self._lease(f"share-{name}", shared=False)

    @contextlib.asynccontextmanager
    async def _exclusive(self, level: str, name: str) -> AsyncIterator[None]:
        held = self._held.get() if self._database.current is not None else ()
        self._check_order(level, held)
        if self._database.current is not None:
            async with self._within_process(name), self._block(name, level, held, inner=True):
                yield
            return
        # Wait for a place among the units first: a task that holds this process's lock has a place already.
        async with self._database.connections.units, self._within_process(name):
            unit = await run_sync(self._database.enter)
            ok = False
            try:
                with self._database.within(unit):
                    async with self._block(name, level, held, inner=False):
                        yield
                ok = True
            finally:
                with anyio.CancelScope(shield=True):
                    await run_sync(lambda: self._database.leave(unit, keep=ok))
        self._committed(unit.published)

    @contextlib.asynccontextmanager
    async def _block(self, name: str, level: str, held: tuple[str, ...], *, inner: bool) -> AsyncIterator[None]:
        """Takes a row lock in the open unit of work. If an inner block fails, only that block is rolled back."""

        def take(connection: Connection) -> None:
            if inner:
                connection.execute(f"SAVEPOINT block_{level}")
            connection.lock_row(name)

        await run_sync(self._database.run, take)
        self._held.set((*held, level))
        ok = False
        try:
            yield
            ok = True
        finally:
            self._held.set(held)
            if inner:  # roll back only a failed inner block, so that the outer one can go on
                ended = f"{'RELEASE' if ok else 'ROLLBACK TO'} SAVEPOINT block_{level}"
                with anyio.CancelScope(shield=True):
                    await run_sync(self._database.run, lambda connection: connection.execute(ended))

    @contextlib.asynccontextmanager
    async def _within_process(self, name: str) -> AsyncIterator[None]:
        inside = self._inside.setdefault(name, anyio.Lock())
        try:
            with anyio.fail_after(LOCK_SECONDS):
                await inside.acquire()
        except TimeoutError:
            raise Unavailable(
                f"another call of this process has held the lock {name!r} for {LOCK_SECONDS} s; try again"
            ) from None
        try:
            yield
        finally:
            inside.release()
            if not inside.locked():
                self._inside.pop(name, None)

    def _lease(self, name: str, *, shared: bool) -> Lease | None:
        holder = f"{self._database.process}-{secrets.token_hex(4)}"
        fence = self._database.apart(lambda connection: self._take_lease(connection, name, holder, shared))
        return None if fence is None else Lease(self._database, name, holder, fence)

    def _take_lease(self, connection: Connection, name: str, holder: str, shared: bool) -> int | None:
        # Locks the counter's row, so that only one process at a time can take this lease.
        connection.count(f"fence {name}", 0)
        connection.run(  # skips an expired lease whose holder is committing now
            "DELETE FROM lease WHERE ws = %s AND name = %s AND holder IN (SELECT holder FROM lease WHERE ws = %s "
            "AND name = %s AND expires < clock_timestamp() FOR UPDATE SKIP LOCKED)",
            *(name, connection.ws, name),
        )
        if connection.row("SELECT 1 FROM lease WHERE ws = %s AND name = %s AND NOT (shared AND %s)", name, shared):
            return None
        fence = connection.count(f"fence {name}", 1)
        connection.run(
            "INSERT INTO lease (ws, name, holder, shared, fence, expires) "
            "VALUES (%s, %s, %s, %s, %s, clock_timestamp() + make_interval(secs => %s))",
            *(name, holder, shared, fence, LEASE_SECONDS),
        )
        return fence
