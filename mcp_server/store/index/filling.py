"""Filling an index file: looks at files, plans, embeds and writes, many files to a transaction.

While one batch is written on the database's thread, the next is read and embedded on another. Memory is bounded by
the batch, and for one huge file by its own size.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mcp_server.errors import ContextManagerError
from mcp_server.store.index.looking import RACY_NS, Known, Look, look
from mcp_server.store.index.writer import Cut, Plan, Row, cut, known_units, plan, write

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder
    from mcp_server.store.files import WorkspaceFiles
    from mcp_server.store.index.opening import Connected

PASSAGES = 1_500
"""Passages of a transaction, about; a huge file is written in several."""

FILES = 300

Progress = Callable[[int, int], None]
"""(files done, files in all)"""


@dataclass(slots=True)
class Filling:
    """One database being filled. `failed` says what went wrong with the embedder."""

    to: Connected
    files: WorkspaceFiles
    embedder: Embedder | None
    failed: str | None = None

    async def run(self, paths: Sequence[str], known: Mapping[str, Known], progress: Progress | None = None) -> int:
        """Brings these files up to date; returns how many had changed. What cannot be read is noted, never raised."""
        from anyio import to_thread

        changed = done = 0
        remaining = iter(paths)
        batch = await to_thread.run_sync(self._look, remaining, known)
        while batch:
            plans = await self._plan(batch, known)
            pieces = [plans] if plans and sum(len(p.rows) for p in plans) <= 2 * PASSAGES else [[p] for p in plans]
            for piece in pieces[:-1]:
                await self._write(piece)
            done += len(batch)
            changed += sum(not p.look.same for p in plans)
            batch = await self._while_writing(
                pieces[-1] if pieces else [], lambda: to_thread.run_sync(self._look, remaining, known)
            )
            if progress:
                progress(done, len(paths))
        return changed

    async def _while_writing(self, plans: list[Plan], then: Callable[[], Awaitable[list[Look]]]) -> list[Look]:
        from anyio import create_task_group

        looks: list[Look] = []
        errors: list[Exception] = []

        async def write_out() -> None:
            try:
                await self._write(plans)
            except Exception as error:  # carried out of the task group as it is
                errors.append(error)

        async with create_task_group() as tasks:
            tasks.start_soon(write_out)
            looks = await then()
        if errors:
            raise errors[0]
        return looks

    def _look(self, paths: Iterator[str], known: Mapping[str, Known]) -> list[Look]:
        looks: list[Look] = []
        passages = 0
        for path in islice(paths, FILES):
            found = look(self.files, path, known.get(path))
            looks.append(found)
            passages += len(found.passages)
            if passages >= PASSAGES:
                break
        return looks

    async def _plan(self, looks: list[Look], known: Mapping[str, Known]) -> list[Plan]:
        from anyio import to_thread

        asked = [found.path for found in looks if found.path in known and not found.gone and not found.same]
        units: dict[str, dict[int, bytes]] = {}
        if asked:
            units = await self.to.database.read(
                lambda connection: {path: known_units(connection, path) for path in asked}
            )
        return await to_thread.run_sync(
            lambda: [plan(found, units.get(found.path, {})) for found in looks if not _tells_nothing(found, known)]
        )

    async def _write(self, plans: list[Plan]) -> None:
        rows = [row for p in plans for row in p.rows]
        if len(plans) > 1 or len(rows) <= PASSAGES:
            await self._write_rows(plans, rows, 0, None)
            return
        for first in range(0, len(rows), PASSAGES):
            last = min(first + PASSAGES, len(rows))
            await self._write_rows(plans, rows[first:last], first, last)

    async def _write_rows(self, plans: list[Plan], rows: Sequence[Row], first: int, last: int | None) -> None:
        from anyio import to_thread

        cuts, vectors = await to_thread.run_sync(self._cut, rows)
        to = self.to
        await to.database.write(
            lambda connection: write(connection, to.stems, plans, cuts, vectors, to.loads_vectors, first, last)
        )

    def _cut(self, rows: Sequence[Row]) -> tuple[list[Cut], NDArray[np.float32] | None]:
        cuts = [cut(row) for row in rows]
        if self.embedder is None or not cuts:
            return cuts, None
        try:
            return cuts, self.embedder.embed([found.text for found in cuts])
        except ContextManagerError as error:
            self.failed = str(error)
            return cuts, None


def _tells_nothing(found: Look, known: Mapping[str, Known]) -> bool:
    """Whether writing a look down would change nothing: no commit, so that nobody is told of a change."""
    before = known.get(found.path)
    if before is None:
        return found.gone
    settled = found.mtime_ns <= before.looked_ns - RACY_NS or found.mtime_ns > found.looked_ns - RACY_NS
    return found.same and settled and (before.size, before.mtime_ns) == (found.size, found.mtime_ns)
