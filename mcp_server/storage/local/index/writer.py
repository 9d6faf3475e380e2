"""Writes files into an index: reads and plans them, embeds their passages, and writes many files in a transaction.

While the last piece of a batch is embedded and written, another thread reads the next batch. The memory in use is
limited by the size of a batch, or of a single huge file.
"""

from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anyio import to_thread

from mcp_server.concurrency import both
from mcp_server.embed.providers import Embedding
from mcp_server.errors import ContextManagerError
from mcp_server.storage.index.file_reader import (
    RACY_NS,
    FileContent,
    IndexedFile,
    Plan,
    Row,
    Signals,
    TranscriptPosition,
    is_derived_line,
    plan,
    read_content,
    signals_of_all,
)
from mcp_server.storage.local.index.tables import LINES, compared, packed_vectors, state
from mcp_server.storage.ports import Progress
from mcp_server.storage.sqlite import Stems
from mcp_server.storage.state import storable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.storage.local.files import WorkspaceFiles
    from mcp_server.storage.local.index.generations import Connected

PASSAGES = 1_500
"""Approximate number of passages per transaction. A huge file takes several transactions."""

SOON = 100
"""Passages per transaction while others may write; such a transaction takes a few hundredths of a second."""

FILES = 300
"""Most files in a batch."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The plans that one transaction writes. A single plan with very many rows is written in several pieces: each
    writes the rows from `first` to `last` (excluded)."""

    plans: list[Plan]
    first: int = 0
    last: int | None = None


@dataclass(slots=True)
class Indexer:
    """Writes files into one index file.

    If `pause` is given, it is awaited between transactions, which are then small. Meanwhile others may write files that
    are not in `held`. Files in `held` were read, but are not yet written completely.
    """

    to: Connected
    files: WorkspaceFiles
    embedding: Embedding
    pause: Callable[[], Awaitable[None]] | None = None
    held: frozenset[str] = frozenset()

    @property
    def _most(self) -> int:
        return SOON if self.pause else PASSAGES

    async def run(
        self, paths: Sequence[str], known: Mapping[str, IndexedFile], progress: Progress | None = None
    ) -> int:
        """Indexes these files. Returns how many had changed. Problems of files are recorded, never raised."""
        changed = done = 0
        remaining = iter(paths)
        batch = await to_thread.run_sync(self._read_batch, remaining, known)
        while batch:
            self.held = frozenset(found.path for found in batch)
            plans = await self._plan(batch, known)
            *pieces, last = self._pieces(plans)
            for piece in pieces:
                await self._write(piece)
                if self.pause is not None:
                    await self.pause()
            done += len(batch)
            changed += sum(not p.look.same for p in plans)
            reading = to_thread.run_sync(self._read_batch, remaining, known)
            batch = (await both(reading, self._write(last)))[0]
            self.held = frozenset(found.path for found in batch)
            if self.pause is not None:
                await self.pause()
            if progress:
                progress(done, len(paths))
        return changed

    def _pieces(self, plans: list[Plan]) -> list[Piece]:
        """Returns the pieces, one for each transaction. The last one may be empty."""
        if sum(len(p.rows) for p in plans) <= 2 * self._most:
            return [Piece(plans)]
        pieces = []
        for each in plans:
            ends = range(self._most, len(each.rows) + self._most, self._most) or (self._most,)
            pieces += [Piece([each], end - self._most, end) for end in ends]
        return pieces

    def _read_batch(self, paths: Iterator[str], known: Mapping[str, IndexedFile]) -> list[FileContent]:
        looks: list[FileContent] = []
        passages = 0
        for path in paths:
            found = read_file(self.files, path, known.get(path))
            looks.append(found)
            passages += len(found.passages)
            if passages >= self._most or len(looks) == FILES:
                break
        return looks

    async def _plan(self, looks: list[FileContent], known: Mapping[str, IndexedFile]) -> list[Plan]:
        asked = [found.path for found in looks if found.path in known and not found.gone and not found.same]
        units: dict[str, dict[int, bytes]] = {}
        if asked:
            units = await self.to.database.read(lambda raw: {path: known_units(raw, path) for path in asked})
        return await to_thread.run_sync(
            lambda: [plan(found, units.get(found.path, {})) for found in looks if not _changes_nothing(found, known)]
        )

    async def _write(self, piece: Piece) -> None:
        rows = [row for p in piece.plans for row in p.rows[piece.first : piece.last]]
        edited = [p.look.path for p in piece.plans if p.rows and p.drop]
        read_before = await self.to.database.read(lambda connection: texts_read(connection, edited)) if edited else {}

        def prepared() -> tuple[list[Signals], NDArray[np.float32] | None]:
            cuts = signals_of_all(rows, self.embedding.embedder is not None, read_before)
            return cuts, self.embedding.of([found.text for found in cuts])

        cuts, vectors = await to_thread.run_sync(prepared)
        to = self.to
        await to.database.write(
            lambda connection: write(connection, to.stems, piece, cuts, vectors, loads_vectors=to.loads_vectors)
        )


def read_file(files: WorkspaceFiles, path: str, known: IndexedFile | None) -> FileContent:
    """Reads a file and splits it into passages. Never raises.

    Symbolic links and special files count as deleted: a link in another user's commit may lead to `.local/`, and
    reading a pipe never ends.
    """
    looked_ns = time.time_ns()
    try:
        place = files.resolve(path)
        about = place.stat()
        if not stat.S_ISREG(about.st_mode) or files.relative(path) != path:
            return FileContent(path, gone=True)
        data = place.read_bytes()
    except FileNotFoundError:
        return FileContent(path, gone=True)
    except (OSError, ContextManagerError) as error:
        return FileContent(path, looked_ns=looked_ns, problem=f"{path}: cannot be read ({error})", size=-1)
    return read_content(path, data, about.st_size, about.st_mtime_ns, looked_ns, known)


def _changes_nothing(found: FileContent, known: Mapping[str, IndexedFile]) -> bool:
    """Returns whether writing this file would change nothing. It is then skipped, so that a commit without changes does
    not notify other processes."""
    before = known.get(found.path)
    if before is None:
        return found.gone
    settled = found.mtime_ns <= before.looked_ns - RACY_NS or found.mtime_ns > found.looked_ns - RACY_NS
    return found.same and settled and (before.size, before.mtime_ns) == (found.size, found.mtime_ns)


INCOMPLETE = b""
"""The digest of a unit until its last part is written. It equals no real digest, so that an interrupted unit is written
again."""

UNFINISHED = -2
"""The size of a file that is indexed only in part. No file has this size: the next refresh reads it again."""


def known_files(connection: sqlite3.Connection, paths: Iterable[str] | None = None) -> dict[str, IndexedFile]:
    """Returns the stored metadata of these files, by default of all indexed files."""
    select = "SELECT path, id, size, mtime_ns, looked_ns, sha256, so_far FROM files"
    if paths is None:
        rows = connection.execute(select).fetchall()
    else:
        rows = [row for path in paths for row in connection.execute(f"{select} WHERE path = ?", (path,))]
    known: dict[str, IndexedFile] = {}
    for path, file_id, size, mtime_ns, looked_ns, sha256, so_far in rows:
        read = TranscriptPosition.from_json(so_far) if so_far else None
        known[path] = IndexedFile(file_id, size, mtime_ns, looked_ns, sha256, read)
    return known


def known_paths(connection: sqlite3.Connection, paths: Iterable[str]) -> list[str]:
    """Returns the indexed files at or below these paths."""
    found: list[str] = []
    for path in paths:
        rows = connection.execute(
            "SELECT path FROM files WHERE path = ? OR (path >= ? AND path < ?)", (path, f"{path}/", f"{path}0")
        )
        found += [row[0] for row in rows]
    return found


def known_units(connection: sqlite3.Connection, path: str) -> dict[int, bytes]:
    """Returns the digest of every indexed unit of a file; INCOMPLETE for a half-written unit."""
    select = (
        "SELECT m.mark, m.digest FROM knowledge_meta m JOIN files f ON f.id = m.file WHERE f.path = ? AND m.part = 0"
    )
    return dict(connection.execute(select, (path,)).fetchall())


def texts_read(connection: sqlite3.Connection, paths: Iterable[str]) -> dict[str, bytes]:
    """Returns the results of the recognizer's network (`about`) for the passages of these files, by text."""
    select = (
        "SELECT p.text, p.about FROM files f CROSS JOIN knowledge_meta m ON m.file = f.id "
        "CROSS JOIN passages p ON p.id = m.id WHERE f.path = ? AND p.about IS NOT NULL"
    )
    return {text: about for path in paths for text, about in connection.execute(select, (path,))}


def write(
    connection: sqlite3.Connection,
    stems: Stems,
    piece: Piece,
    cuts: Sequence[Signals],
    vectors: NDArray[np.float32] | None,
    *,
    loads_vectors: bool = False,
) -> None:
    """Writes plans into the index. `cuts` and `vectors` have one entry for each row of the piece, in order; `vectors`
    is None if there is no embedder.

    If a plan is written in several pieces, the file has the size UNFINISHED until the last piece is written, and the
    first part of a unit has the digest INCOMPLETE until the unit's last part is written.
    """
    first, last = piece.first, piece.last
    has_vectors = int(state(connection)["dimensions"]) > 0
    in_vec = loads_vectors and has_vectors
    if has_vectors and not in_vec:
        connection.execute("UPDATE index_state SET value = '1' WHERE key = 'vectors_stale'")
    numbers = _Names(connection)
    offset = 0
    for each in piece.plans:
        rows = each.rows[first:last]
        finished = last is None or last >= len(each.rows)
        file_id = _file(connection, each.look, finished)
        if each.look.gone:
            _delete(connection, in_vec, "SELECT id FROM knowledge_meta WHERE file = ?", (file_id,))
            connection.execute("DELETE FROM files WHERE id = ?", (file_id,))
            continue
        if first == 0:
            for mark in each.drop:
                of_unit = "SELECT id FROM knowledge_meta WHERE file = ? AND mark = ?"
                _delete(connection, in_vec, of_unit, (file_id, mark))
        if rows:
            mine = None if vectors is None else vectors[offset : offset + len(rows)]
            _insert(connection, stems, numbers, file_id, rows, cuts[offset : offset + len(rows)], mine, in_vec)
        if last is not None:
            continued = None if finished else each.rows[last].mark
            for row in (*rows[:1], *rows[-1:]):
                digest = INCOMPLETE if row.mark == continued else row.digest
                connection.execute(
                    "UPDATE knowledge_meta SET digest = ? WHERE file = ? AND mark = ? AND part = 0",
                    (digest, file_id, row.mark),
                )
        offset += len(rows)


def _file(connection: sqlite3.Connection, look: FileContent, finished: bool) -> int:
    size, sha256 = (look.size, look.sha256) if finished else (UNFINISHED, b"")
    (file_id,) = connection.execute(
        "INSERT INTO files (path, size, mtime_ns, looked_ns, sha256, so_far, problem) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (path) DO UPDATE SET size = excluded.size, mtime_ns = excluded.mtime_ns, "
        "looked_ns = excluded.looked_ns, sha256 = excluded.sha256, so_far = excluded.so_far, "
        "problem = CASE WHEN ? THEN problem ELSE excluded.problem END RETURNING id",
        (
            *(look.path, size, look.mtime_ns, look.looked_ns, sha256),
            *(look.so_far.to_json() if look.so_far and finished else None, look.problem, look.same),
        ),
    ).fetchone()
    return int(file_id)


def _delete(connection: sqlite3.Connection, in_vec: bool, select: str, values: tuple[int, ...]) -> None:
    ids = connection.execute(select, values).fetchall()
    tables = ["knowledge_fts", "lines_fts", "passages", "knowledge_meta"] + (["knowledge_vec"] if in_vec else [])
    for table in tables:
        key = "id" if table in ("passages", "knowledge_meta") else "rowid"
        connection.executemany(f"DELETE FROM {table} WHERE {key} = ?", ids)


def _insert(
    connection: sqlite3.Connection,
    stems: Stems,
    numbers: _Names,
    file_id: int,
    rows: Sequence[Row],
    cuts: Sequence[Signals],
    vectors: NDArray[np.float32] | None,
    in_vec: bool,
) -> None:
    import numpy as np

    last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'knowledge_meta'").fetchone()
    ids = range((last[0] if last else 0) + 1, (last[0] if last else 0) + 1 + len(rows))
    stems.learn(word for found in cuts for word in found.words)
    meta, wide, near = [], [], []
    keywords: list[tuple[int, str]] = []
    of_lines: list[tuple[int, str]] = []
    half, small = packed_vectors(vectors, compared(state(connection))) if vectors is not None else ([], [])
    for position, (new, row, found) in enumerate(zip(ids, rows, cuts, strict=True)):
        p = row.passage
        project, session, category, speaker = (numbers[name] for name in (p.project, p.session, p.category, p.speaker))
        at = p.at.timestamp() if p.at else None
        derived = is_derived_line(p)
        named = (project, session, category, speaker)
        meta.append((new, file_id, row.mark, p.part, *named, at, len(found.words), row.digest, derived))
        flags = (found.tells_time, found.first_person, row.ends_with_question)
        packed = np.array(stems.numbers(found.words), dtype="<u4").tobytes()
        vector = half[position] if half else None
        shown = (p.ordinal, p.start, p.end, storable(p.text), storable(p.title), p.turn, p.turn_id, p.role)
        wide.append((new, *shown, row.chars, *flags, packed, vector, found.about))
        (of_lines if derived else keywords).append((new, storable(" ".join(found.words))))
        if small and in_vec:
            near.append((new, project, LINES if derived else session, small[position]))
    connection.executemany(f"INSERT INTO knowledge_meta VALUES ({_marks(12)})", meta)
    connection.executemany(f"INSERT INTO passages VALUES ({_marks(16)})", wide)
    connection.executemany("INSERT INTO knowledge_fts (rowid, words) VALUES (?, ?)", keywords)
    connection.executemany("INSERT INTO lines_fts (rowid, words) VALUES (?, ?)", of_lines)
    if near:
        connection.executemany(
            "INSERT INTO knowledge_vec (rowid, project, session, embedding) VALUES (?, ?, ?, vec_int8(?))", near
        )


class _Names(dict[str, int]):
    """The numbers of names, cached for one transaction, because a rollback would make a longer cache wrong."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __missing__(self, name: str) -> int:
        stored = storable(name)
        self._connection.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (stored,))
        (number,) = self._connection.execute("SELECT id FROM names WHERE name = ?", (stored,)).fetchone()
        self[name] = int(number)
        return int(number)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def complete(connection: sqlite3.Connection) -> None:
    for table in ("knowledge_fts", "lines_fts"):
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")
    connection.execute("ANALYZE knowledge_meta")
    connection.execute("UPDATE index_state SET value = '1' WHERE key = 'complete'")


def add_vectors(
    connection: sqlite3.Connection, ids: Sequence[int], vectors: NDArray[np.float32], can_load: bool
) -> None:
    wide, small = packed_vectors(vectors, compared(state(connection)))
    connection.executemany("UPDATE passages SET vector = ? WHERE id = ?", zip(wide, ids, strict=True))
    if not can_load:
        connection.execute("UPDATE index_state SET value = '1' WHERE key = 'vectors_stale'")
        return
    connection.executemany(
        "INSERT INTO knowledge_vec (rowid, project, session, embedding) "
        f"SELECT id, project, iif(derived, {LINES}, session), vec_int8(?) FROM knowledge_meta WHERE id = ?",
        zip(small, ids, strict=True),
    )
