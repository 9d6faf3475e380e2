"""Generations: the files of the search index, and the connections to them.

    memory-2-wordllama-7.db        generation 7 of schema 2 with embedder wordllama
    memory-2-wordllama.current     the number of the live generation for these two; replaced atomically

A process that reads or fills a generation holds a shared lock on it. A generation that is not live and not locked is
deleted. Files of another schema or another embedder are not used.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from mcp_server.errors import Unavailable
from mcp_server.storage.index.scoring import import_numpy
from mcp_server.storage.local import durable
from mcp_server.storage.local.index.tables import SCHEMA, load_vectors, refill, state
from mcp_server.storage.local.locks import Held, Locks
from mcp_server.storage.sqlite import Database, DatabaseBroken, Stems, inode_of

BUSY_SECONDS = 5.0
"""Seconds to wait for a locked index file. No process locks one for long, so a file that stays locked counts as
damaged."""


@dataclass(slots=True)
class IndexHealth:
    """The index's current problems, as sentences or None. `building` is (files done, all files)."""

    broken: str | None = None
    building: tuple[int, int] | None = None

    @property
    def absence(self) -> str:
        """Returns why there is no index, as the end of a sentence that begins with "the index is"."""
        return f"broken ({self.broken})" if self.broken else "being built" if self.building else "missing"


@dataclass(slots=True)
class Connected:
    """One connection to an index file, with its stemmer. `loads_vectors` is True if sqlite-vec is loaded."""

    database: Database
    stems: Stems
    loads_vectors: bool


@dataclass(slots=True)
class Opened:
    """An open generation.

    A reader has two connections, so that words and vectors are searched at the same time. A writer has one connection,
    which is both `words` and `near`. If `retired`, the last of the `users` (running searches) closes it.
    """

    generation: Generation
    inode: int
    words: Connected
    near: Connected
    names: dict[int, str] = field(default_factory=dict)
    users: int = 0
    retired: bool = False

    async def close(self) -> None:
        await self.words.database.close()
        await self.near.database.close()
        self.generation.held.release()


async def open_reader(generation: Generation) -> Opened:
    """Opens a generation for searching. Raises DatabaseBroken if it is damaged or incomplete."""
    inode = inode_of(generation.path)
    words = await connect(generation.path, numpy=False)
    try:
        return Opened(generation, inode, words, await connect(generation.path, numpy=False))
    except BaseException:
        await words.database.close()
        raise


async def open_writer(generation: Generation) -> Opened:
    """Opens a generation for writing, and fills a stale vector table. Raises the same errors as `open_reader`."""
    inode = inode_of(generation.path)
    to = await connect(generation.path)
    try:
        if to.loads_vectors:
            await to.database.write(refill)
    except BaseException:  # also after a cancellation, the connection must be closed
        await to.database.close()
        raise
    return Opened(generation, inode, to, to)


async def connect(path: Path, *, new: bool = False, numpy: bool = True) -> Connected:
    """Connects to an index file; a `new` one may be empty. With `numpy`, imports NumPy, which takes 12 MB; a server
    that only checks for changes does not need it."""
    made: list[tuple[Stems, bool]] = []

    def prepare(connection: sqlite3.Connection) -> None:
        if not new and state(connection).get("complete") != "1":
            raise DatabaseBroken(f"{path.name} is incomplete: it was never filled to the end")
        if numpy:
            import_numpy()
        connection.execute("PRAGMA cache_size = -16000")
        made[:] = [(Stems(connection), load_vectors(connection))]

    if not new and _size(path) == 0:
        raise DatabaseBroken(f"{path.name} is empty")
    database = await Database.open(path, prepare=prepare, durable=False, busy_seconds=BUSY_SECONDS)
    return Connected(database, *made[0])


def _size(path: Path) -> int:
    return path.stat().st_size


MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation that this process uses until it releases `held`."""

    number: int
    path: Path
    held: Held


class Generations:
    """The index files of one schema and one embedder in a folder."""

    def __init__(self, folder: Path, locks: Locks, embedder: str) -> None:
        self.folder = folder
        self._locks = locks
        self._prefix = f"memory-{SCHEMA}-{re.sub(r'[^a-z0-9_.]', '_', embedder.lower())}"
        self._pointer = folder / f"{self._prefix}.current"
        self._damage = folder / f"{self._prefix}.damaged"

    def path(self, number: int) -> Path:
        return self.folder / f"{self._prefix}-{number}.db"

    def current(self) -> int | None:
        """Returns the live generation's number; None if there is none, or the pointer cannot be read."""
        return _number_in(self._pointer)

    def take_current(self) -> Generation | None:
        """Returns the live generation with a shared lock; None if there is none or its file is gone."""
        for _ in range(100):
            number = self.current()
            if number is None:
                return None
            held = self._locks.share(self._lock(number))
            if held is None:  # another process is deleting it; the pointer has changed, or changes soon
                continue
            if self.current() == number:
                if self.path(number).is_file():
                    return Generation(number, self.path(number), held)
                held.release()
                return None
            held.release()
        return None

    def is_live(self, opened: Opened) -> bool:
        """Returns whether an open generation is still live and its file was not replaced."""
        generation = opened.generation
        return generation.number == self.current() and inode_of(generation.path) == opened.inode

    def serves(self) -> bool:
        """Returns whether the live file begins with SQLite's magic bytes and was not reported as damaged."""
        number = self.current()
        if number is None or _number_in(self._damage) == number:
            return False
        try:
            with self.path(number).open("rb") as file:
                return file.read(len(MAGIC)) == MAGIC
        except OSError:
            return False

    def report_damage(self, number: int) -> None:
        """Records that a generation cannot be read. The maintaining process, which only writes, learns it from there
        and rebuilds the index."""
        with contextlib.suppress(OSError):
            self._damage.write_text(str(number), "ascii")

    def begin(self) -> Generation:
        """Creates an empty generation with a shared lock. Raises Unavailable if no file can be created."""
        self._locks.check_there()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            while True:
                there = [int(file.stem.rpartition("-")[2]) for file in self.folder.glob(f"{self._prefix}-[0-9]*.db")]
                number = max([self.current() or 0, *there]) + 1
                held = self._locks.share(self._lock(number))
                if held is None:
                    continue
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(self.path(number), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                    return Generation(number, self.path(number), held)
                held.release()
        except OSError as error:
            raise Unavailable(
                f"no index can be created in {self.folder} ({error.strerror or error}), so searches read the files "
                "themselves; check the disk and the permissions of .local/"
            ) from error

    def publish(self, generation: Generation) -> None:
        """Makes a filled generation the live one, for every process."""
        temporary = self._pointer.with_name(f"{self._pointer.name}.{secrets.token_hex(4)}")
        temporary.write_text(str(generation.number), "ascii")
        durable.replace(temporary, self._pointer)

    def sweep(self, *, others: bool = False) -> list[str]:
        """Deletes the index files that are neither live nor in use; with `others`, also those of other schemas and
        embedders. Returns the names of the files that are still in use."""
        used: list[str] = []
        for file in sorted(self.folder.glob("memory-*.db")):
            prefix = file.stem.rpartition("-")[0]
            is_mine = prefix == self._prefix
            if file == self.path(self.current() or 0) or not (is_mine or others):
                continue
            if not self._delete_unused(file, None if is_mine else self.folder / f"{prefix}.current"):
                used.append(file.name)
        return used

    def _delete_unused(self, file: Path, pointer: Path | None) -> bool:
        """Deletes an index file, and before it the file `pointer`, unless it is the live one. Returns False if it is
        in use."""
        try:
            held = self._locks.try_exclusive(f"index-{file.stem}")
        except Unavailable:
            return False
        if held is None:
            return False
        if file != self.path(self.current() or 0):
            if pointer is not None:
                pointer.unlink(missing_ok=True)
            for ending in ("-wal", "-shm", "-journal", ""):
                with contextlib.suppress(OSError):
                    file.with_name(file.name + ending).unlink()
        held.release(forget=True)
        return not file.exists()

    def _lock(self, number: int) -> str:
        return f"index-{self._prefix}-{number}"


def _number_in(file: Path) -> int | None:
    try:
        return int(file.read_text("ascii"))
    except (OSError, ValueError):
        return None
