"""Connections to index files: stemmer, sqlite-vec, the two connections of a reader, and known problems."""

from __future__ import annotations

import importlib
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_server.storage.local.database import Database, DatabaseBroken
from mcp_server.storage.local.index import schema
from mcp_server.storage.local.index.generations import Generation
from mcp_server.storage.local.index.schema import STEMMER
from mcp_server.storage.local.index.vectors import Matrix

if TYPE_CHECKING:
    import sqlite3

    import anyio


MOST = 200_000
"""Words that are cached for each connection, at most about 20 MB; a workspace of 100,000 passages has fewer."""


class Stems:
    """The stems of words, by the tokenizer of the keyword index, as 32-bit numbers. Belongs to one connection and its
    thread. Different stems have equal numbers with a chance of 1 in 4 · 10⁹."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, int] = {}
        connection.executescript(STEMMER)

    def learn(self, words: Iterable[str]) -> None:
        """Looks up all unknown words at once. `numbers` does it too, for few words."""
        known = self._known
        asked = list(dict.fromkeys(words))
        new = [word for word in asked if word not in known]
        if not new:
            return
        if len(known) + len(new) > MOST:
            known.clear()
            new = asked  # also those that were known until now: whoever asks wants a number for each
        self._connection.executemany("INSERT INTO temp.words_in (rowid, word) VALUES (?, ?)", enumerate(new))
        for row, stem in self._connection.execute("SELECT doc, term FROM temp.stems_out WHERE offset = 0"):
            known[new[row]] = zlib.crc32(stem.encode())
        self._connection.execute("DELETE FROM temp.words_in")
        for word in new:  # the tokenizer sees no word there (a lone combining sign): it stands for itself
            known.setdefault(word, zlib.crc32(word.encode("utf-8", "replace")))

    def numbers(self, words: Sequence[str]) -> list[int]:
        """Returns the number of each word, in order."""
        known = self._known
        try:
            return [known[word] for word in words]
        except KeyError:
            self.learn(words)
            return [self._known[word] for word in words]

    def terms(self, words: Sequence[str]) -> list[str]:
        """Returns the stems as text, as in the keyword index's vocabulary, and caches their numbers."""
        self._connection.executemany("INSERT INTO temp.words_in (rowid, word) VALUES (?, ?)", enumerate(words))
        found = dict(self._connection.execute("SELECT doc, term FROM temp.stems_out WHERE offset = 0").fetchall())
        self._connection.execute("DELETE FROM temp.words_in")
        if len(self._known) > MOST:
            self._known.clear()
        for row, stem in found.items():
            self._known.setdefault(words[row], zlib.crc32(stem.encode()))
        return [found.get(row, word) for row, word in enumerate(words)]


_importing = threading.Lock()
numpy_is_there = threading.Event()

BUSY_SECONDS = 5.0
"""No reader keeps an index locked for long: a file that stays locked is damaged."""


@dataclass(slots=True)
class Health:
    """The index's current problems, as sentences or None. `building` is (files done, all files)."""

    broken: str | None = None
    building: tuple[int, int] | None = None
    embedding: str | None = None

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
class OpenReader:
    """An open generation with two connections, so that words and vectors are searched at once.

    A `retired` one is closed by its last user.
    """

    generation: Generation
    inode: int
    words: Connected
    near: Connected
    matrix: Matrix = field(default_factory=Matrix)
    names: dict[int, str] = field(default_factory=dict)
    users: int = 0
    retired: bool = False

    async def close(self) -> None:
        """Closes both connections and releases the generation."""
        await self.words.database.close()
        await self.near.database.close()
        self.generation.held.release()


async def open_reader(generation: Generation) -> OpenReader:
    """Opens a generation for searching. Raises DatabaseBroken if it is damaged or incomplete."""
    inode = inode_of(generation.path)
    words = await connect(generation.path, numpy=False)
    try:
        near = await connect(generation.path, numpy=False)
    except BaseException:
        await words.database.close()
        raise
    return OpenReader(generation, inode, words, near)


async def connect(path: Path, *, new: bool = False, numpy: bool = True) -> Connected:
    """Connects to an index file; a `new` one may be empty. With `numpy`, imports NumPy first, which takes 12 MB: a
    server that only checks for changes does not need it."""
    made: list[tuple[Stems, bool]] = []

    def prepare(connection: sqlite3.Connection) -> None:
        if numpy:
            import_numpy()
        connection.execute("PRAGMA cache_size = -16000")
        made[:] = [(Stems(connection), schema.load_vectors(connection))]

    if not new and _size(path) == 0:
        raise DatabaseBroken(f"{path.name} is empty")
    database = await Database.open(path, prepare=prepare, durable=False, busy_seconds=BUSY_SECONDS)
    try:
        if not new and (await database.read(schema.state)).get("complete") != "1":
            raise DatabaseBroken(f"{path.name} was never completed")
    except BaseException:
        await database.close()
        raise
    stems, loads = made[0]
    return Connected(database, stems, loads)


def import_numpy() -> None:
    """Imports NumPy, one thread at a time: two first imports at once break it."""
    with _importing:
        importlib.import_module("numpy")
        numpy_is_there.set()


def _size(path: Path) -> int:
    return path.stat().st_size


def inode_of(path: Path) -> int:
    """Returns the file's inode; -1 if it is gone."""
    try:
        return path.stat().st_ino
    except OSError:
        return -1


class Lock:
    """An anyio.Lock that is made on first use, because a process that never searches never imports anyio."""

    def __init__(self) -> None:
        self._lock: anyio.Lock | None = None

    def __call__(self) -> anyio.Lock:
        if self._lock is None:
            import anyio

            self._lock = anyio.Lock()
        return self._lock
