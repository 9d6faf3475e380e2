"""The file of the live state, which a person may delete, a process replace or a disk spoil while it is open.

A missing one is made; a damaged one is moved aside under a new name, never deleted, and an empty one takes its place.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

from mcp_server.errors import Unavailable
from mcp_server.storage.local.database import Database, DatabaseBroken, driver
from mcp_server.storage.local.locks import Held, Locks

T = TypeVar("T")

Create = Callable[[sqlite3.Connection], None]
"""Makes the tables that are not there yet, in one transaction."""


class StateFile:
    """The file that lies there now, whichever it is. Made by `StateFile.open`."""

    def __init__(self, path: Path, locks: Locks, create: Create, database: Database, moved_aside: Path | None) -> None:
        self._path, self._locks, self._create = path, locks, create
        self._database, self._inode = database, _inode(path)
        self.replaced = 0
        """How often another file has taken its place."""
        self._reopening: object = None  # an anyio lock, made with the first use: importing anyio takes time
        self.moved_aside = moved_aside
        """Where a damaged file went."""

    @classmethod
    async def open(cls, path: Path, locks: Locks, create: Create) -> StateFile:
        """Opens or creates the file. Raises Unavailable where that is not possible."""
        return cls(path, locks, create, *await _opened(path, locks, create))

    async def close(self) -> None:
        """Closes the file; a second call does nothing."""
        await self._database.close()

    async def data_version(self) -> int:
        """Another number after another connection has committed, or after the file was replaced."""
        version = await self._using(lambda database: database.data_version())
        return self._inode << 32 | version

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """As `Database.read`."""
        return await self._using(lambda database: database.read(fn))

    async def write(self, fn: Callable[[sqlite3.Connection], T], *, waits: bool = True) -> T:
        """As `Database.write`."""
        return await self._using(lambda database: database.write(fn, waits=waits))

    async def outside(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """As `Database.outside`."""
        return await self._using(lambda database: database.outside(fn))

    async def _using(self, act: Callable[[Database], Awaitable[T]]) -> T:
        """What `act` does with the file that is there now."""
        if _inode(self._path) != self._inode:
            await self._reopen(self._database)
        database = self._database
        try:
            return await act(database)
        except DatabaseBroken as error:
            await self._reopen(database)
            raise Unavailable(
                f".local/{self._path.name} was damaged and is replaced; what it knew is read back from transcripts. "
                "Repeat the call"
            ) from error

    async def _reopen(self, seen: Database) -> None:
        import anyio

        self._reopening = lock = self._reopening or anyio.Lock()
        assert isinstance(lock, anyio.Lock)
        async with lock:
            if self._database is not seen:  # another task was first
                return
            self._locks.check_there()
            self._database, aside = await _opened(self._path, self._locks, self._create)
            self._inode = _inode(self._path)
            self.replaced += 1
            self.moved_aside = aside or self.moved_aside
            with contextlib.suppress(Unavailable, driver().error):
                await seen.close()


async def _opened(path: Path, locks: Locks, create: Create) -> tuple[Database, Path | None]:
    """The file, and where the damaged one went if there was one."""
    try:
        return await _open(path, create), None
    except DatabaseBroken:
        held = await _alone(locks)  # of several processes that find it damaged, one moves it aside
        try:
            return await _open(path, create), None
        except DatabaseBroken:
            aside = _move_aside(path)
            return await _open(path, create), aside
        finally:
            held.release()


async def _alone(locks: Locks) -> Held:
    """A lock of its own, since the call that found the damage may hold any of the three."""
    from anyio import sleep

    while True:
        held = locks.try_exclusive("state")
        if held is not None:
            return held
        await sleep(0.01)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _move_aside(path: Path) -> Path:
    numbered = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(free for free in numbered if not free.exists())
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return path.rename(aside)


async def _open(path: Path, create: Create) -> Database:
    with contextlib.suppress(OSError):  # what is wrong with the folder, opening the file will say
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = await Database.open(path)
    try:
        await database.write(create)
    except BaseException:
        await database.close()
        raise
    return database
