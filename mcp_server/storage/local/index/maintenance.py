"""Maintenance of the index: updates by the maintaining process, and rebuilds by any process."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from anyio import CancelScope, Lock, to_thread

from mcp_server.embed.providers import Embedding
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.storage.index.file_reader import COPIES, NEWEST, RACY_NS, IndexedFile, transcripts_last
from mcp_server.storage.index.scoring import packed_about, passage_of
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.index.generations import (
    Generation,
    Generations,
    IndexHealth,
    Opened,
    connect,
    open_writer,
)
from mcp_server.storage.local.index.tables import COLUMNS, FILES, STORED, create, learn, state
from mcp_server.storage.local.index.writer import UNFINISHED, Indexer, add_vectors, complete, known_files, known_paths
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.ports import Progress
from mcp_server.storage.sqlite import driver
from mcp_server.storage.values import FOLDERS, FileStat, is_indexed
from mcp_server.text.passages import indexed_text

T = TypeVar("T")

SMALL = 256 * 1024
"""Most bytes that one `apply_small` reads; indexing them takes a few tenths of a second."""


class _Replaced(Exception):
    """Another generation became live during the work."""


class Maintenance:
    """The part of an index that builds and updates its files."""

    def __init__(self, files: WorkspaceFiles, locks: Locks, folder: Path, embedding: Embedding) -> None:
        self._files = files
        self._generations = Generations(folder, locks, embedding.name)
        self._embedding = embedding
        self._health = IndexHealth()
        self._writing: Opened | None = None
        self._turn = Lock()
        self._long: Indexer | None = None  # the running refresh or apply, which pauses for other writers
        self._postponed: set[str] = set()
        """Files that `apply_small` left to `apply`; `settle` does not wait for them."""

    @property
    def needs_care(self) -> bool:
        """Returns True if the maintainer should `refresh` at once: the index is missing, broken or was replaced."""
        replaced = self._writing is not None and not self._generations.is_live(self._writing)
        return self._health.broken is not None or not self._generations.serves() or replaced

    async def refresh(self, progress: Progress | None = None) -> int:
        """Indexes all changed files, and builds a missing index. Returns the number of changed files.

        Only the process with the maintainer's lock may call it; the same applies to `apply` and `apply_small`.
        """

        async def work(writing: Opened) -> int:
            known = await writing.words.database.read(known_files)
            changed = await to_thread.run_sync(self._changed, known)
            count = await self._fill(writing, changed, progress)
            await self._embed_missing(writing)
            return count

        count = await self._with_live(work)
        self._postponed.clear()
        return await self.rebuild(progress) if count is None else count

    async def apply(self, paths: Iterable[str]) -> int:
        """Updates these files and all files in these folders, also deleted ones. Returns how many had changed."""
        paths = tuple(paths)

        async def work(writing: Opened) -> int:
            return await self._fill(writing, await self._named(writing, paths), None)

        count = await self._with_live(work)
        self._postponed.difference_update(paths)
        return await self.rebuild() if count is None else count

    async def apply_small(self, paths: Iterable[str]) -> tuple[int, list[str]]:
        """Updates small files, also while `refresh` or `apply` is running: they pause for it.

        Returns the number of changed files, and the paths that it leaves to `apply`: large files, and all files if
        there is no index. `settle` does not wait for those.
        """
        paths = tuple(paths)

        async def work(writing: Opened) -> tuple[int, list[str]]:
            named = await self._named(writing, paths)
            known = await writing.words.database.read(lambda connection: known_files(connection, named))
            held = self._long.held if self._long else frozenset()
            small: list[str] = []
            left: list[str] = []
            room = SMALL
            for path in named:
                size = self._to_read(path, known.get(path))
                if path in held or size > room:
                    left.append(path)
                else:
                    small.append(path)
                    room -= size
            filling = Indexer(writing.words, self._files, self._embedding)
            return await filling.run(small, known), left

        done = await self._with_live(work)
        changed, left = (0, list(paths)) if done is None else done
        self._postponed.update(left)
        return changed, left

    async def rebuild(self, progress: Progress | None = None) -> int:
        """Fills a new generation from the files and makes it live for every process. Until then, searches use the old
        one.

        Any process may call it. Returns the number of files. Raises Unavailable if no file can be created.
        """
        paths = await to_thread.run_sync(lambda: [stat.path for stat in self._walk()])
        generation = await to_thread.run_sync(self._generations.begin)
        self._health.building = (0, len(paths))

        def show(done: int, total: int) -> None:
            self._health.building = (done, total)
            if progress:
                progress(done, total)

        try:
            await self._build(generation, paths, show)
            await to_thread.run_sync(self._generations.publish, generation)
            self._health.broken = None
        finally:
            self._health.building = None
            generation.held.release()
            with CancelScope(shield=True):
                await to_thread.run_sync(self._generations.sweep)
        return len(paths)

    async def read_ahead(self, most: int) -> int:
        if self._embedding.embedder is None:
            return 0

        async def waiting_in(writing: Opened) -> tuple[Opened, list[tuple[int, str, int]]]:
            return writing, await writing.words.database.read(lambda connection: not_read(connection, most))

        found = await self._with_live(waiting_in)
        if found is None or not found[1]:
            return 0
        seen, waiting = found
        about = await to_thread.run_sync(packed_about, [(text, bool(derived)) for _, text, derived in waiting])
        values = [(one, number) for one, (number, *_) in zip(about, waiting, strict=True)]

        async def store(writing: Opened) -> int:
            if writing is seen:  # another generation has other ids
                statement = "UPDATE passages SET about = ? WHERE id = ?"
                await writing.words.database.write(lambda connection: connection.executemany(statement, values))
            return len(values)

        return await self._with_live(store) or 0

    async def _close_writer(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing.close()

    async def _build(self, generation: Generation, paths: Sequence[str], progress: Progress) -> None:
        to = await connect(generation.path, new=True)
        try:
            name, numbers = self._embedding.name, self._embedding.dimensions
            await to.database.outside(lambda c: create(c, name, numbers, to.loads_vectors))
            filling = Indexer(to, self._files, self._embedding)
            await filling.run(paths, {}, progress)
            await to.database.write(complete)
        finally:
            await to.database.close()

    async def _fill(self, writing: Opened, paths: Sequence[str], progress: Progress | None) -> int:
        if not paths:
            return 0
        known = await writing.words.database.read(lambda connection: known_files(connection, paths))
        filling = self._long = Indexer(writing.words, self._files, self._embedding, lambda: self._let_others(writing))
        try:
            changed = await filling.run(sorted(paths, key=transcripts_last), known, progress)
        finally:
            self._long = None
        return changed

    async def _with_live(self, work: Callable[[Opened], Awaitable[T]]) -> T | None:
        """Returns the result of `work` on the live generation. Returns None if no live generation can be written or it
        is damaged; the index must then be rebuilt."""
        while True:
            async with self._turn:
                writing = await self._writer()
                if writing is None:
                    return None
                try:
                    return await work(writing)
                except _Replaced:
                    continue
                except driver().error as error:
                    self._health.broken = str(error)
                    return None
                except Unavailable as error:
                    await self._check_damage(writing, error)
                    return None

    async def _let_others(self, writing: Opened) -> None:
        """Lets waiting writers run first. Raises _Replaced if another generation became live."""
        if self._turn.statistics().tasks_waiting:
            self._turn.release()
            with CancelScope(shield=True):  # the caller releases it
                await self._turn.acquire()
        if self._writing is not writing:
            raise _Replaced

    async def _named(self, writing: Opened, paths: Iterable[str]) -> list[str]:
        """Returns the indexable files at or below these paths, on disk or in the index."""
        held = await writing.words.database.read(lambda connection: known_paths(connection, paths))
        there = await to_thread.run_sync(self._below, paths)
        return sorted({path for path in (*held, *there) if is_indexed(path)})

    def _to_read(self, path: str, known: IndexedFile | None) -> int:
        """Returns the approximate number of bytes of a file that are not indexed yet; 0 for a deleted file."""
        try:
            size = self._files.stat(path).size
        except (ContextManagerError, OSError):
            return 0
        seen = known.so_far.end if known is not None and known.so_far is not None else 0
        return size - seen if size >= seen else size

    async def _embed_missing(self, writing: Opened) -> None:
        """Embeds the passages that were indexed without an embedder."""
        to = writing.words
        while self._embedding.embedder is not None:
            waiting = await to.database.read(lambda connection: without_vector(connection, 1_000))
            vectors = await to_thread.run_sync(self._embedding.of, [text for _, text in waiting])
            if vectors is None:
                return
            ids = [number for number, _ in waiting]
            await to.database.write(partial(add_vectors, ids=ids, vectors=vectors, can_load=to.loads_vectors))
            await self._let_others(writing)

    async def _writer(self) -> Opened | None:
        """Returns the live generation, open for writing; None if no live generation can be written."""
        if self._writing is not None and not self._generations.is_live(self._writing):
            await self._close_writer()
        if self._health.broken or not self._generations.serves():
            await self._close_writer()
            return None
        if self._writing is not None:
            return self._writing
        generation = self._generations.take_current()
        if generation is None:
            return None
        try:
            self._writing = await open_writer(generation)
        except BaseException as error:
            generation.held.release()
            if not isinstance(error, Unavailable | OSError | driver().error):
                raise
            self._health.broken = str(error)
        return self._writing

    async def _check_damage(self, writing: Opened, error: Unavailable) -> None:
        """Marks the index as broken if it cannot be read. Otherwise raises `error`, which then comes from a full or
        read-only disk."""
        try:
            await writing.words.database.read(count_contents)
        except (Unavailable, driver().error):
            self._health.broken = str(error)
            return
        raise error

    def _walk(self) -> Iterator[FileStat]:
        return (stat for folder in FOLDERS for stat in self._files.walk(folder) if is_indexed(stat.path))

    def _changed(self, known: Mapping[str, IndexedFile]) -> list[str]:
        """Returns the paths of files that are new, deleted, or changed since they were indexed."""
        changed: list[str] = []
        seen: set[str] = set()
        for stat in self._walk():
            seen.add(stat.path)
            before = known.get(stat.path)
            if (
                before is None
                or (before.size, before.mtime_ns) != (stat.size, stat.mtime_ns)
                or before.mtime_ns > before.looked_ns - RACY_NS
            ):
                changed.append(stat.path)
        return changed + [path for path in known if path not in seen]

    def _below(self, paths: Iterable[str]) -> list[str]:
        found: list[str] = []
        for path in paths:
            try:
                place: Path = self._files.resolve(path)
                found += [stat.path for stat in self._files.walk(path)] if place.is_dir() else [path]
            except ContextManagerError:  # not a path in the workspace
                continue
        return found


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers for `status`.

    `problems`: a sentence for each file that could not be read correctly. `unfinished`: the number of files that are
    indexed only in part.
    """

    files: int
    passages: int
    not_embedded: int
    problems: tuple[str, ...]
    unfinished: int = 0


def count_contents(connection: sqlite3.Connection) -> Counts:
    (files,) = connection.execute("SELECT count(*) FROM files").fetchone()
    (passages,) = connection.execute("SELECT passages + lines FROM totals").fetchone()
    (waiting,) = connection.execute("SELECT count(*) FROM passages WHERE vector IS NULL").fetchone()
    problems = connection.execute("SELECT problem FROM files WHERE problem IS NOT NULL ORDER BY path").fetchall()
    (unfinished,) = connection.execute("SELECT count(*) FROM files WHERE size = ?", (UNFINISHED,)).fetchone()
    not_embedded = waiting if int(state(connection)["dimensions"]) else 0
    return Counts(files, passages, not_embedded, tuple(row[0] for row in problems), unfinished)


def without_vector(connection: sqlite3.Connection, most: int) -> list[tuple[int, str]]:
    """Returns at most `most` passages that were written without an embedder: id and the text to embed."""
    waiting = "SELECT id FROM passages WHERE vector IS NULL LIMIT ?"
    rows = connection.execute(f"SELECT {COLUMNS} FROM {STORED}{FILES} WHERE m.id IN ({waiting})", (most,)).fetchall()
    names: dict[int, str] = {}
    learn(connection, rows, names)
    return [(row[0], indexed_text(passage_of(row, names))) for row in rows]


def not_read(connection: sqlite3.Connection, most: int) -> list[tuple[int, str, int]]:
    """Returns at most `most` passages that the recognizer's network has not processed: id, text, and 1 for a derived
    line. The newest come first, copies (categories in COPIES) last."""
    return connection.execute(
        "SELECT p.id, p.text, m.derived FROM (SELECT id FROM passages WHERE about IS NULL ORDER BY id DESC LIMIT ?) n "
        "CROSS JOIN passages p ON p.id = n.id CROSS JOIN knowledge_meta m ON m.id = n.id CROSS JOIN names c "
        "ON c.id = m.category ORDER BY c.name IN (SELECT value FROM json_each(?)), n.id DESC LIMIT ?",
        (NEWEST, json.dumps(COPIES), most),
    ).fetchall()
