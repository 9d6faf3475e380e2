"""Filling an index file: looks at files, plans, embeds and writes, many files to a transaction.

While one batch is written on the database's thread, the next is read and embedded on another. Memory is bounded by
the batch, and for one huge file by its own size.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mcp_server.errors import ContextManagerError
from mcp_server.storage.local.index.looking import RACY_NS, Known, Look, look
from mcp_server.storage.local.index.writer import Cut, Plan, Row, cut, known_units, plan, write

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder
    from mcp_server.storage.local.files import WorkspaceFiles
    from mcp_server.storage.local.index.opening import Connected

PASSAGES = 1_500
"""Passages of a transaction, about; a huge file is written in several."""

SOON = 100
"""As many where somebody else may want to write in between: some hundredths of a second's work."""

FILES = 300

Progress = Callable[[int, int], None]
"""(files done, files in all)"""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Plans that are written together; of a single one with very many rows those from `first` to `last`."""

    plans: list[Plan]
    first: int = 0
    last: int | None = None


@dataclass(slots=True)
class Filling:
    """One database being filled. `failed` says what went wrong with the embedder.

    `pause`, where it is given, is awaited between transactions, which then are small: somebody else may write meanwhile
    whatever is not in `held` (looked at, and not all written), and says in `taken` what is done by that.
    """

    to: Connected
    files: WorkspaceFiles
    embedder: Embedder | None
    pause: Callable[[], Awaitable[None]] | None = None
    failed: str | None = None
    held: frozenset[str] = frozenset()
    taken: set[str] = field(default_factory=set)

    @property
    def _most(self) -> int:
        return SOON if self.pause else PASSAGES

    async def run(self, paths: Sequence[str], known: Mapping[str, Known], progress: Progress | None = None) -> int:
        """Brings these files up to date; returns how many had changed. What cannot be read is noted, never raised."""
        from anyio import to_thread

        changed = done = 0
        remaining = iter(paths)
        batch = await to_thread.run_sync(self._look, remaining, known)
        while batch:
            self.held = frozenset(found.path for found in batch)
            plans = await self._plan(batch, known)
            *pieces, last = self._pieces(plans)
            for piece in pieces:
                await self._write(piece)
                await self._let_others()
            done += len(batch)
            changed += sum(not p.look.same for p in plans)
            batch = await self._while_writing(last, lambda: to_thread.run_sync(self._look, remaining, known))
            self.held = frozenset(found.path for found in batch)
            await self._let_others()
            if progress:
                progress(done, len(paths))
        return changed

    def _pieces(self, plans: list[Plan]) -> list[_Piece]:
        """What is written in one transaction each; the last one may be empty."""
        if sum(len(p.rows) for p in plans) <= 2 * self._most:
            return [_Piece(plans)]
        pieces = []
        for each in plans:
            ends = range(self._most, len(each.rows) + self._most, self._most) or (self._most,)
            pieces += [_Piece([each], end - self._most, end) for end in ends]
        return pieces

    async def _let_others(self) -> None:
        if self.pause is not None:
            await self.pause()

    async def _while_writing(self, piece: _Piece, then: Callable[[], Awaitable[list[Look]]]) -> list[Look]:
        from anyio import create_task_group

        looks: list[Look] = []
        errors: list[Exception] = []

        async def write_out() -> None:
            try:
                await self._write(piece)
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
        for path in paths:
            if path in self.taken:
                continue
            found = look(self.files, path, known.get(path))
            looks.append(found)
            passages += len(found.passages)
            if passages >= self._most or len(looks) == FILES:
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

    async def _write(self, piece: _Piece) -> None:
        from anyio import to_thread

        rows = [row for p in piece.plans for row in p.rows[piece.first : piece.last]]
        cuts, vectors = await to_thread.run_sync(self._cut, rows)
        to = self.to
        await to.database.write(
            lambda connection: write(
                connection, to.stems, piece.plans, cuts, vectors, to.loads_vectors, piece.first, piece.last
            )
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
