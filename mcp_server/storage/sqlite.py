"""SQLite: the library in use, the stems of words from its full-text tokenizer (both engines use them), and databases
for async code.

    database = await Database.open(path, prepare=schema)
    rows = await database.read(lambda connection: connection.execute("…").fetchall())
    await database.write(insert_everything)

`read` and `write` take one synchronous function and run all of it on the connection's own thread, inside one
transaction. Single statements cannot be awaited: two tasks that share a connection and `await` between statements would
commit each other's unfinished work.

Only this module uses aiosqlite. It uses aiosqlite's thread and queue (`_execute`; there is no public equivalent) rather
than its methods for single statements, for the reason above.
"""

from __future__ import annotations

import functools
import importlib
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import CancelScope, Lock

from mcp_server.errors import Unavailable

if TYPE_CHECKING:
    import aiosqlite

    from mcp_server.storage.local.locks import Locks


@dataclass(frozen=True, slots=True)
class Driver:
    """The SQLite library in use: its module (DB-API 2.0), version, and whether it can load extensions (sqlite-vec)."""

    module: ModuleType
    name: str
    version: str
    loads_extensions: bool

    @property
    def error(self) -> type[Exception]:
        """Returns the driver's base exception: pysqlite3 has its own."""
        error: type[Exception] = self.module.Error
        return error


@functools.cache
def driver() -> Driver:
    """Returns the interpreter's sqlite3 if it loads extensions, else a pysqlite3 that does, else sqlite3."""
    if _loads_extensions(sqlite3):
        return Driver(sqlite3, "sqlite3", sqlite3.sqlite_version, True)
    try:
        pysqlite3 = importlib.import_module("pysqlite3")  # it has no type hints
    except ImportError:
        pass
    else:
        if _loads_extensions(pysqlite3):
            return Driver(pysqlite3, "pysqlite3", pysqlite3.sqlite_version, True)
    return Driver(sqlite3, "sqlite3", sqlite3.sqlite_version, False)


def _loads_extensions(module: Any) -> bool:
    connection = module.connect(":memory:")
    try:
        connection.enable_load_extension(True)
    except (AttributeError, module.Error):  # Python or its SQLite was built without extensions
        return False
    finally:
        connection.close()
    return True


STEMMER = """
CREATE VIRTUAL TABLE temp.words_in USING fts5 (word, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE temp.stems_out USING fts5vocab (temp, words_in, instance);
"""

MOST = 200_000
"""Most words that are cached per connection (about 20 MB). A workspace of 100,000 passages has fewer words."""


class Stems:
    """The stems of words, by the tokenizer of the keyword index, as 32-bit numbers. Belongs to one connection and its
    thread. Different stems have equal numbers with a chance of 1 in 4 · 10⁹."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, int] = {}
        connection.executescript(STEMMER)

    def learn(self, words: Iterable[str]) -> None:
        """Looks up and caches all unknown words at once. `numbers` calls it if words are unknown."""
        asked = list(dict.fromkeys(words))
        new = [word for word in asked if word not in self._known]
        if len(self._known) + len(new) > MOST:
            new = asked  # `terms` will empty the cache, so the known words are looked up again
        if new:
            self.terms(new)

    def numbers(self, words: Sequence[str]) -> list[int]:
        """Returns the number of each word, in order."""
        known = self._known
        try:
            return [known[word] for word in words]
        except KeyError:
            self.learn(words)
            return [self._known[word] for word in words]

    def terms(self, words: Sequence[str]) -> list[str]:
        """Returns the stems as text, as in the keyword index's vocabulary, and caches their numbers.

        A word that the tokenizer ignores (a lone combining sign) is its own stem.
        """
        self._connection.executemany("INSERT INTO temp.words_in (rowid, word) VALUES (?, ?)", enumerate(words))
        found = dict(self._connection.execute("SELECT doc, term FROM temp.stems_out WHERE offset = 0").fetchall())
        self._connection.execute("DELETE FROM temp.words_in")
        stems = [found.get(row, word) for row, word in enumerate(words)]
        if len(self._known) + len(words) > MOST:
            self._known.clear()
        self._known.update(zip(words, (zlib.crc32(stem.encode("utf-8", "replace")) for stem in stems), strict=True))
        return stems


T = TypeVar("T")
Prepare = Callable[[sqlite3.Connection], None]

BUSY_SECONDS = 30.0
"""Seconds that a call waits for another process's transaction. Transactions are short; only a stalled machine takes
this long."""


class DatabaseBroken(Unavailable):
    """The file is not a database, or is damaged. The caller must move it aside and rebuild its content."""


class Database:
    """An open SQLite file in WAL mode, with one connection and one thread. For parallel reads, open it twice."""

    def __init__(self, path: Path, connection: aiosqlite.Connection, durable: bool = True) -> None:
        self.path = path
        self._durable = durable
        self._connection = connection
        self._open = True

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        prepare: Prepare | None = None,
        durable: bool = True,
        busy_seconds: float = BUSY_SECONDS,
    ) -> Database:
        """Opens the file, and creates it if it is missing. `prepare(connection)` runs once on the connection's thread,
        outside a transaction, and may load extensions.

        If `durable`, a commit waits for the disk (state); otherwise a power cut may lose it, a crash of the process
        cannot (index). Raises DatabaseBroken for a file that is not a database, Unavailable if it cannot be opened or
        stays locked.
        """
        import aiosqlite

        connection = aiosqlite.Connection(lambda: _connect(path, prepare, durable, busy_seconds), iter_chunk_size=64)
        # A process that ends without `close` (an exception, a signal) must not hang on this thread: SQLite rolls back
        # by itself.
        connection._thread.daemon = True
        try:
            with CancelScope(shield=True):  # a cancelled caller would not close the connection
                try:
                    await connection
                except Exception:  # it could not be opened
                    connection._thread.join()  # wait while the event loop still runs
                    raise
        except driver().error as error:
            raise _explained(error, path) or error from error
        except OSError as error:
            raise Unavailable(
                f"cannot open {path}: {error.strerror or error}; check the folder and its permissions"
            ) from error
        return cls(path, connection, durable)

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Returns `fn(connection)`. Its SELECTs see one snapshot, and its writes are rolled back."""
        return await self._run("BEGIN", fn, "ROLLBACK")

    async def write(self, fn: Callable[[sqlite3.Connection], T], *, waits: bool = True) -> T:
        """Returns `fn(connection)` after its transaction is committed. If it raises, the transaction is rolled back.

        Without `waits`, the commit does not wait for the disk: a power cut may lose it until the next commit that
        waits, a crash of the process cannot.
        """
        return await self._run("BEGIN IMMEDIATE", fn, "COMMIT", waits=waits)

    async def data_version(self) -> int:
        """Returns a number that changes with every commit of another connection, but not with own commits."""
        return await self.outside(lambda raw: int(raw.execute("PRAGMA data_version").fetchone()[0]))

    async def close(self) -> None:
        """Closes the file, also if the caller is being cancelled. A second call does nothing."""
        if self._open:
            self._open = False
            with CancelScope(shield=True):  # the thread needs the running event loop
                await self._connection.close()

    async def _run(self, begin: str, fn: Callable[[sqlite3.Connection], T], end: str, *, waits: bool = True) -> T:
        quick = self._durable and not waits

        def transaction(raw: sqlite3.Connection) -> T:
            if raw.in_transaction:  # left open by a failed `outside`
                raw.execute("ROLLBACK")
            if quick:
                raw.execute("PRAGMA synchronous = NORMAL")
            try:
                raw.execute(begin)
                result = fn(raw)
                raw.execute(end)
            except BaseException:
                if raw.in_transaction:
                    raw.execute("ROLLBACK")
                raise
            finally:
                if quick:
                    raw.execute("PRAGMA synchronous = FULL")
            return result

        return await self.outside(transaction)

    async def outside(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Returns `fn(connection)`, run outside a transaction: VACUUM and some PRAGMAs need that."""
        if not self._open:
            raise Unavailable(
                f"{self.path.name} is closed, because the memory is being reopened or the server is shutting down; "
                "repeat the call"
            )
        try:
            result: T = await self._connection._execute(fn, self._connection._conn)  # type: ignore[no-untyped-call]
        except Exception as error:
            explained = _explained(error, self.path)
            if explained is None:
                raise
            raise explained from error
        return result


def inode_of(path: Path) -> int:
    """Returns the inode of a file or folder; 0 if it is gone."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


class ReplaceableDatabase(Database):
    """A database such as `state.db`, which may be deleted, replaced or damaged while it is open.

    A missing file is created. A damaged one is moved aside under a new name, never deleted, and an empty one replaces
    it.
    """

    def __init__(self, database: Database, locks: Locks, tables: Prepare) -> None:
        super().__init__(database.path, database._connection)
        self._locks, self._tables, self._inode = locks, tables, inode_of(database.path)
        self.replaced = 0
        """How often the file was replaced while it was open."""
        self._reopening = Lock()

    @classmethod
    async def create(cls, path: Path, locks: Locks, tables: Prepare) -> ReplaceableDatabase:
        """Opens or creates the file. `tables(connection)` creates what it lacks, in a transaction."""
        return cls(await _opened(path, locks, tables), locks, tables)

    def moved_aside(self) -> list[Path]:
        """Returns the damaged files that any process has moved aside and nobody has deleted since."""
        return sorted(self.path.parent.glob(f"{self.path.name}.damaged-*"))

    async def data_version(self) -> int:
        """Returns a number that changes when another connection commits, or when the file is replaced."""
        version = await super().data_version()
        return self._inode << 32 | version

    async def outside(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Returns the same as `Database.outside`. Reopens the file first if it was replaced. A damaged file is
        replaced, and Unavailable is raised."""
        try:
            is_same = self.path.stat().st_ino == self._inode
        except OSError:  # it was deleted
            is_same = False
        if self._open and not is_same:
            await self._reopen(self._connection)
        used = self._connection
        try:
            return await super().outside(fn)
        except DatabaseBroken as error:
            await self._reopen(used)
            raise Unavailable(
                f".local/{self.path.name} was damaged and was replaced; its content is read back from the transcripts. "
                "Repeat the call"
            ) from error

    async def _reopen(self, used: aiosqlite.Connection) -> None:
        async with self._reopening:
            if self._connection is not used:  # another task was first
                return
            self._locks.check_there()
            database = await _opened(self.path, self._locks, self._tables)
            self._connection, self._inode = database._connection, inode_of(self.path)
            self.replaced += 1
            with suppress(driver().error), CancelScope(shield=True):
                await used.close()


async def _opened(path: Path, locks: Locks, tables: Prepare) -> Database:
    try:
        return await _created(path, tables)
    except DatabaseBroken:
        with await locks.wait_for_state():  # only one of several processes moves it aside
            try:
                return await _created(path, tables)
            except DatabaseBroken:
                _move_aside(path)
                return await _created(path, tables)


def _move_aside(path: Path) -> None:
    numbered = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    aside = next(free for free in numbered if not free.exists())
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    path.rename(aside)


async def _created(path: Path, tables: Prepare) -> Database:
    """Opens the file, and creates it and its tables if they are missing."""
    with suppress(OSError):  # opening the file reports the problem
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def prepare(raw: sqlite3.Connection) -> None:
        raw.execute("BEGIN IMMEDIATE")
        tables(raw)
        raw.execute("COMMIT")

    return await Database.open(path, prepare=prepare)


def _connect(path: Path, prepare: Prepare | None, durable: bool, busy_seconds: float) -> sqlite3.Connection:
    """Opens a connection, on its thread. Retries, because switching to WAL ignores the busy handler."""
    # SQLite would create a file that everybody can read; -wal and -shm get the mode of this file.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    deadline = time.monotonic() + busy_seconds
    while True:
        # check_same_thread: aiosqlite uses the connection on one thread only, but may finalize it on another.
        raw: sqlite3.Connection = driver().module.connect(
            f"{path.resolve().as_uri()}?mode=rw",
            timeout=busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            raw.execute("PRAGMA journal_mode = WAL").fetchone()
            raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            if durable:  # macOS's fsync leaves data in the drive's cache; no effect elsewhere
                raw.execute("PRAGMA fullfsync = ON")
                raw.execute("PRAGMA checkpoint_fullfsync = ON")
            raw.execute("PRAGMA foreign_keys = ON")
            raw.execute("SELECT count(*) FROM sqlite_master").fetchone()  # fails here if the file is not a database
            if prepare is not None:
                prepare(raw)
            return raw
        except BaseException as error:
            raw.close()
            if _primary_code(error) not in (5, 6) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _primary_code(error: BaseException) -> int:
    """Returns SQLite's primary result code (sqlite.org/rescode.html), the low byte of an extended one; 0 if none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _explained(error: Exception, path: Path) -> Unavailable | None:
    """Returns the error to raise for a problem with the file; None for other errors, such as wrong SQL."""
    if not isinstance(error, (sqlite3.Error, driver().error)):
        return None
    where = f".local/{path.name}" if path.parent.name == ".local" else str(path)
    match _primary_code(error):
        case 5 | 6:
            return Unavailable(f"{where} is busy: another process is holding a long transaction; try again")
        case 11 | 26:
            return DatabaseBroken(f"{where} is damaged ({error}); it is rebuilt from the files at the next start")
        case 13:
            return Unavailable(f"the disk is full, {where} cannot be written; free some space and try again")
        case 3 | 8 | 14:
            return Unavailable(f"{where} cannot be opened for writing ({error}); check the permissions of its folder")
        case 10:
            return Unavailable(f"reading or writing {where} failed ({error}); check the disk and its free space")
        case _:
            return None
