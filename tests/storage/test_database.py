"""The database: whole transactions whatever the tasks do, several processes at once, clear words for what is broken."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from mcp_server.errors import Unavailable
from mcp_server.storage import sqlite
from mcp_server.storage.sqlite import Database, DatabaseBroken, Driver, driver
from tests.preloaded import python

pytestmark = pytest.mark.anyio

PLAIN = Driver(sqlite3, "sqlite3", sqlite3.sqlite_version, False)

WRITER = """
import sys, anyio
from pathlib import Path
from mcp_server.storage.sqlite import Database
async def main():
    database = await Database.open(Path(sys.argv[1]))
    def add(connection):
        value = connection.execute("SELECT n FROM counter").fetchone()[0]
        connection.execute("UPDATE counter SET n = ?", (value + 1,))
    for _ in range(20):
        await database.write(add)
    await database.close()
anyio.run(main)
"""


def make(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE counter (n INTEGER)")
    connection.execute("INSERT INTO counter VALUES (0)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.db"


@pytest.fixture
async def database(path: Path) -> AsyncIterator[Database]:
    """A database with a counter, which is closed at the end."""
    database = await Database.open(path)
    await database.write(make)
    yield database
    await database.close()


def count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT n FROM counter").fetchone()[0])


def add_one(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE counter SET n = ?", (count(connection) + 1,))


@pytest.mark.parametrize("used", [driver(), PLAIN], ids=["best driver", "the interpreter's"])
async def test_tasks_that_share_a_connection_never_mix_their_writes(
    path: Path, used: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "driver", lambda: used)
    database = await Database.open(path)
    await database.write(make)

    def add_and_fail(connection: sqlite3.Connection) -> None:
        add_one(connection)
        raise KeyError("no")

    async def failing() -> None:
        with pytest.raises(KeyError):
            await database.write(add_and_fail)

    async with anyio.create_task_group() as group:
        for _ in range(30):
            group.start_soon(failing)
            group.start_soon(database.write, add_one)

    assert await database.read(count) == 30
    await database.close()
    await database.close()


def run_writers(path: Path) -> None:
    started = [subprocess.Popen(python("-c", WRITER, str(path))) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]


async def test_processes_write_one_after_the_other(database: Database, path: Path) -> None:
    before = await database.data_version()

    await anyio.to_thread.run_sync(run_writers, path)

    assert await database.read(count) == 60
    assert await database.data_version() != before


async def test_opening_at_the_same_time_works(path: Path) -> None:
    opened: list[Database] = []

    async def open_one() -> None:
        opened.append(await Database.open(path))

    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(open_one)

    assert len(opened) == 12
    for database in opened:
        await database.close()


async def test_a_cancelled_caller_leaves_no_half_write(database: Database) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await database.write(add_one)

    assert await database.read(count) in (0, 1)
    await database.write(add_one)


async def test_a_read_cannot_write(database: Database) -> None:
    await database.read(add_one)

    assert await database.read(count) == 0


async def test_garbage_is_told_apart_from_a_busy_file(database: Database, path: Path, tmp_path: Path) -> None:
    (tmp_path / "garbage.db").write_bytes(b"garbage " * 1000)
    threads = set(threading.enumerate())
    with pytest.raises(DatabaseBroken, match="damaged"):
        await Database.open(tmp_path / "garbage.db")
    with pytest.raises(Unavailable):
        await Database.open(tmp_path / "no" / "folder.db")
    assert set(threading.enumerate()) <= threads  # one would say its last word to an event loop that is closed by then

    waiting = await Database.open(path, busy_seconds=0.0)
    await database.outside(lambda connection: connection.execute("BEGIN IMMEDIATE"))
    with pytest.raises(Unavailable, match="busy"):
        await waiting.write(add_one)
    await database.outside(lambda connection: connection.execute("ROLLBACK"))
    await waiting.write(add_one)
    await waiting.close()


async def test_a_file_that_becomes_garbage_says_so(database: Database, path: Path) -> None:
    await database.outside(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
    await database.close()
    path.write_bytes(path.read_bytes()[:4096] + b"\x07" * 4096)

    async def use() -> None:
        reopened = await Database.open(path)
        try:
            await reopened.read(count)
        finally:
            await reopened.close()

    with pytest.raises(DatabaseBroken):
        await use()


async def test_a_closed_database_and_a_wrong_statement(database: Database) -> None:
    with pytest.raises(driver().error):
        await database.write(lambda connection: connection.execute("no SQL"))
    await database.close()
    with pytest.raises(Unavailable, match="closed"):
        await database.read(count)


def modes(folder: Path) -> set[int]:
    return {name.stat().st_mode & 0o777 for name in folder.iterdir()}


async def test_the_file_is_for_the_user_alone(path: Path, tmp_path: Path) -> None:
    database = await Database.open(path, durable=False)
    await database.write(make)
    assert modes(tmp_path) == {0o600}
    await database.close()


def test_the_driver_in_use_loads_extensions_here() -> None:
    assert driver().loads_extensions


async def test_a_write_that_does_not_wait_is_whole_and_the_next_one_waits_again(path: Path) -> None:
    database = await Database.open(path)
    other = await Database.open(path)

    def fails(connection: sqlite3.Connection) -> None:
        add_one(connection)
        raise KeyError("no")

    await database.write(make, waits=False)
    with pytest.raises(KeyError):
        await database.write(fails, waits=False)
    await database.outside(lambda connection: connection.execute("BEGIN"))  # left open by somebody
    await database.write(add_one, waits=False)
    assert await other.read(count) == 1
    full = await database.outside(lambda connection: connection.execute("PRAGMA synchronous").fetchone()[0])
    assert full == 2
    await database.close()
    await other.close()


def _first(query: str, connection: sqlite3.Connection) -> object:
    return connection.execute(query).fetchone()[0]


async def test_what_waits_for_the_disk_does_so_on_macos_too(tmp_path: Path) -> None:
    for durable, wanted in ((True, 1), (False, 0)):
        database = await Database.open(tmp_path / f"{durable}.db", durable=durable)
        for pragma in ("fullfsync", "checkpoint_fullfsync"):
            ask = partial(_first, f"PRAGMA {pragma}")
            assert await database.outside(ask) == wanted
        await database.close()
