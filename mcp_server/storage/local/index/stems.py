"""Stems of words, by the very tokenizer that the keyword index uses, as 32-bit numbers."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Sequence

from mcp_server.storage.local.index.schema import STEMMER

MOST = 200_000
"""Words kept per connection, about 20 MB at most; a workspace of 100,000 passages has fewer."""


class Stems:
    """Belongs to one connection and its thread. Equal stems have equal `numbers`, two in 4 · 10⁹ others too."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[str, int] = {}
        connection.executescript(STEMMER)

    def learn(self, words: Iterable[str]) -> None:
        """Looks up all words at once that are not known yet. `numbers` does it too, for few."""
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
        """One number a word, in order."""
        known = self._known
        try:
            return [known[word] for word in words]
        except KeyError:
            self.learn(words)
            return [self._known[word] for word in words]

    def terms(self, words: Sequence[str]) -> list[str]:
        """The stems themselves, as the keyword index's vocabulary writes them; for the few words of a query, whose
        numbers are then known as well."""
        self._connection.executemany("INSERT INTO temp.words_in (rowid, word) VALUES (?, ?)", enumerate(words))
        found = dict(self._connection.execute("SELECT doc, term FROM temp.stems_out WHERE offset = 0").fetchall())
        self._connection.execute("DELETE FROM temp.words_in")
        if len(self._known) > MOST:
            self._known.clear()
        for row, stem in found.items():
            self._known.setdefault(words[row], zlib.crc32(stem.encode()))
        return [found.get(row, word) for row, word in enumerate(words)]
