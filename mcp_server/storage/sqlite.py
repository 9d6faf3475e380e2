"""The SQLite library in use, and the stems of words by the tokenizer of its full-text index: both engines use it."""

from __future__ import annotations

import functools
import importlib
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any


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
        pysqlite3 = importlib.import_module("pysqlite3")  # has no types of its own
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
    except (AttributeError, module.Error):  # left out when Python was built, or when its SQLite was
        return False
    finally:
        connection.close()
    return True


STEMMER = """
CREATE VIRTUAL TABLE temp.words_in USING fts5 (word, tokenize = 'porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE temp.stems_out USING fts5vocab (temp, words_in, instance);
"""


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
        asked = list(dict.fromkeys(words))
        new = [word for word in asked if word not in self._known]
        if len(self._known) + len(new) > MOST:
            new = asked  # the cache is emptied: the known words are needed, too
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

        A word that the tokenizer does not see (a lone combining sign) is its own stem.
        """
        self._connection.executemany("INSERT INTO temp.words_in (rowid, word) VALUES (?, ?)", enumerate(words))
        found = dict(self._connection.execute("SELECT doc, term FROM temp.stems_out WHERE offset = 0").fetchall())
        self._connection.execute("DELETE FROM temp.words_in")
        stems = [found.get(row, word) for row, word in enumerate(words)]
        if len(self._known) + len(words) > MOST:
            self._known.clear()
        self._known.update(zip(words, (zlib.crc32(stem.encode("utf-8", "replace")) for stem in stems), strict=True))
        return stems
