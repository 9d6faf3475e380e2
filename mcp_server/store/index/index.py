"""The index, as the rest of the house sees it: a disposable copy of the files that answers quickly.

    found = await index.candidates(parse_query("when did we move?", now), Filters())
    await index.refresh()         # the maintaining process only: bring it up to date with the files
    await index.rebuild()         # anybody, any time: a new generation, while the old one serves

A missing or broken index is no error: `candidates` reads the files themselves and says so, and `needs_rebuild` is set
for the maintainer.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mcp_server.core.model import Passage
from mcp_server.core.text.query import Query
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.store.database import driver
from mcp_server.store.index import inside
from mcp_server.store.index.answers import Candidates, IndexStatus, Mode
from mcp_server.store.index.depth import USUAL, Depth
from mcp_server.store.index.filling import Progress
from mcp_server.store.index.filters import Filters, with_operators
from mcp_server.store.index.finding import Search, search
from mcp_server.store.index.generations import Generations
from mcp_server.store.index.keeping import SMALL, Keeper
from mcp_server.store.index.looking import Look, is_indexed, look
from mcp_server.store.index.opening import Health, Lock, Reading, import_numpy, inode_of, numpy_is_there, open_reading
from mcp_server.store.index.scan import Scan
from mcp_server.store.index.standing import standing
from mcp_server.store.index.writer import Cut, Row, cut, plan

if TYPE_CHECKING:
    import sqlite3

    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder
    from mcp_server.store.files import WorkspaceFiles
    from mcp_server.store.index.asking import Asking
    from mcp_server.store.index.finding import Vector
    from mcp_server.store.index.reader import Found
    from mcp_server.store.locks import Locks

T = TypeVar("T")

SETTLE_SECONDS = 1.0
"""How long `settle` waits: what one process writes is indexed in some hundredths of a second, by another in 0.2 s."""

RENEW_SECONDS = 15.0
"""How long `renew` waits for other processes to let go of the old index: a server looks twice a second."""

QUERIES_KEPT, LONGEST_KEPT = 16, 10_000
"""Vectors of so many queries are kept, of up to so many characters."""


class Index:
    """The search index of one workspace, for one embedder; `name` and `dimensions` are those of one that is missing."""

    def __init__(
        self,
        files: WorkspaceFiles,
        locks: Locks,
        folder: Path,
        embedder: Embedder | None = None,
        name: str | None = None,
        dimensions: int = 0,
    ) -> None:
        self._files = files
        self._embedder = embedder
        self._name = name or (embedder.name if embedder else "none")
        self._generations = Generations(folder, locks, self._name)
        self._health = Health()
        self._keeper = Keeper(files, self._generations, embedder, self._name, dimensions, self._health)
        self._scan = Scan(files)
        self._open: Reading | None = None
        self._opening = Lock()
        self._vectors: dict[str, NDArray[np.float32]] = {}
        """Of the last queries: a message is looked up for topics, passages and a context, one after the other."""

    # ---------------------------------------------------------------- reading

    async def candidates(self, query: Query, filters: Filters | None = None, mode: Mode = "hybrid") -> Candidates:
        """The passages that may answer a query, with the raw values of every signal. No query makes it raise."""
        return await self.answer(query, filters, mode, lambda found: found)

    async def answer(
        self,
        query: Query,
        filters: Filters | None,
        mode: Mode,
        then: Callable[[Candidates], T],
        depth: Depth = USUAL,
    ) -> T:
        """What `then` makes of the candidates, on the thread that found them; it may take some milliseconds."""
        wanted = with_operators(filters or Filters(), query)
        try:
            async with self._reading() as opened:
                if opened is not None:
                    return await self._search(Search(opened, query.text, wanted, mode, self._embed(mode), depth), then)
        except (Unavailable, OSError, driver().error) as error:
            await self._is_broken(error)
        return await self._scanned(query.text, wanted, then)

    async def _search(self, wanted: Search, then: Callable[[Candidates], T]) -> T:
        from anyio import to_thread

        if not numpy_is_there.is_set():
            await to_thread.run_sync(import_numpy)

        def candidates(asking: Asking, vector: Vector, found: list[Found]) -> T:
            if wanted.mode == "vector" and vector is not None:
                found = [replace(one, candidate=replace(one.candidate, bm25=0.0, matched=0, pairs=0)) for one in found]
            used: Mode = "keyword" if vector is None else wanted.mode
            return then(
                Candidates(
                    asking.asked,
                    tuple(found),
                    asking.frequencies,
                    asking.passages,
                    used,
                    str(wanted.opened.generation.number),
                    self._messages(),
                )
            )

        return await search(wanted, candidates)

    async def _scanned(self, text: str, filters: Filters, then: Callable[[Candidates], T]) -> T:
        from anyio import to_thread

        scanned = await to_thread.run_sync(self._scan.search, text, filters)
        what = (
            f"is broken ({self._health.broken})"
            if self._health.broken
            else "is being built"
            if self._health.building
            else "is missing"
        )
        message = (
            f"the search index {what}: the files were read instead, by keywords only. "
            "The server rebuilds it, or `context-manager index rebuild`"
        )
        if not scanned.complete:
            message += "; the oldest files of this large workspace were left out"
        found = Candidates(
            scanned.asked, scanned.found, scanned.frequencies, scanned.passages, "scan", "none", (message,)
        )
        return await to_thread.run_sync(then, found)

    def _embed(self, mode: Mode) -> Callable[[str], Vector] | None:
        return None if mode == "keyword" or self._embedder is None else self._vector

    def _vector(self, text: str) -> NDArray[np.float32] | None:
        if self._embedder is None or not text.strip():
            return None
        vector = self._vectors.get(text)
        if vector is None:
            try:
                vector = self._embedder.embed([text])[0]
            except ContextManagerError as error:
                self._health.embedding = str(error)
                return None
            if len(text) <= LONGEST_KEPT:
                if len(self._vectors) >= QUERIES_KEPT:
                    self._vectors.clear()
                self._vectors[text] = vector
        return vector if vector.any() else None

    def embed_ahead(self, text: str) -> None:
        """Embeds a query that will be asked in a moment, while whoever asks still looks up what else it takes. It may
        take long: call it in a thread."""
        if numpy_is_there.is_set():
            self._vector(text)

    async def settle(self, paths: Iterable[str], patience: float = SETTLE_SECONDS) -> None:
        """Returns once searches see these files as they now are on disk, and after `patience` seconds at the latest.

        Where the index is broken, missing or being built, searches read the files themselves: nothing is waited for.
        """
        from anyio import move_on_after, sleep, to_thread

        left = [path for path in paths if is_indexed(path)]
        with move_on_after(patience):
            while left and self._health.broken is None and self._health.building is None:
                there = await to_thread.run_sync(self._as_they_are, left)
                known = await self._ask(lambda connection, left=left: inside.as_indexed(connection, left), there)  # type: ignore[misc]
                left = [path for path in left if known.get(path) != there.get(path)]
                left = [path for path in left if self._is_soon_known(path, known.get(path), there.get(path))]
                if left:
                    await sleep(0.01)

    def _is_soon_known(self, path: str, known: tuple[int, int] | None, there: tuple[int, int] | None) -> bool:
        """Whether it takes but a moment until the index holds a file as it is: not for what somebody imports."""
        new = (there or (0, 0))[0] - (known or (0, 0))[0]
        return new <= SMALL and path not in self._keeper.postponed

    def _as_they_are(self, paths: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Sizes and times of those that an index holds: of a file behind a link, it holds the file alone."""
        found = {}
        for path in paths:
            with contextlib.suppress(ContextManagerError, OSError):
                if self._files.relative(path) == path:
                    about = self._files.stat(path)
                    found[path] = (about.size, about.mtime_ns)
        return found

    async def last_turn(self, session: str) -> int | None:
        """The number of the newest turn of a session that searches can see; None if they read the files themselves."""
        return await self._ask(lambda connection: inside.last_turn(connection, session), None)

    async def document(self, path: str) -> tuple[Passage, ...]:
        """The passages of a file in order; none if the index does not hold it."""
        return await self._ask(lambda connection: inside.document(connection, path), ())

    async def neighbours(self, passage: Passage, before: int = 1, after: int = 1) -> tuple[Passage, ...]:
        """The passages of the units around one, not its own, in order; also across the files of one conversation."""
        return await self._ask(lambda connection: inside.neighbours(connection, passage, before, after), ())

    async def unit(self, passage: Passage) -> tuple[Passage, ...]:
        """All parts of the unit that a passage belongs to, in order."""
        return await self._ask(lambda connection: inside.neighbours(connection, passage, 0, 0, itself=True), ())

    async def fingerprint(self) -> str:
        """SHA-256 over everything that searches can see, however it came in. Raises Unavailable without an index."""
        found = await self._ask(inside.fingerprint, None)
        if found is None:
            raise Unavailable("there is no search index yet; `context-manager index rebuild` makes one")
        return found

    async def data_version(self) -> tuple[str, int]:
        """Another value after anybody has changed the index, or replaced it."""
        try:
            async with self._reading() as opened:
                if opened is not None:
                    return str(opened.generation.number), await opened.near.database.data_version()
        except (Unavailable, OSError, driver().error) as error:
            await self._is_broken(error)
        return "none", 0

    async def status(self) -> IndexStatus:
        """What the index holds, and everything that is wrong with it."""
        counts = await self._ask(inside.counts, None)
        return standing(counts, self._open, self._health, self._name, self._messages())

    async def compare_sample(self, files: int) -> tuple[int, tuple[str, ...]]:
        """Reads some indexed files again and compares their passages with the index.

        Returns how many files were compared, and the paths of those that the index holds otherwise. Files that changed
        since they were indexed are skipped: the next refresh indexes them.
        """
        sampled: list[str] = await self._ask(lambda connection: inside.sample(connection, files), [])
        compared = [(path, same) for path in sampled if (same := await self._is_as_indexed(path)) is not None]
        return len(compared), tuple(path for path, same in compared if not same)

    async def _is_as_indexed(self, path: str) -> bool | None:
        """Returns whether the index holds the passages of a file; None if the file changed since it was indexed."""
        from anyio import to_thread

        def read() -> tuple[Look, list[Row], list[Cut]]:
            found = look(self._files, path, None)
            rows = list(plan(found, {}).rows)
            return found, rows, [cut(row) for row in rows]

        found, rows, cuts = await to_thread.run_sync(read)

        def compare(connection: sqlite3.Connection) -> bool | None:
            if inside.as_indexed(connection, [path]).get(path) != (found.size, found.mtime_ns):
                return None
            return inside.holds(connection, path, rows, cuts)

        return await self._ask(compare, None)

    def _messages(self) -> tuple[str, ...]:
        messages: list[str] = []
        if self._embedder is None and self._name != "none":
            messages.append(f"the embedder {self._name} is not to be had here: keywords only (context-manager doctor)")
        if self._health.embedding:
            messages.append(self._health.embedding)
        return tuple(messages)

    async def _ask(self, fn: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        try:
            async with self._reading() as opened:
                return otherwise if opened is None else await opened.words.database.read(fn)
        except (Unavailable, OSError, driver().error) as error:
            await self._is_broken(error)
            return otherwise

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Reading | None]:
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

    async def _opened(self) -> Reading | None:
        if self._is_current(self._open):
            return self._open
        async with self._opening():
            if self._is_current(self._open):
                return self._open
            await self._retire()
            generation = self._generations.take_current()
            if generation is None:
                return None
            try:
                self._open = await open_reading(generation)
                self._health.broken = None
            except BaseException:
                generation.held.release()
                raise
            return self._open

    def _is_current(self, opened: Reading | None) -> bool:
        return (
            opened is not None
            and self._generations.current() == opened.generation.number
            and inode_of(opened.generation.path) == opened.inode
        )

    async def _retire(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.retired = True
            if opened.users == 0:
                await opened.close()

    async def _is_broken(self, error: Exception) -> None:
        self._health.broken = str(error)
        number = self._generations.current()
        if number is not None:
            self._generations.report_damage(number)
        await self._retire()

    # ---------------------------------------------------------------- writing

    @property
    def needs_care(self) -> bool:
        """Whether the maintainer should `refresh` at once: there is no index that serves, or somebody has put another
        one in its place."""
        return self._health.broken is not None or not self._generations.serves() or self._keeper.moved

    async def refresh(self, progress: Progress | None = None) -> int:
        """Compares all files with the index and indexes what changed; returns how many files had. Builds an index
        that is missing.

        Only for the process that holds the maintainer's lock.
        """
        return await self._keeper.refresh(progress)

    async def apply(self, paths: Iterable[str]) -> int:
        """Brings these files up to date (folders: all in them), gone ones too; returns how many had changed.

        Only for the process that holds the maintainer's lock.
        """
        return await self._keeper.apply(tuple(paths))

    async def apply_small(self, paths: Iterable[str]) -> tuple[int, list[str]]:
        """As `apply` for what takes a moment, beside a `refresh` or `apply` at work; what takes longer is returned, for
        `apply`, and `settle` does not wait for it."""
        return await self._keeper.apply_small(tuple(paths))

    async def rebuild(self, progress: Progress | None = None) -> int:
        """Fills a new generation from the files and makes it the live one, for every process; the old one serves
        meanwhile.

        Returns the number of files. Anybody may; raises Unavailable where no file can be made.
        """
        return await self._keeper.rebuild(progress)

    async def renew(self, progress: Progress | None = None, patience: float = RENEW_SECONDS) -> tuple[str, ...]:
        """As `rebuild`, and every other index file is deleted: a table for searching keeps words that its rows lost.

        Returns the names of files that another process still used after `patience` seconds; it deletes them itself
        when it lets go of them.
        """
        from anyio import current_time, sleep, to_thread

        await self._keeper.rebuild(progress)
        await self._keeper.close()
        await self._retire()
        until = current_time() + patience
        while True:
            await to_thread.run_sync(self._generations.sweep)
            left = [self._generations.path(number).name for number in self._generations.left()]
            left += await to_thread.run_sync(self._generations.sweep_others)
            if not left or current_time() > until:
                return tuple(left)
            await sleep(0.05)

    async def close(self) -> None:
        """Closes everything; the index can be used again afterwards."""
        await self._keeper.close()
        await self._retire()
