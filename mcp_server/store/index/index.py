"""The index, as the rest of the house sees it: a disposable copy of the files that answers quickly.

    found = await index.candidates(parse_query("when did we move?", now), Filters())
    await index.refresh()         # the maintaining process only: bring it up to date with the files
    await index.rebuild()         # anybody, any time: a new generation, while the old one serves

A missing or broken index is no error: `candidates` reads the files themselves and says so, and `needs_rebuild` is set for the maintainer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from mcp_server.core.model import Passage
from mcp_server.core.scoring import ranking
from mcp_server.core.text.query import Query
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.store.database import Database, DatabaseBroken, driver
from mcp_server.store.index import inside, schema
from mcp_server.store.index.filters import Filters
from mcp_server.store.index.filling import Filling, Progress
from mcp_server.store.index.generations import Generation, Generations
from mcp_server.store.index.looking import FOLDERS, RACY_NS, is_indexed
from mcp_server.store.index.reader import Asking, Found, ask, by_words, fetch_rows, scope_of, score
from mcp_server.store.index.scan import Scan
from mcp_server.store.index.stems import Stems
from mcp_server.store.index.vectors import Matrix, nearest, refill
from mcp_server.store.index.writer import known_files, known_paths

if TYPE_CHECKING:
    import sqlite3

    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder
    from mcp_server.store.files import WorkspaceFiles
    from mcp_server.store.locks import Locks

T = TypeVar("T")
U = TypeVar("U")
Mode = Literal["hybrid", "keyword", "vector"]

@dataclass(frozen=True, slots=True)
class Candidates:
    """What might answer a query. `asked` goes to `ranking.rank` together with the candidates of `found`.

    `frequencies` (of the words of `asked.lookup`) and `passages` count the scope: the gate wants them. `used` says how they were found: "hybrid", "keyword", "vector", or "scan" when the index could not serve. `generation` names the index.
    """

    asked: ranking.Query
    found: tuple[Found, ...]
    frequencies: tuple[int, ...]
    passages: int
    used: Literal["hybrid", "keyword", "vector", "scan"]
    generation: str
    messages: tuple[str, ...] = ()

    @property
    def candidates(self) -> tuple[ranking.Candidate, ...]:
        """For the ranking."""
        return tuple(one.candidate for one in self.found)

    def passage(self, candidate: ranking.Candidate) -> Passage:
        """The passage that a candidate stands for."""
        return next(one.passage for one in self.found if one.candidate is candidate)


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """For `status`, `doctor` and `index status`. `state`: ready, building, missing or broken; `vectors`: sqlite-vec, numpy or none."""

    state: str
    generation: str
    embedder: str
    vectors: str
    sqlite: str
    files: int
    passages: int
    not_embedded: int
    size_bytes: int
    problems: tuple[str, ...]
    messages: tuple[str, ...]


@dataclass(slots=True)
class _Open:
    """An open generation: two connections, so that keywords and meaning are looked up at once."""

    generation: Generation
    inode: int
    words: Database
    near: Database
    stems: Stems
    loads_vectors: bool
    matrix: Matrix
    names: dict[int, str] = field(default_factory=dict)
    users: int = 0
    retired: bool = False

    async def close(self) -> None:
        await self.words.close()
        await self.near.close()
        self.generation.held.release()


@dataclass(slots=True)
class _Writing:
    """The live generation, open for writing."""

    generation: Generation
    database: Database
    stems: Stems
    loads_vectors: bool

    async def close(self) -> None:
        await self.database.close()
        self.generation.held.release()


class Index:
    """The search index of one workspace, for one embedder. `name` is the embedder asked for, also where it is not installed."""

    def __init__(
        self, files: WorkspaceFiles, locks: Locks, folder: Path, embedder: Embedder | None = None, name: str | None = None
    ) -> None:
        self._files = files
        self._embedder = embedder
        self._name = name or (embedder.name if embedder else "none")
        self._generations = Generations(folder, locks, self._name)
        self._open: _Open | None = None
        self._writing: _Writing | None = None
        self._opening: object = None  # anyio locks, made with the first use: importing anyio takes time
        self._turns: object = None
        self._scan = Scan(files)
        self._broken: str | None = None
        self._building: tuple[int, int] | None = None
        self._embedding_failed: str | None = None

    # ---------------------------------------------------------------- reading

    async def candidates(self, query: Query, filters: Filters | None = None, mode: Mode = "hybrid") -> Candidates:
        """The passages that may answer a query, each with the raw values of every signal. Never raises for what a query holds."""
        wanted = _with_operators(filters or Filters(), query)
        try:
            async with self._reading() as opened:
                if opened is not None:
                    return await self._search(opened, query.text, wanted, mode)
        except (DatabaseBroken, driver().error) as error:
            await self._is_broken(f"{type(error).__name__}: {error}")
        return await self._scanned(query.text, wanted)

    async def _search(self, opened: _Open, text: str, filters: Filters, mode: Mode) -> Candidates:
        def words(connection: sqlite3.Connection) -> tuple[Asking, list[int]]:
            scope = scope_of(connection, filters)
            asking = ask(connection, opened.stems, text, scope)
            return asking, by_words(connection, asking.fetch, scope) if mode != "vector" else []

        def meaning(connection: sqlite3.Connection) -> tuple[NDArray[np.float32] | None, list[int]]:
            vector = self._vector(text)  # on this thread: it is not the event loop's, and the other one is busy
            kept = schema.state(connection)
            if vector is None or int(kept["dimensions"]) != len(vector):
                return None, []
            scope = scope_of(connection, filters)
            if opened.loads_vectors and kept["vectors_stale"] == "0":
                return vector, nearest(connection, vector, scope)
            return vector, opened.matrix.nearest(connection, vector, scope)

        if mode == "keyword" or self._embedder is None:
            asking, by_keyword = await opened.words.read(words)
            vector, by_meaning = None, list[int]()
        else:
            (asking, by_keyword), (vector, by_meaning) = await both(opened.words.read(words), opened.near.read(meaning))

        def values(connection: sqlite3.Connection) -> list[Found]:
            return score(asking, fetch_rows(connection, [*by_keyword, *by_meaning], opened.names), opened.names, vector)

        found = await opened.words.read(values)
        if mode == "vector" and vector is not None:
            found = [replace(one, candidate=replace(one.candidate, bm25=0.0, matched=0, pairs=0)) for one in found]
        used = "keyword" if vector is None else mode
        return Candidates(
            asking.asked,
            tuple(found),
            asking.frequencies,
            asking.passages,
            used,
            str(opened.generation.number),
            self._messages(),
        )

    async def _scanned(self, text: str, filters: Filters) -> Candidates:
        from anyio import to_thread

        scanned = await to_thread.run_sync(self._scan.search, text, filters)
        what = f"is broken ({self._broken})" if self._broken else "is being built" if self._building else "is missing"
        message = f"the search index {what}: the files were read instead, by keywords only. It is rebuilt by itself (index rebuild)"
        if not scanned.complete:
            message += "; the oldest files of this large workspace were left out"
        return Candidates(
            scanned.asked, scanned.found, scanned.frequencies, scanned.passages, "scan", "none", (message,)
        )

    def _vector(self, text: str) -> NDArray[np.float32] | None:
        if self._embedder is None or not text.strip():
            return None
        try:
            vector: NDArray[np.float32] = self._embedder.embed([text])[0]
        except ContextManagerError as error:
            self._embedding_failed = str(error)
            return None
        return vector if vector.any() else None

    async def document(self, path: str) -> tuple[Passage, ...]:
        """The passages of a file in order; none if the index does not hold it."""
        return await self._ask(lambda connection: inside.document(connection, path), ())

    async def neighbours(self, passage: Passage, before: int = 1, after: int = 1) -> tuple[Passage, ...]:
        """The passages of the units around one (not of its own unit), in order; in a conversation across the files that continue it."""
        return await self._ask(lambda connection: inside.neighbours(connection, passage, before, after), ())

    async def unit(self, passage: Passage) -> tuple[Passage, ...]:
        """All parts of the unit that a passage belongs to, in order."""
        return await self._ask(lambda connection: inside.neighbours(connection, passage, 0, 0, itself=True), ())

    async def fingerprint(self) -> str:
        """SHA-256 over everything that searches can see, however it came in. Raises Unavailable if there is no index."""
        found = await self._ask(inside.fingerprint, None)
        if found is None:
            raise Unavailable("there is no search index yet; `context-manager index rebuild` makes one")
        return found

    async def data_version(self) -> tuple[str, int]:
        """Another value after anybody has changed the index, or replaced it."""
        try:
            async with self._reading() as opened:
                if opened is not None:
                    return str(opened.generation.number), await opened.near.data_version()
        except (DatabaseBroken, driver().error) as error:
            await self._is_broken(str(error))
        return "none", 0

    async def status(self) -> IndexStatus:
        """What the index holds, and everything that is wrong with it."""
        counts = await self._ask(inside.counts, None)
        opened = self._open
        messages = list(self._messages())
        if counts is None:
            state = "broken" if self._broken else "building" if self._building else "missing"
            reason = f" ({self._broken})" if self._broken else ""
            messages.insert(0, f"the search index is {state}{reason}: searches read the files themselves until it is rebuilt")
            counts = inside.Counts(0, 0, 0, ())
        else:
            state = "building" if self._building else "ready"
            if counts.not_embedded and self._name != "none":
                messages.append(f"{counts.not_embedded} passages are not embedded yet: they are found by keywords only")
        uses_vec = opened is not None and opened.loads_vectors
        if self._name != "none" and opened is not None and not uses_vec:
            messages.append("sqlite-vec cannot be loaded by this Python; similarity is computed with NumPy (pip install pysqlite3)")
        return IndexStatus(
            state=state,
            generation=str(opened.generation.number) if opened else "none",
            embedder=self._name,
            vectors="none" if self._name == "none" else "sqlite-vec" if uses_vec or opened is None else "numpy",
            sqlite=f"{driver().name} {driver().version}",
            files=counts.files,
            passages=counts.passages,
            not_embedded=counts.not_embedded,
            size_bytes=opened.generation.path.stat().st_size if opened and opened.generation.path.exists() else 0,
            problems=counts.problems,
            messages=tuple(messages),
        )

    @property
    def needs_rebuild(self) -> bool:
        """Whether there is no index that serves."""
        return self._broken is not None or not self._generations.serves()

    @property
    def moved(self) -> bool:
        """Whether another process has made another generation the live one since this one last wrote: it must look at all files again."""
        return self._writing is not None and self._writing.generation.number != self._generations.current()

    def _messages(self) -> tuple[str, ...]:
        messages: list[str] = []
        if self._embedder is None and self._name != "none":
            messages.append(f"the embedder {self._name} is not installed here: keywords only (pip install {self._name})")
        if self._embedding_failed:
            messages.append(self._embedding_failed)
        return tuple(messages)

    async def _ask(self, fn: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        try:
            async with self._reading() as opened:
                return otherwise if opened is None else await opened.words.read(fn)
        except (DatabaseBroken, driver().error) as error:
            await self._is_broken(str(error))
            return otherwise

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[_Open | None]:
        """The live generation, reopened if another one is live by now; None if there is none that can be read."""
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

    async def _opened(self) -> _Open | None:
        if self._is_current(self._open):
            return self._open
        async with self._lock("_opening"):
            if self._is_current(self._open):
                return self._open
            await self._retire()
            generation = self._generations.take_current()
            if generation is None:
                return None
            try:
                self._open = await self._open_generation(generation)
                self._broken = None
            except BaseException:
                generation.held.release()
                raise
            return self._open

    def _is_current(self, opened: _Open | None) -> bool:
        return (
            opened is not None
            and self._generations.current() == opened.generation.number
            and _inode(opened.generation.path) == opened.inode
        )

    async def _open_generation(self, generation: Generation) -> _Open:
        inode = _inode(generation.path)
        words, stems, loads = await self._connect(generation.path)
        try:
            near, _, _ = await self._connect(generation.path)
        except BaseException:
            await words.close()
            raise
        return _Open(generation, inode, words, near, stems, loads, Matrix())

    async def _connect(self, path: Path) -> tuple[Database, Stems, bool]:
        made: list[tuple[Stems, bool]] = []

        def prepare(connection: sqlite3.Connection) -> None:
            made.append((Stems(connection), schema.load_vectors(connection)))
            connection.execute("PRAGMA cache_size = -16000")

        database = await Database.open(path, prepare=prepare, durable=False)
        try:
            kept = await database.read(schema.state)
            if kept.get("complete") != "1":
                raise DatabaseBroken(f"{path.name} was never completed")
        except BaseException:
            await database.close()
            raise
        return database, *made[-1]

    async def _retire(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.retired = True
            if opened.users == 0:
                await opened.close()

    async def _is_broken(self, reason: str) -> None:
        self._broken = reason
        await self._retire()

    # ---------------------------------------------------------------- writing: the maintaining process only

    async def refresh(self, progress: Progress | None = None) -> int:
        """Compares all files with the index and indexes what changed; returns how many files had. Builds an index that is missing.

        Only for the process that holds the maintainer's lock.
        """
        from anyio import to_thread

        async with self._lock("_turns"):
            writing = await self._writer()
            if writing is not None:
                try:
                    known = await writing.database.read(known_files)
                    changed = await to_thread.run_sync(self._changed, known)
                    return await self._fill(writing, changed, progress)
                except (DatabaseBroken, driver().error) as error:
                    await self._is_broken(str(error))
        return await self.rebuild(progress)

    async def apply(self, paths: Iterable[str]) -> int:
        """Brings these files up to date, wherever they stand by now (folders: all in them); returns how many had changed.

        Only for the process that holds the maintainer's lock.
        """
        async with self._lock("_turns"):
            writing = await self._writer()
            if writing is not None:
                try:
                    under = await writing.database.read(lambda connection: known_paths(connection, paths))
                    wanted = sorted({path for path in (*under, *self._below(paths)) if is_indexed(path)})
                    return await self._fill(writing, wanted, None)
                except (DatabaseBroken, driver().error) as error:
                    await self._is_broken(str(error))
        return await self.rebuild()

    async def rebuild(self, progress: Progress | None = None) -> int:
        """Fills a new generation from the files and makes it the live one; the old one serves meanwhile. Returns the number of files."""
        from anyio import CancelScope, to_thread

        paths = await to_thread.run_sync(lambda: [stat.path for stat in self._walk()])
        generation = await to_thread.run_sync(self._generations.begin)
        self._building = (0, len(paths))

        def show(done: int, total: int) -> None:
            self._building = (done, total)
            if progress:
                progress(done, total)

        try:
            await self._build(generation, paths, show)
            await to_thread.run_sync(self._generations.publish, generation)
            self._broken = None
        finally:
            self._building = None
            generation.held.release()
            with CancelScope(shield=True):
                if self._writing is not None and self._writing.generation.number != self._generations.current():
                    async with self._lock("_turns"):
                        await self._stop_writing()
                await to_thread.run_sync(self._generations.sweep)
        return len(paths)

    async def _build(self, generation: Generation, paths: Sequence[str], progress: Progress) -> None:
        made: list[tuple[Stems, bool]] = []

        def prepare(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA cache_size = -32000")
            made.append((Stems(connection), schema.load_vectors(connection)))

        database = await Database.open(generation.path, prepare=prepare, durable=False)
        try:
            stems, loads = made[-1]
            dimensions = self._embedder.dimensions if self._embedder else DIMENSIONS.get(self._name, 0)
            await database.outside(lambda connection: schema.create(connection, self._name, dimensions, loads))
            filling = Filling(database, stems, self._files, self._embedder, loads)
            await filling.run(paths, {}, progress)
            self._embedding_failed = filling.messages[-1] if filling.messages else None
            await database.write(inside.complete)
        finally:
            await database.close()

    async def embed_missing(self) -> int:
        """Embeds what was indexed without an embedder; returns how many passages. Only for the maintaining process."""
        from anyio import to_thread

        if self._embedder is None:
            return 0
        total = 0
        async with self._lock("_turns"):
            writing = await self._writer()
            while writing is not None:
                waiting = await writing.database.read(lambda connection: inside.without_vector(connection, 1_000))
                if not waiting:
                    break
                vectors = await to_thread.run_sync(self._embedder.embed, [text for _, text in waiting])
                ids = [number for number, _ in waiting]
                loads = writing.loads_vectors
                await writing.database.write(lambda c, i=ids, v=vectors, n=loads: inside.add_vectors(c, i, v, n))
                total += len(waiting)
        return total

    async def _fill(self, writing: _Writing, paths: Sequence[str], progress: Progress | None) -> int:
        if not paths:
            return 0
        known = await writing.database.read(lambda connection: known_files(connection, paths))
        filling = Filling(writing.database, writing.stems, self._files, self._embedder, writing.loads_vectors)
        changed = await filling.run(paths, known, progress)
        self._embedding_failed = filling.messages[-1] if filling.messages else None
        return changed

    async def _writer(self) -> _Writing | None:
        """The live generation, open for writing; None if there is none that can be written."""
        now = self._writing
        if now is not None:
            same = now.generation.number == self._generations.current() and now.generation.path.is_file()
            if same and not self._broken:
                return now
            await self._stop_writing()
        if self._broken:
            return None
        generation = self._generations.take_current()
        if generation is None:
            return None
        try:
            database, stems, loads = await self._connect(generation.path)
        except (DatabaseBroken, driver().error) as error:
            generation.held.release()
            await self._is_broken(str(error))
            return None
        self._writing = _Writing(generation, database, stems, loads)
        if loads:
            await database.write(refill)
        return self._writing

    async def _stop_writing(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing.close()

    def _walk(self) -> Iterable:
        return (stat for folder in FOLDERS for stat in self._files.walk(folder) if is_indexed(stat.path))

    def _changed(self, known: dict) -> list[str]:
        """Paths that are new, gone, or not as they were when they were indexed."""
        changed: list[str] = []
        seen: set[str] = set()
        for stat in self._walk():
            seen.add(stat.path)
            before = known.get(stat.path)
            if before is None or (before.size, before.mtime_ns) != (stat.size, stat.mtime_ns):
                changed.append(stat.path)
            elif before.mtime_ns > before.looked_ns - RACY_NS:
                changed.append(stat.path)
        return changed + [path for path in known if path not in seen]

    def _below(self, paths: Iterable[str]) -> list[str]:
        found: list[str] = []
        for path in paths:
            try:
                place = self._files.resolve(path)
                found += [stat.path for stat in self._files.walk(path)] if place.is_dir() else [path]
            except ContextManagerError:
                continue
        return found

    async def close(self) -> None:
        """Closes everything; the index can be used again afterwards."""
        await self._stop_writing()
        await self._retire()

    def _lock(self, name: str):
        import anyio

        lock = getattr(self, name)
        if lock is None:
            lock = anyio.Lock()
            setattr(self, name, lock)
        return lock


DIMENSIONS = {"wordllama": 256}
"""For an embedder that is not installed: vectors can be added later without a rebuild."""


async def both(first: Awaitable[T], second: Awaitable[U]) -> tuple[T, U]:
    """Waits for two things at once. An error of either comes out as it is."""
    from anyio import create_task_group

    results: list[U] = []
    errors: list[Exception] = []

    async def run_second() -> None:
        try:
            results.append(await second)
        except Exception as error:  # carried out of the task group as it is
            errors.append(error)

    async with create_task_group() as tasks:
        tasks.start_soon(run_second)
        try:
            result = await first
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return result, results[0]


def _with_operators(filters: Filters, query: Query) -> Filters:
    """Filters of the caller together with those that stand in the query; the narrower time wins."""
    since = max((moment for moment in (filters.since, query.since) if moment), default=None)
    until = min((moment for moment in (filters.until, query.until) if moment), default=None)
    return replace(
        filters,
        category=filters.category or query.category,
        since=since,
        until=until,
        phrases=query.phrases or filters.phrases,
        excluded=query.excluded or filters.excluded,
    )


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return -1
