"""Searches the files without an index, by keywords. Slow for many files, but always possible.

The passages are indexed in memory, and again if a file has changed. Both engines use it while their index is missing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from threading import Lock

from mcp_server.storage.files import Files
from mcp_server.storage.index.file_reader import FileContent, plan, signals_of
from mcp_server.storage.index.scoring import as_candidates, import_numpy
from mcp_server.storage.local.index.searching import LocalSearching
from mcp_server.storage.local.index.tables import create
from mcp_server.storage.local.index.writer import Piece, known_units, write
from mcp_server.storage.sqlite import Stems, driver
from mcp_server.storage.values import FOLDERS, USUAL, Candidates, FileStat, IndexQuery, is_indexed

MOST_BYTES = 64_000_000
"""Bytes that a scan reads at most, newest files first."""


class Scan:
    """Searches files. `read_file` returns the passages of one. Safe to call from several threads."""

    def __init__(self, files: Files, read_file: Callable[[str], FileContent]) -> None:
        self._files = files
        self._read_file = read_file
        self._lock = Lock()
        self._index: tuple[sqlite3.Connection, Stems] | None = None
        self._indexed: dict[str, FileStat] = {}

    def search(self, query: IndexQuery, absence: str) -> Candidates:
        message = (
            f"the search index is {absence}: the files were read instead, by keywords only. "
            "The server rebuilds it, or `context-manager reset --index --apply`"
        )
        import_numpy()
        with self._lock:
            connection, stems, is_whole = self._current()
            searching = LocalSearching(connection, {}, stems, replace(query, mode="keyword", depth=USUAL))
            planned, _, found = searching.candidates(lambda plan, scope: (None, []), lambda: None)
        if not is_whole:
            message += "; the oldest files of this large workspace were left out"
        return replace(as_candidates(planned, found, "keyword", False, "none", (message,)), used="scan")

    def _current(self) -> tuple[sqlite3.Connection, Stems, bool]:
        """Returns the index in memory of the files as they are now, and whether it has all of them."""
        if self._index is None:
            connection: sqlite3.Connection = driver().module.connect(":memory:", check_same_thread=False)
            create(connection, "none", 0, vectors=False)
            self._index = connection, Stems(connection)
        connection, stems = self._index
        found = [stat for folder in FOLDERS for stat in self._files.walk(folder) if is_indexed(stat.path)]
        newest = sorted(found, key=lambda stat: -stat.mtime_ns)
        sizes = accumulate(stat.size for stat in newest)
        now = {stat.path: stat for stat, size in zip(newest, sizes, strict=True) if size <= MOST_BYTES}
        for path in self._indexed.keys() - now.keys():
            write(connection, stems, Piece([plan(FileContent(path, gone=True), {})]), [], None)
        for path, stat in now.items():
            if self._indexed.get(path) != stat:
                planned = plan(self._read_file(path), known_units(connection, path))
                write(connection, stems, Piece([planned]), [signals_of(row) for row in planned.rows], None)
        self._indexed = now
        return connection, stems, len(now) == len(found)
