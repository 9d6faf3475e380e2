"""The search index: a disposable copy of the files for fast searches.

If the index is missing or broken, `answer` searches the files themselves and reports that, and `needs_care` is True, so
that the maintainer rebuilds the index.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from anyio import Lock, current_time, move_on_after, sleep, to_thread

from mcp_server.concurrency import both
from mcp_server.embed.providers import Embedding
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.storage.index.file_reader import FileContent, Row, Signals, plan, signals_of
from mcp_server.storage.index.scoring import EXCHANGE_PARTS, as_candidates, exchanges_of, import_numpy, numpy_is_there
from mcp_server.storage.local.index.generations import Opened, open_reader
from mcp_server.storage.local.index.maintenance import SMALL, Counts, Maintenance, count_contents
from mcp_server.storage.local.index.tables import LocalSearching, create, nearest, nearest_of, state
from mcp_server.storage.local.index.writer import Piece, known_units, read_file, write
from mcp_server.storage.ports import Progress
from mcp_server.storage.sqlite import Stems, driver
from mcp_server.storage.state import storable
from mcp_server.storage.values import (
    FOLDERS,
    USUAL,
    Candidates,
    FileStat,
    IndexQuery,
    IndexStatus,
    TurnsNear,
    is_indexed,
)
from mcp_server.understanding.encoder import vector_of_query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder
    from mcp_server.model import Exchange
    from mcp_server.storage.files import Files
    from mcp_server.storage.index.searching import Near, Vector
    from mcp_server.storage.local.files import WorkspaceFiles
    from mcp_server.storage.local.locks import Locks
    from mcp_server.text.entries import Source


T = TypeVar("T")

SETTLE_SECONDS = 1.0
"""Time limit of `settle`. A write is indexed within about 0.05 s by the same process, 0.2 s by another one."""

RENEW_SECONDS = 15.0
"""Seconds for which `renew` waits for other processes to close the old index. A server checks twice a second."""


class Index(Maintenance):
    """The search index of one workspace and embedder.

    If the embedder cannot be loaded, `embedder` is None, and `name` and `dimensions` describe it.
    """

    def __init__(
        self,
        files: WorkspaceFiles,
        locks: Locks,
        folder: Path,
        embedder: Embedder | None = None,
        name: str | None = None,
        dimensions: int = 0,
    ) -> None:
        super().__init__(files, locks, folder, Embedding(embedder, name, dimensions))
        self._scan = Scan(files, lambda path: read_file(files, path, None))
        self._open: Opened | None = None
        self._opening = Lock()

    async def answer(self, queries: Sequence[IndexQuery], then: Callable[[Sequence[Candidates], TurnsNear], T]) -> T:
        try:
            async with self._reading() as opened:
                if opened is not None:
                    return await self._search(opened, queries, then)
        except (Unavailable, OSError, driver().error) as error:
            await self._mark_broken(error)

        def scanned() -> T:
            return then([self._scan.search(query, self._health.absence) for query in queries], lambda text, turns: {})

        return await to_thread.run_sync(scanned)

    async def _search(
        self, opened: Opened, queries: Sequence[IndexQuery], then: Callable[[Sequence[Candidates], TurnsNear], T]
    ) -> T:
        """Returns `then` of the candidates. Uses two connections at the same time: one searches words, the other
        vectors. The thread of the first waits for the second and finishes the searches in one transaction, because
        passing hundreds of candidates between threads over the event loop takes milliseconds."""
        if not numpy_is_there.is_set():
            await to_thread.run_sync(import_numpy)
        near: Future[list[Near]] = Future()
        about: Future[list[Vector]] = Future()

        def look_near(connection: sqlite3.Connection) -> None:
            kept = state(connection)
            by_vec = opened.near.loads_vectors and kept["vectors_stale"] == "0"
            found: list[Near] = []
            for query in queries:
                vector = None if query.mode == "keyword" else self._embedding.of_query(query.text)
                if vector is None or int(kept["dimensions"]) != len(vector):
                    found.append((None, []))
                    continue
                searching = LocalSearching(connection, {}, opened.near.stems, query)
                look = nearest if by_vec else nearest_of
                found.append((vector, look(searching, vector, searching.scope())))
            near.set_result(found)  # the other thread reads these rows during the next step
            about.set_result(
                [
                    None if one is None else vector_of_query(query.said or query.text)
                    for query, (one, _) in zip(queries, found, strict=True)
                ]
            )

        async def by_meaning() -> None:
            try:
                await opened.near.database.read(look_near)
            finally:
                for result in (near, about):
                    result.cancel()  # if it has no result, the other thread would wait forever; else no effect

        def by_words(connection: sqlite3.Connection, place: int, query: IndexQuery) -> Candidates:
            searching = LocalSearching(connection, opened.names, opened.words.stems, query)
            planned, vector, found = searching.candidates(
                lambda plan, scope: near.result()[place], lambda: about.result()[place]
            )
            number, messages = str(opened.generation.number), self._embedding.messages()
            return as_candidates(planned, found, query.mode, vector is not None, number, messages)

        def work(connection: sqlite3.Connection) -> T:
            def turns_near(text: str, turns: Sequence[Source]) -> Mapping[Source, Exchange]:
                vector = self._embedding.of_query(text) if turns else None
                return {} if vector is None else _exchanges(connection, vector, turns)

            return then([by_words(connection, place, query) for place, query in enumerate(queries)], turns_near)

        words = opened.words.database.read(work)
        if self._embedding.embedder is None or all(query.mode == "keyword" for query in queries):
            near.set_result([(None, [])] * len(queries))
            return await words
        return (await both(by_meaning(), words))[1]  # in this order, because the second waits for the first

    def embed_ahead(self, text: str) -> None:
        if numpy_is_there.is_set():
            self._embedding.of_query(text)

    async def settle(self, paths: Iterable[str], patience: float = SETTLE_SECONDS) -> None:
        """Waits until searches see the current versions of these files, at most `patience` seconds.

        Does not wait if the index is broken or being built, because searches then read the files.
        """
        left = [path for path in paths if is_indexed(path)]
        with move_on_after(patience):
            while left and self._health.broken is None and self._health.building is None:
                there = await to_thread.run_sync(self._sizes_and_times, left)
                known = await self._ask(partial(_indexed_versions, paths=left), there)
                nothing = (0, 0)
                left = [
                    path
                    for path in left
                    if known.get(path) != there.get(path)
                    # `apply` indexes large and postponed files later.
                    and there.get(path, nothing)[0] - known.get(path, nothing)[0] <= SMALL
                    and path not in self._postponed
                ]
                if left:
                    await sleep(0.01)

    def _sizes_and_times(self, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Returns size (bytes) and mtime (ns) of the existing files. Skips links: only their targets are indexed."""
        found = {}
        for path in paths:
            with contextlib.suppress(ContextManagerError, OSError):
                if self._files.relative(path) == path:
                    about = self._files.stat(path)
                    found[path] = (about.size, about.mtime_ns)
        return found

    async def last_turn(self, session: str) -> int | None:
        sql = "SELECT max(m.mark) FROM knowledge_meta m JOIN names n ON n.id = m.session WHERE n.name = ?"
        return await self._ask(lambda connection: int(connection.execute(sql, (session,)).fetchone()[0] or 0), None)

    async def data_version(self) -> tuple[str, int]:
        try:
            async with self._reading() as opened:
                if opened is not None:
                    return str(opened.generation.number), await opened.near.database.data_version()
        except (Unavailable, OSError, driver().error) as error:
            await self._mark_broken(error)
        return "none", 0

    async def status(self) -> IndexStatus:
        name, counts = self._embedding.name, await self._ask(count_contents, None)
        opened, health, messages = self._open, self._health, self._embedding.messages()
        if counts is None:
            state = "broken" if health.broken else "building" if health.building else "missing"
            messages.insert(0, f"the search index is {health.absence}: searches read the files until it is rebuilt")
            counts = Counts(0, 0, 0, ())
        else:
            state = "building" if health.building or counts.unfinished else "ready"
            if counts.not_embedded and name != "none":
                messages.append(f"{counts.not_embedded} passages are not embedded yet: they are found by keywords only")
        uses_vec = opened is not None and opened.near.loads_vectors
        if name != "none" and opened is not None and not uses_vec:
            messages.append(
                "sqlite-vec cannot be loaded by this Python; similarity is computed with NumPy (pip install pysqlite3)"
            )
        return IndexStatus(
            state=state,
            generation=str(opened.generation.number) if opened else "none",
            embedder=name,
            vectors="none" if name == "none" else "sqlite-vec" if uses_vec or opened is None else "numpy",
            sqlite=f"{driver().name} {driver().version}",
            files=counts.files,
            passages=counts.passages,
            not_embedded=counts.not_embedded,
            size_bytes=opened.generation.path.stat().st_size if opened and opened.generation.path.exists() else 0,
            problems=counts.problems,
            messages=tuple(messages),
        )

    async def compare_sample(self, files: int) -> tuple[int, tuple[str, ...]]:
        sampled: list[str] = await self._ask(lambda connection: _sample(connection, files), [])
        compared = [(path, same) for path in sampled if (same := await self._is_as_indexed(path)) is not None]
        return len(compared), tuple(path for path, same in compared if not same)

    async def _is_as_indexed(self, path: str) -> bool | None:
        """Returns whether the index has exactly the passages of a file; None if the file changed since it was
        indexed."""

        def read() -> tuple[FileContent, list[Row], list[Signals]]:
            found = read_file(self._files, path, None)
            rows = list(plan(found, {}).rows)
            return found, rows, [signals_of(row) for row in rows]

        found, rows, cuts = await to_thread.run_sync(read)

        def compare(connection: sqlite3.Connection) -> bool | None:
            if _indexed_versions(connection, [path]).get(path) != (found.size, found.mtime_ns):
                return None
            return _holds(connection, path, rows, cuts)

        return await self._ask(compare, None)

    async def _ask(self, fn: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        try:
            async with self._reading() as opened:
                return otherwise if opened is None else await opened.words.database.read(fn)
        except (Unavailable, OSError, driver().error) as error:
            await self._mark_broken(error)
            return otherwise

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Opened | None]:
        """Yields the open live generation, or None if there is none. Opens the new one if another became live."""
        opened = await self._opened()
        if opened is None:
            yield None
            return
        opened.users += 1
        try:
            yield opened
        finally:
            opened.users -= 1
            if opened.retired and opened.users == 0:
                await opened.close()

    async def _opened(self) -> Opened | None:
        if self._open is not None and self._generations.is_live(self._open):
            return self._open
        async with self._opening:
            if self._open is not None and self._generations.is_live(self._open):
                return self._open
            await self._retire()
            generation = self._generations.take_current()
            if generation is None:
                return None
            try:
                self._open = await open_reader(generation)
                self._health.broken = None
            except BaseException:
                generation.held.release()
                raise
            return self._open

    async def _retire(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.retired = True
            if opened.users == 0:
                await opened.close()

    async def _mark_broken(self, error: Exception) -> None:
        self._health.broken = str(error)
        number = self._generations.current()
        if number is not None:
            self._generations.report_damage(number)
        await self._retire()

    async def renew(self, progress: Progress | None = None) -> tuple[str, ...]:
        await self.rebuild(progress)
        await self.close()
        until = current_time() + RENEW_SECONDS
        while True:
            left = await to_thread.run_sync(lambda: self._generations.sweep(others=True))
            if not left or current_time() > until:
                return tuple(left)
            await sleep(0.05)

    async def close(self) -> None:
        """Closes everything; the index can be used again afterwards."""
        await self._close_writer()
        await self._retire()


def _indexed_versions(connection: sqlite3.Connection, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Returns size (bytes) and mtime (ns) of these files when they were indexed. Files not indexed are left out."""
    rows = connection.execute(
        "SELECT path, size, mtime_ns FROM files WHERE path IN (SELECT value FROM json_each(?))", (json.dumps(paths),)
    )
    return {path: (size, mtime_ns) for path, size, mtime_ns in rows}


def _exchanges(
    connection: sqlite3.Connection, vector: NDArray[np.float32], turns: Sequence[Source]
) -> dict[Source, Exchange]:
    """Returns the similarity of these turns and their neighbors to a message's vector. Turns without a vector are left
    out."""
    rows = connection.execute(
        "SELECT DISTINCT f.path, n.mark, n.part, p.vector FROM json_each(?) j "
        "CROSS JOIN files f ON f.path = json_extract(j.value, '$[0]') "
        "CROSS JOIN knowledge_meta n ON n.file = f.id "
        "AND n.mark BETWEEN json_extract(j.value, '$[1]') - 1 AND json_extract(j.value, '$[1]') + 1 "
        "CROSS JOIN passages p ON p.id = n.id WHERE n.part < ? AND length(p.vector) = ?",
        (json.dumps([(one.path, one.turn) for one in turns]), EXCHANGE_PARTS, 2 * len(vector)),
    )
    return exchanges_of(rows, vector, turns)


def _sample(connection: sqlite3.Connection, most: int) -> list[str]:
    """Returns the paths of at most `most` random indexed files. One half is drawn by passages, so that files with more
    passages are more likely."""
    of_passages = "SELECT file FROM knowledge_meta ORDER BY random() LIMIT ?"
    rows = connection.execute(f"SELECT DISTINCT path FROM files WHERE id IN ({of_passages})", (most // 2,)).fetchall()
    rows += connection.execute("SELECT path FROM files ORDER BY random() LIMIT ?", (most - len(rows),)).fetchall()
    return list(dict.fromkeys(row[0] for row in rows))


def _holds(connection: sqlite3.Connection, path: str, rows: Sequence[Row], cuts: Sequence[Signals]) -> bool:
    """Returns whether the index has exactly these passages of a file, with their words for the keyword search."""
    expected = {
        (row.mark, row.passage.part, row.digest, storable(row.passage.text), storable(" ".join(found.words)))
        for row, found in zip(rows, cuts, strict=True)
    }
    stored = connection.execute(
        "SELECT m.mark, m.part, m.digest, p.text, CASE m.derived WHEN 1 THEN l.words ELSE k.words END "
        "FROM files f JOIN knowledge_meta m ON m.file = f.id LEFT JOIN passages p ON p.id = m.id "
        "LEFT JOIN knowledge_fts k ON k.rowid = m.id LEFT JOIN lines_fts l ON l.rowid = m.id WHERE f.path = ?",
        (path,),
    ).fetchall()
    return len(stored) == len(expected) and set(stored) == expected


MOST_BYTES = 64_000_000
"""Most bytes that a scan reads, newest files first."""


class Scan:
    """Searches the files by keywords without the index on disk: slow for many files, but always possible. Both engines
    use it while their index is missing. Safe to call from several threads.

    `read_file` returns the passages of a file. They are indexed in memory. If a file changes, it is indexed again.
    """

    def __init__(self, files: Files, read_file: Callable[[str], FileContent]) -> None:
        self._files = files
        self._read_file = read_file
        self._lock = threading.Lock()
        self._index: tuple[sqlite3.Connection, Stems] | None = None
        self._indexed: dict[str, FileStat] = {}

    def search(self, query: IndexQuery, absence: str) -> Candidates:
        message = (
            f"the search index is {absence}: the files were searched instead, by keywords only. "
            "The server rebuilds the index; `context-manager reset --index --apply` rebuilds it now"
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
