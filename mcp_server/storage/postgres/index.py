"""The search index of a team's workspace: tables that are filled from the files, for fast searches.

Every write of a file marks it in `unindexed`, in the same transaction. The maintaining process indexes marked files:
it reads and embeds them outside of a transaction, and then writes passages and removes the mark in one, unless the file
has changed meanwhile. So the index never misses a file, also if the process is killed or a change notice is lost.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_server.errors import ContextManagerError
from mcp_server.model import Exchange
from mcp_server.search.query import ParsedQuery
from mcp_server.storage.local.database import driver
from mcp_server.storage.local.index.candidates import passage_of
from mcp_server.storage.local.index.file_reader import FileContent, IndexedFile, TranscriptPosition, read_content
from mcp_server.storage.local.index.generations import Stems, import_numpy, numpy_is_there
from mcp_server.storage.local.index.vectors import LEADING, in_bytes
from mcp_server.storage.local.index.writer import Plan, Row, Signals, plan, signals_of
from mcp_server.storage.ports import Progress
from mcp_server.storage.postgres import postings
from mcp_server.storage.postgres.candidates import COLUMNS, NAMES, Searching, as_vector
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.postgres.files import TeamFiles
from mcp_server.storage.postgres.postings import LINES, SAID
from mcp_server.storage.postgres.state import storable
from mcp_server.storage.values import (
    FOLDERS,
    USUAL,
    Candidates,
    Depth,
    Filters,
    IndexStatus,
    Mode,
    is_indexed,
    with_operators,
)
from mcp_server.text.entries import Source, sources_of
from mcp_server.text.passages import indexed_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder

T = TypeVar("T")

SETTLE_SECONDS = 1.0
"""Time limit of `settle`."""

BATCH = 500
"""About how many passages are read, embedded and written together."""

QUERIES_KEPT, LONGEST_KEPT = 16, 10_000
"""Queries whose vectors are cached, and their greatest length in characters."""

EXCHANGE_PARTS = 2
"""Parts of a turn that `exchanges` compares: about 1,600 characters."""

_INDEX_TABLES = (
    "passage_vector",
    "passage",
    "posting_block",
    "posting_delta",
    "posting_gone",
    "term",
    "totals",
    "speaker",
    "indexed_file",
    "index_state",
)


class TeamIndex:
    """The search index of one workspace. `name` and `dimensions` describe an embedder that is missing."""

    def __init__(
        self,
        database: Database,
        files: TeamFiles,
        embedder: Embedder | None = None,
        name: str | None = None,
        dimensions: int = 0,
    ) -> None:
        self._database = database
        self._files = files
        self._embedder = embedder
        self._name = name or (embedder.name if embedder else "none")
        self._dimensions = embedder.dimensions if embedder else dimensions
        self._compared = min(self._dimensions, LEADING.get(self._name, self._dimensions))
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._stems: Stems | None = None
        self._stemming = threading.Lock()
        self._problem: str | None = None
        self._building: tuple[int, int] | None = None

    # ---------------------------------------------------------------- searching

    async def candidates(self, query: ParsedQuery, filters: Filters | None = None, mode: Mode = "hybrid") -> Candidates:
        """Returns the passages that may answer a query, with the raw values of every signal."""
        return await self.answer(query, filters, mode, lambda found: found)

    async def answer(
        self,
        query: ParsedQuery,
        filters: Filters | None,
        mode: Mode,
        then: Callable[[Candidates], T],
        depth: Depth = USUAL,
    ) -> T:
        """Returns `then` of the candidates. It runs on the thread that found them. Raises Unavailable."""
        from anyio.to_thread import run_sync

        wanted = with_operators(filters or Filters(), query)
        return await run_sync(lambda: then(self._found(query.text, wanted, mode, depth)))

    def _found(self, text: str, filters: Filters, mode: Mode, depth: Depth) -> Candidates:
        import_numpy()
        vector = None if mode == "keyword" else self._vector(text)
        messages: list[str] = []

        def search(connection: Connection) -> Candidates:
            usable, problem = self._usable(connection)
            messages.extend([problem] if problem else [])
            asked = vector if usable else None
            with self._stemming:
                searching = Searching(
                    connection, self._database.ws, self._stemmer(), text, filters, depth, asked, self._compared
                )
                planned, found = searching.candidates(mode)
            if mode == "vector" and asked is not None:
                found = [replace(one, candidate=replace(one.candidate, bm25=0.0, matched=0, pairs=0)) for one in found]
            used: Mode = "keyword" if asked is None else mode
            return Candidates(
                planned.asked,
                tuple(found),
                planned.frequencies,
                planned.passages,
                used,
                "1",
                (*self._messages(), *messages),
            )

        return self._database.run(search)

    async def exchanges(self, text: str, turns: Sequence[Source]) -> Mapping[Source, Exchange]:
        """Returns how near these turns and their neighbors are to a text; nothing for a turn without a vector."""
        from anyio.to_thread import run_sync

        if not turns or not numpy_is_there.is_set():
            return {}

        def near() -> Mapping[Source, Exchange]:
            vector = self._vector(text)
            return {} if vector is None else self._database.run(lambda c: self._exchanges(c, vector, turns))

        return await run_sync(near)

    def _exchanges(
        self, connection: Connection, vector: NDArray[np.float32], turns: Sequence[Source]
    ) -> dict[Source, Exchange]:
        import numpy as np

        rows = connection.execute(
            "SELECT DISTINCT n.path, n.mark, n.part, n.vector FROM unnest(%s::text[], %s::bigint[]) AS t (path, turn) "
            "JOIN passage n ON n.ws = %s AND n.path = t.path AND n.mark BETWEEN t.turn - 1 AND t.turn + 1 "
            "WHERE n.part < %s AND length(n.vector) = %s",
            ([one.path for one in turns], [one.turn for one in turns], self._ws, EXCHANGE_PARTS, 2 * len(vector)),
            binary=True,
        ).fetchall()
        summed: dict[Source, NDArray[np.float32]] = {}
        for path, mark, _, blob in sorted(rows, key=lambda row: row[:3]):
            part = np.frombuffer(blob, dtype="<f2").astype(np.float32)
            summed[Source(path, mark)] = summed.get(Source(path, mark), 0.0) + part
        units = {turn: one / np.linalg.norm(one) for turn, one in summed.items() if one.any()}
        found = {}
        for turn in turns:
            if turn in units:
                three = [units[one] for step in (-1, 0, 1) if (one := Source(turn.path, turn.turn + step)) in units]
                mean = np.sum(three, axis=0)
                found[turn] = Exchange(
                    float(units[turn] @ vector),
                    float(mean @ vector / (np.linalg.norm(mean) or 1.0)),
                    max(float(one @ vector) for one in three),
                )
        return found

    def embed_ahead(self, text: str) -> None:
        """Embeds a query before it is searched. It may take long: call it in a thread."""
        if numpy_is_there.is_set():
            self._vector(text)

    async def settle(self, paths: Iterable[str], patience: float = SETTLE_SECONDS) -> None:
        """Waits until searches see the current versions of these files, at most `patience` seconds."""
        from anyio import move_on_after, sleep

        wanted = sorted({path for path in paths if is_indexed(path)})
        with move_on_after(patience):
            while wanted:
                rows = await self._rows("SELECT path FROM unindexed WHERE ws = %s AND path = ANY(%s)", wanted)
                wanted = [path for (path,) in rows]
                if wanted:
                    await sleep(0.02)

    async def last_turn(self, session: str) -> int | None:
        """Returns the number of a session's newest indexed turn; 0 for none."""
        rows = await self._rows("SELECT max(mark) FROM passage WHERE ws = %s AND session = %s", session)
        return int(rows[0][0] or 0)

    async def fingerprint(self) -> str:
        """Returns a SHA-256 of everything that searches can see, independent of the order of indexing."""

        def ask(connection: Connection) -> str:
            digest = hashlib.sha256()
            for statement in (
                f"SELECT {COLUMNS}, m.kind, m.words, m.digest FROM passage m WHERE m.ws = %s "
                "ORDER BY m.path, m.mark, m.part",
                "SELECT m.path, m.mark, m.part, v.vector::text FROM passage_vector v JOIN passage m ON m.ws = v.ws "
                "AND m.id = v.id WHERE v.ws = %s ORDER BY 1, 2, 3",
                "SELECT kind, stem, df FROM term WHERE ws = %s ORDER BY 1, 2",
                "SELECT kind, passages, words FROM totals WHERE ws = %s AND passages > 0 ORDER BY 1",
                "SELECT project, speaker, kind, passages FROM speaker WHERE ws = %s ORDER BY 1, 2, 3",
                "SELECT path, size, sha256, problem FROM indexed_file WHERE ws = %s ORDER BY 1",
            ):
                for row in connection.execute(statement, (self._ws,)):
                    digest.update(repr(row[1:] if statement.startswith("SELECT m.id") else row).encode())
            return digest.hexdigest()

        return await self._database.call(ask)

    async def data_version(self) -> tuple[str, int]:
        """Returns a value that changes whenever any process changes the index."""
        rows = await self._rows("SELECT value FROM counter WHERE ws = %s AND name = 'index'")
        return "1", int(rows[0][0]) if rows else 0

    async def status(self) -> IndexStatus:
        """Returns the contents and problems of the index."""

        def ask(connection: Connection) -> IndexStatus:
            row = connection.execute(
                "SELECT (SELECT count(*) FROM indexed_file WHERE ws = %(ws)s), "
                "(SELECT coalesce(sum(passages), 0) FROM totals WHERE ws = %(ws)s), "
                "(SELECT count(*) FROM passage WHERE ws = %(ws)s AND vector IS NULL), "
                "(SELECT count(*) FROM unindexed WHERE ws = %(ws)s), "
                "(SELECT coalesce(sum(length(text) + length(stems) + coalesce(length(vector), 0)), 0) "
                "FROM passage WHERE ws = %(ws)s), current_setting('server_version'), "
                "(SELECT extversion FROM pg_extension WHERE extname = 'vector')",
                {"ws": self._ws},
            ).fetchone()
            assert row is not None
            files, passages, waiting, unindexed, size, server, vector = row
            problems = connection.execute(
                "SELECT problem FROM indexed_file WHERE ws = %s AND problem IS NOT NULL ORDER BY path", (self._ws,)
            ).fetchall()
            _, problem = self._usable(connection)
            messages = [*self._messages(), *([problem] if problem else [])]
            without = int(waiting) if self._dimensions else 0
            if without and self._embedder is not None:
                messages.append(f"{without} passages are not embedded yet: they are found by keywords only")
            return IndexStatus(
                state="building" if self._building or unindexed else "ready",
                generation="1",
                embedder=self._name,
                vectors="none" if self._name == "none" else f"pgvector {vector}",
                sqlite=f"PostgreSQL {server}",
                files=int(files),
                passages=int(passages),
                not_embedded=without,
                size_bytes=int(size),
                problems=tuple(said for (said,) in problems),
                messages=tuple(messages),
            )

        return await self._database.call(ask)

    async def compare_sample(self, files: int) -> tuple[int, tuple[str, ...]]:
        """Reads some indexed files again and compares their passages with the index.

        Returns the number of compared files, and the paths of those that differ. Files that changed since they were
        indexed are skipped.
        """
        rows = await self._rows(
            "SELECT f.path FROM indexed_file f WHERE f.ws = %s AND NOT EXISTS (SELECT 1 FROM unindexed u "
            "WHERE u.ws = f.ws AND u.path = f.path) ORDER BY random() LIMIT %s",
            files,
        )

        def compare(path: str) -> bool:
            _, found = self._read(path, None)
            expected = {(row.mark, row.passage.part, row.digest) for row in plan(found, {}).rows}
            stored = self._database.run(
                lambda connection: connection.execute(
                    "SELECT mark, part, digest FROM passage WHERE ws = %s AND path = %s", (self._ws, path), binary=True
                ).fetchall()
            )
            return {(mark, part, bytes(digest)) for mark, part, digest in stored} == expected

        from anyio.to_thread import run_sync

        differing = [path for (path,) in rows if not await run_sync(compare, path)]
        return len(rows), tuple(differing)

    # ---------------------------------------------------------------- maintaining

    @property
    def needs_care(self) -> bool:
        """True if the maintainer should `refresh` at once: files wait that no change notice named."""
        found = self._database.run(
            lambda connection: connection.execute(
                "SELECT 1 FROM unindexed WHERE ws = %s LIMIT 1", (self._ws,)
            ).fetchone()
        )
        return found is not None

    async def refresh(self, progress: Progress | None = None) -> int:
        """Indexes all changed files. Returns their number. Any process may call it."""
        from anyio.to_thread import run_sync

        rows = await self._rows("SELECT path FROM unindexed WHERE ws = %s ORDER BY path")
        changed = await run_sync(self._indexed, [path for (path,) in rows], progress)
        await run_sync(self._embed_missing)
        return changed

    async def apply(self, paths: Iterable[str]) -> int:
        """Indexes those of these files, and of the files in these folders, that have changed. Returns their number."""
        from anyio.to_thread import run_sync

        asked = list(paths)
        rows = await self._rows(
            "SELECT u.path FROM unindexed u WHERE u.ws = %s AND EXISTS (SELECT 1 FROM unnest(%s::text[]) AS p (path) "
            "WHERE u.path = p.path OR starts_with(u.path, p.path || '/')) ORDER BY u.path",
            asked,
        )
        return await run_sync(self._indexed, [path for (path,) in rows], None)

    async def apply_small(self, paths: Iterable[str]) -> tuple[int, list[str]]:
        """Indexes these files. Returns the number of changed files, and no paths: none is left to `apply`."""
        return await self.apply(paths), []

    async def rebuild(self, progress: Progress | None = None) -> int:
        """Empties the index and fills it from the files. Returns their number. Searches find less meanwhile."""

        def empty(connection: Connection) -> int:
            self._lock(connection)
            for table in _INDEX_TABLES:
                connection.execute(f"DELETE FROM {table} WHERE ws = %s", (self._ws,))
            connection.execute("DELETE FROM counter WHERE ws = %s AND name LIKE 'merged %%'", (self._ws,))
            for folder in FOLDERS:
                for found in self._files.paths_below(connection, f"{folder}/"):
                    if is_indexed(found):
                        self._files.mark(connection, found)
            row = connection.execute("SELECT count(*) FROM unindexed WHERE ws = %s", (self._ws,)).fetchone()
            return int(row[0]) if row else 0

        count = await self._database.call(empty)
        await self.refresh(progress)
        return count

    async def renew(self, progress: Progress | None = None, patience: float = 0.0) -> tuple[str, ...]:
        """Rebuilds the index."""
        await self.rebuild(progress)
        return ()

    async def close(self) -> None:
        """Does nothing: the connections belong to the database."""

    def _indexed(self, paths: Sequence[str], progress: Progress | None) -> int:
        """Indexes these files, in batches of about BATCH passages. Blocks: call it in a worker thread."""
        import_numpy()
        ordered = sorted(paths, key=lambda path: (path.startswith("raw/"), path))
        self._building = (0, len(ordered)) if len(ordered) > 1 else None
        changed = done = 0
        try:
            remaining = iter(ordered)
            while batch := self._batch(remaining):
                changed += self._write_batch(batch)
                done += len(batch)
                if progress:
                    progress(done, len(ordered))
        finally:
            self._building = None
        return changed

    def _batch(self, paths: Iterable[str]) -> list[tuple[int, IndexedFile | None, Plan]]:
        """Reads files until there are BATCH passages. Returns mark, the file as it was indexed, and plan of each."""
        found: list[tuple[int, IndexedFile | None, Plan]] = []
        passages = 0
        for path in paths:
            known, units = self._database.run(lambda connection, path=path: self._known(connection, path))  # type: ignore[misc]
            marked, content = self._read(path, known)
            planned = plan(content, units)
            found.append((marked, known, planned))
            passages += len(planned.rows)
            if passages >= BATCH:
                break
        return found

    def _known(self, connection: Connection, path: str) -> tuple[IndexedFile | None, dict[int, bytes]]:
        row = connection.execute(
            "SELECT size, mtime_ns, looked_ns, sha256, so_far FROM indexed_file WHERE ws = %s AND path = %s",
            (self._ws, path),
            binary=True,
        ).fetchone()
        if row is None:
            return None, {}
        size, mtime_ns, looked_ns, sha256, so_far = row
        position = TranscriptPosition.from_json(so_far) if so_far else None
        units = connection.execute(
            "SELECT mark, digest FROM passage WHERE ws = %s AND path = %s AND part = 0", (self._ws, path), binary=True
        ).fetchall()
        return IndexedFile(0, size, mtime_ns, looked_ns, bytes(sha256), position), {
            mark: bytes(digest) for mark, digest in units
        }

    def _read(self, path: str, known: IndexedFile | None) -> tuple[int, FileContent]:
        """Returns the number of changes that the file's mark had before it was read, and its passages."""
        looked_ns = time.time_ns()

        def read(connection: Connection) -> tuple[int, Any, bytes | None]:
            row = connection.execute(
                "SELECT changes FROM unindexed WHERE ws = %s AND path = %s", (self._ws, path)
            ).fetchone()
            return (int(row[0]) if row else 0), *self._files.found(connection, path)

        marked, about, data = self._database.run(read)
        if about is None or data is None:
            return marked, FileContent(path, gone=True)
        return marked, read_content(path, data, about.size, about.mtime_ns, looked_ns, known)

    def _write_batch(self, batch: Sequence[tuple[int, IndexedFile | None, Plan]]) -> int:
        """Writes the plans of a batch whose files have not been indexed by another process meanwhile. Returns how many
        files had changed."""
        rows = [row for *_, planned in batch for row in planned.rows]
        cuts = [signals_of(row) for row in rows]
        with self._stemming:
            stemmer = self._stemmer()
            stemmer.learn(word for found in cuts for word in found.words)
            stems = [stemmer.numbers(found.words) for found in cuts]
        vectors = self._embedded([found.text for found in cuts])

        def write(connection: Connection) -> int:
            self._lock(connection)
            embeds = self._claim_vectors(connection)
            offset = changed = 0
            for marked, known, planned in batch:
                end = offset + len(planned.rows)
                if self._known(connection, planned.look.path)[0] == known:
                    self._write_file(
                        connection,
                        planned,
                        cuts[offset:end],
                        stems[offset:end],
                        vectors[offset:end] if vectors is not None and embeds else None,
                    )
                    # A call that writes this file at this moment has the row: then its change is indexed next.
                    connection.execute(
                        "DELETE FROM unindexed u USING (SELECT path FROM unindexed WHERE ws = %s AND path = %s "
                        "AND changes = %s FOR UPDATE SKIP LOCKED) AS free WHERE u.ws = %s AND u.path = free.path",
                        (self._ws, planned.look.path, marked, self._ws),
                    )
                    changed += not planned.look.same
                offset = end
            postings.merge_if_due(connection, self._ws)
            if changed:
                connection.execute(
                    "INSERT INTO counter (ws, name, value) VALUES (%s, 'index', 1) "
                    "ON CONFLICT (ws, name) DO UPDATE SET value = counter.value + 1",
                    (self._ws,),
                )
            return changed

        return self._database.run(write)

    def _write_file(
        self,
        connection: Connection,
        planned: Plan,
        cuts: Sequence[Signals],
        stems: Sequence[Sequence[int]],
        vectors: NDArray[np.float32] | None,
    ) -> None:
        look = planned.look
        if look.gone:
            self._drop(connection, look.path, None)
            connection.execute("DELETE FROM indexed_file WHERE ws = %s AND path = %s", (self._ws, look.path))
            return
        connection.execute(
            "INSERT INTO indexed_file (ws, path, size, mtime_ns, looked_ns, sha256, so_far, problem) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (ws, path) DO UPDATE SET size = excluded.size, "
            "mtime_ns = excluded.mtime_ns, looked_ns = excluded.looked_ns, sha256 = excluded.sha256, "
            "so_far = excluded.so_far, problem = CASE WHEN %s THEN indexed_file.problem ELSE excluded.problem END",
            (
                *(self._ws, look.path, look.size, look.mtime_ns, look.looked_ns, look.sha256),
                *(look.so_far.to_json() if look.so_far else None, look.problem, look.same),
            ),
        )
        if planned.drop:
            self._drop(connection, look.path, planned.drop)
        if planned.rows:
            self._insert(connection, planned.rows, cuts, stems, vectors, look.mtime_ns / 1e9)

    def _drop(self, connection: Connection, path: str, marks: Sequence[int] | None) -> None:
        """Deletes the passages of units of a file, or of all."""
        rows = connection.execute(
            "DELETE FROM passage WHERE ws = %s AND path = %s AND (%s OR mark = ANY(%s)) "
            "RETURNING kind, id, stems, words, project, speaker",
            (self._ws, path, marks is None, list(marks or ())),
            binary=True,
        ).fetchall()
        postings.remove(connection, self._ws, [(kind, number, stems) for kind, number, stems, *_ in rows])
        self._count(connection, [(kind, -1, -words, project, speaker) for kind, _, _, words, project, speaker in rows])

    def _insert(
        self,
        connection: Connection,
        rows: Sequence[Row],
        cuts: Sequence[Signals],
        stems: Sequence[Sequence[int]],
        vectors: NDArray[np.float32] | None,
        file_at: float,
    ) -> None:
        import numpy as np

        row = connection.execute(
            "INSERT INTO counter (ws, name, value) VALUES (%s, 'passage', %s) "
            "ON CONFLICT (ws, name) DO UPDATE SET value = counter.value + excluded.value RETURNING value",
            (self._ws, len(rows)),
        ).fetchone()
        assert row is not None
        first = int(row[0]) - len(rows) + 1
        half = vectors.astype("<f2") if vectors is not None else None
        narrow = in_bytes(half, self._compared) if half is not None else None
        values: list[tuple[Any, ...]] = []
        kinds: list[int] = []
        for place, (one, cut, numbers) in enumerate(zip(rows, cuts, stems, strict=True)):
            p = one.passage
            kind = LINES if p.turn is None and sources_of(p.text) else SAID
            kinds.append(kind)
            values.append(
                (
                    *(self._ws, first + place, p.path, one.mark, p.part, kind),
                    *(storable(p.project), storable(p.session), p.category, storable(p.speaker)),
                    *(p.at.timestamp() if p.at else None, file_at, len(cut.words), one.digest),
                    *(p.ordinal, p.start, p.end, storable(p.text), storable(p.title), p.turn, p.turn_id, p.role),
                    *(one.chars, bool(cut.tells_time), cut.first_person, bool(one.ends_with_question)),
                    np.array(numbers, dtype="<u4").tobytes(),
                    half[place].tobytes() if half is not None else None,
                )
            )
        marks = ", ".join(["%s"] * 28)
        connection.cursor().executemany(f"INSERT INTO passage VALUES ({marks})", values)
        if narrow is not None:
            connection.cursor().executemany(
                "INSERT INTO passage_vector (ws, id, kind, vector) VALUES (%s, %s, %s, %s::halfvec)",
                [
                    (self._ws, first + place, kind, as_vector(narrow[place].tolist()))
                    for place, kind in enumerate(kinds)
                ],
            )
        postings.add(
            connection,
            self._ws,
            [(kind, first + place, numbers) for place, (kind, numbers) in enumerate(zip(kinds, stems, strict=True))],
        )
        counted = zip(kinds, cuts, rows, strict=True)
        self._count(
            connection,
            [(kind, 1, len(cut.words), one.passage.project, one.passage.speaker) for kind, cut, one in counted],
        )

    def _count(self, connection: Connection, changes: Sequence[tuple[int, int, int, str, str]]) -> None:
        """Adds to the totals and to the speakers: kind, number of passages, words, project and speaker."""
        totals: dict[int, tuple[int, int]] = {}
        speakers: dict[tuple[str, str, int], int] = {}
        for kind, many, words, project, speaker in changes:
            before = totals.get(kind, (0, 0))
            totals[kind] = (before[0] + many, before[1] + words)
            key = (storable(project), storable(speaker), kind)
            speakers[key] = speakers.get(key, 0) + many
        for kind, (many, words) in totals.items():
            connection.execute(
                "INSERT INTO totals (ws, kind, passages, words) VALUES (%s, %s, %s, %s) ON CONFLICT (ws, kind) "
                "DO UPDATE SET passages = totals.passages + excluded.passages, words = totals.words + excluded.words",
                (self._ws, kind, many, words),
            )
        for (project, speaker, kind), many in speakers.items():
            connection.execute(
                "INSERT INTO speaker (ws, project, speaker, kind, passages) VALUES (%s, %s, %s, %s, %s) "
                "ON CONFLICT (ws, project, speaker, kind) "
                "DO UPDATE SET passages = speaker.passages + excluded.passages",
                (self._ws, project, speaker, kind, many),
            )
        connection.execute("DELETE FROM speaker WHERE ws = %s AND passages <= 0", (self._ws,))

    def _embed_missing(self) -> None:
        """Embeds the passages that were indexed without an embedder."""
        import numpy as np

        while self._embedder is not None:
            rows = self._database.run(
                lambda connection: connection.execute(
                    f"SELECT {COLUMNS}, m.kind FROM passage m WHERE m.ws = %s AND m.vector IS NULL "
                    "ORDER BY m.id LIMIT %s",
                    (self._ws, BATCH),
                    binary=True,
                ).fetchall()
            )
            vectors = self._embedded([indexed_text(passage_of(row, NAMES)) for row in rows])
            if vectors is None:
                return
            half = vectors.astype("<f2")
            narrow = in_bytes(half, self._compared)
            values = [
                (row[0], row[-1], wide.tobytes(), as_vector(small.tolist()))
                for row, wide, small in zip(rows, half, np.asarray(narrow), strict=True)
            ]

            def write(connection: Connection, values: Sequence[tuple[Any, ...]] = values) -> bool:
                self._lock(connection)
                if not self._claim_vectors(connection):
                    return False
                for number, kind, wide, small in values:
                    done = connection.execute(
                        "UPDATE passage SET vector = %s WHERE ws = %s AND id = %s AND vector IS NULL",
                        (wide, self._ws, number),
                    )
                    if done.rowcount:
                        connection.execute(
                            "INSERT INTO passage_vector (ws, id, kind, vector) VALUES (%s, %s, %s, %s::halfvec)",
                            (self._ws, number, kind, small),
                        )
                return True

            if not self._database.run(write):
                return

    # ---------------------------------------------------------------- embedder and words

    def _claim_vectors(self, connection: Connection) -> bool:
        """Returns whether this process's embedder is the one of the index. The first embedder becomes the index's."""
        if self._embedder is None:
            return False
        connection.execute(
            "INSERT INTO index_state (ws, key, value) VALUES (%s, 'embedder', %s) ON CONFLICT DO NOTHING",
            (self._ws, self._of_embedder()),
        )
        return self._usable(connection)[0]

    def _usable(self, connection: Connection) -> tuple[bool, str]:
        """Returns whether the vectors of the index are of this process's embedder, and a sentence if they are not."""
        row = connection.execute(
            "SELECT value FROM index_state WHERE ws = %s AND key = 'embedder'", (self._ws,)
        ).fetchone()
        if row is None or self._embedder is None:
            return False, ""
        if row[0] == self._of_embedder():
            return True, ""
        return False, (
            f"the index was built with the embedder {row[0]}, this process has {self._of_embedder()}: keywords only. "
            "Give all replicas the same search.embedder, or `context-manager reset --index --apply` builds it anew"
        )

    def _of_embedder(self) -> str:
        return f"{self._name}, {self._dimensions} dimensions"

    def _vector(self, text: str) -> NDArray[np.float32] | None:
        if self._embedder is None or not text.strip():
            return None
        vector = self._vectors.get(text)
        if vector is None:
            found = self._embedded([text])
            if found is None:
                return None
            vector = found[0]
            if len(text) <= LONGEST_KEPT:
                if len(self._vectors) >= QUERIES_KEPT:
                    self._vectors.clear()
                self._vectors[text] = vector
        return vector if vector.any() else None

    def _embedded(self, texts: list[str]) -> NDArray[np.float32] | None:
        """Returns the vectors of texts; None without texts, without an embedder, or if it fails."""
        if self._embedder is None or not texts:
            return None
        try:
            vectors = self._embedder.embed(texts)
        except ContextManagerError as error:
            self._problem = str(error)
            return None
        self._problem = None
        return vectors

    def _stemmer(self) -> Stems:
        """Returns the stemmer, which is FTS5's, in memory. Call it and use it under `_stemming`."""
        if self._stems is None:
            self._stems = Stems(driver().module.connect(":memory:", check_same_thread=False))
        return self._stems

    def _messages(self) -> tuple[str, ...]:
        messages: list[str] = []
        if self._embedder is None and self._name != "none":
            messages.append(f"the embedder {self._name} is not available: keywords only (context-manager doctor)")
        if self._problem:
            messages.append(self._problem)
        return tuple(messages)

    def _lock(self, connection: Connection) -> None:
        """Locks the index for writing, until the transaction ends."""
        statement = "SELECT 1 FROM lock WHERE ws = %s AND name = 'index' FOR UPDATE"
        while connection.execute(statement, (self._ws,)).fetchone() is None:
            connection.execute("INSERT INTO lock (ws, name) VALUES (%s, 'index') ON CONFLICT DO NOTHING", (self._ws,))

    @property
    def _ws(self) -> int:
        return self._database.ws

    async def _rows(self, statement: Any, *values: object) -> list[tuple[Any, ...]]:
        return await self._database.call(
            lambda connection: connection.execute(statement, (self._ws, *values)).fetchall()
        )
