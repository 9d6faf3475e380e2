"""The search index of a team's workspace: tables with data from the files, for fast searches.

Every write of a file marks it in `unindexed`, in the same transaction. The maintaining process indexes marked files:
it reads and embeds them outside of a transaction, and then writes passages and removes the mark in one, unless the file
has changed meanwhile. So the index never misses a file, even if the process is killed or a change notice is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync

from mcp_server.embed.providers import Embedding
from mcp_server.storage.files import Files
from mcp_server.storage.index.file_reader import (
    COPIES,
    NEWEST,
    FileContent,
    IndexedFile,
    Plan,
    Row,
    Signals,
    TranscriptPosition,
    is_derived_line,
    mark_of,
    plan,
    read_content,
    read_tail,
    signals_of_all,
    transcripts_last,
)
from mcp_server.storage.index.scoring import import_numpy, in_bytes, packed_about, passage_of
from mcp_server.storage.ports import Progress
from mcp_server.storage.postgres import postings
from mcp_server.storage.postgres.database import Connection, Database
from mcp_server.storage.postgres.files import TeamFiles
from mcp_server.storage.postgres.postings import LINES, SAID
from mcp_server.storage.sqlite import Stems, driver
from mcp_server.storage.state import storable
from mcp_server.storage.values import FOLDERS, Candidates, IndexQuery, is_indexed
from mcp_server.text.passages import indexed_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.embed import Embedder

COLUMNS: str = (
    "m.id, m.path, m.mark, m.part, m.ordinal, m.first_line, m.last_line, m.text, m.title, m.category, m.project, "
    "m.session, m.turn, m.turn_id, m.role, m.speaker, m.at, "
    "m.chars, m.tells_time, m.first_person, m.ends_with_question, m.stems, m.vector, m.about"
)
"""The columns of a passage in the order that `score` and `passage_of` expect."""


class Names(dict[Any, str]):
    """Maps names in rows of passages to themselves: in PostgreSQL rows contain names, not their numbers."""

    def __missing__(self, name: str) -> str:
        return name


NAMES = Names()

BATCH = 500
"""About how many passages are read, embedded and written together."""

_INDEX_TABLES = (
    *("passage_vector", "passage", "posting_block", "posting_delta", "posting_gone", "term", "totals", "speaker"),
    *("indexed_file", "index_state"),
)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The changes for a file. `marked` is the number of changes in its row of `unindexed` before it was read, `version`
    the version that was read, `known` the index's record of the file before."""

    marked: int
    version: int
    known: IndexedFile | None
    plan: Plan


MakeScan = Callable[[Files, Callable[[str], FileContent]], Callable[[IndexQuery, str], Candidates]]
"""(files, function that reads one) → function that searches them without an index: `local.index.index.Scan.search`."""


class Indexing:
    """Updates the search index of one workspace. `name` and `dimensions` describe the embedder even if it is missing.
    `scan` searches the files while nothing is indexed."""

    def __init__(
        self,
        database: Database,
        files: TeamFiles,
        embedder: Embedder | None,
        name: str,
        dimensions: int,
        scan: MakeScan | None,
    ) -> None:
        self._database = database
        self._files = files
        self._scan = scan(files, lambda path: self._read(path, None)[2]) if scan else None
        self._embedding = Embedding(embedder, name, dimensions)
        self._stems: Stems | None = None
        self._stemming = threading.Lock()
        self._building: tuple[int, int] | None = None

    @property
    def needs_care(self) -> bool:
        """Returns whether the maintainer should `refresh` at once, because files wait to be indexed."""
        return self._database.run(self._waiting)

    def _waiting(self, connection: Connection) -> bool:
        return bool(connection.row("SELECT 1 FROM unindexed WHERE ws = %s LIMIT 1"))

    async def refresh(self, progress: Progress | None = None) -> int:
        """Indexes all changed files. Returns their number. Any process may call it."""
        rows = await self._rows("SELECT path FROM unindexed WHERE ws = %s ORDER BY path")
        changed = await run_sync(self._index_files, [path for (path,) in rows], progress)
        await run_sync(self._embed_missing)
        return changed

    async def apply(self, paths: Iterable[str]) -> int:
        """Indexes the changed ones of these files and of the files in these folders. Returns their number."""
        asked = list(paths)
        rows = await self._rows(
            "SELECT u.path FROM unindexed u WHERE u.ws = %s AND EXISTS (SELECT 1 FROM unnest(%s::text[]) AS p (path) "
            "WHERE u.path = p.path OR starts_with(u.path, p.path || '/')) ORDER BY u.path",
            asked,
        )
        return await run_sync(self._index_files, [path for (path,) in rows], None)

    async def apply_small(self, paths: Iterable[str]) -> tuple[int, list[str]]:
        """Indexes these files. Returns the number of changed files, and an empty list: no file is left for `apply`."""
        return await self.apply(paths), []

    async def rebuild(self, progress: Progress | None = None) -> int:
        """Empties the index and fills it from the files. Returns the number of files. Searches find less meanwhile."""

        def empty(connection: Connection) -> int:
            connection.lock_row("index")
            for table in _INDEX_TABLES:
                connection.run(f"DELETE FROM {table} WHERE ws = %s")
            connection.run("DELETE FROM counter WHERE ws = %s AND name LIKE 'merged %%'")
            for folder in FOLDERS:
                for found in self._files.paths_below(connection, f"{folder}/"):
                    if is_indexed(found):
                        self._files.mark(connection, found)
            return int(connection.row("SELECT count(*) FROM unindexed WHERE ws = %s")[0])

        count = await self._database.call(empty)
        await self.refresh(progress)
        return count

    async def renew(self, progress: Progress | None = None) -> tuple[str, ...]:
        await self.rebuild(progress)
        return ()

    async def close(self) -> None:
        """Does nothing: the connections belong to the database."""

    def _index_files(self, paths: Sequence[str], progress: Progress | None) -> int:
        """Indexes these files, in batches of about BATCH passages. Blocks: call it in a worker thread."""
        import_numpy()
        ordered = sorted(paths, key=transcripts_last)
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

    def _batch(self, paths: Iterable[str]) -> list[_Planned]:
        """Reads files until there are BATCH passages."""
        found: list[_Planned] = []
        passages = 0
        for path in paths:
            known = self._database.run(partial(self._known, path=path))
            marked, version, content = self._read(path, known)
            planned = plan(content, self._units(content))
            found.append(_Planned(marked, version, known, planned))
            passages += len(planned.rows)
            if passages >= BATCH:
                break
        return found

    def _known(self, connection: Connection, path: str) -> IndexedFile | None:
        statement = (
            "SELECT version, size, mtime_ns, looked_ns, sha256, so_far FROM indexed_file WHERE ws = %s AND path = %s"
        )
        row = connection.row(statement, path)
        if not row:
            return None
        version, size, mtime_ns, looked_ns, sha256, so_far = row
        position = TranscriptPosition.from_json(so_far) if so_far else None
        return IndexedFile(version or 0, size, mtime_ns, looked_ns, bytes(sha256), position)

    def _units(self, content: FileContent) -> dict[int, bytes]:
        """Returns the digests of a file's indexed units by mark; for a grown file, only of the units in its new
        part."""
        marks = [mark_of(passage) for passage in content.passages] if content.grown else None
        rows = self._database.rows(
            "SELECT mark, digest FROM passage WHERE ws = %s AND path = %s AND part = 0 AND (%s OR mark = ANY(%s))",
            *(content.path, marks is None, marks or []),
        )
        return {mark: bytes(digest) for mark, digest in rows}

    def _read(self, path: str, known: IndexedFile | None) -> tuple[int, int, FileContent]:
        """Returns the number of changes in the file's row of `unindexed` before it was read, the file's version, and
        its passages. A transcript of the same version has only grown, so only its new part is read."""
        looked_ns = time.time_ns()
        so_far = known.so_far if known else None

        def read(connection: Connection) -> tuple[int, int, FileContent]:
            (marked,) = connection.row("SELECT changes FROM unindexed WHERE ws = %s AND path = %s", path) or (0,)
            version, about = self._files.found(connection, path)
            if about is None:
                return marked, 0, FileContent(path, gone=True)
            if known and so_far and known.id == version:
                tail = self._files.bytes_of(connection, path, so_far.end)
                found = read_tail(path, tail, about.size, about.mtime_ns, looked_ns, known, so_far)
                if found is not None:
                    return marked, version, found
            data = self._files.bytes_of(connection, path)
            return marked, version, read_content(path, data, about.size, about.mtime_ns, looked_ns, known)

        return self._database.run(read)

    def _write_batch(self, batch: Sequence[_Planned]) -> int:
        """Writes the plans of a batch, except for files that another process has indexed meanwhile. Returns the number
        of changed files."""
        rows = [row for one in batch for row in one.plan.rows]
        edited = [one.plan.look.path for one in batch if one.plan.rows and one.plan.drop]
        select = "SELECT text, about FROM passage WHERE ws = %s AND path = ANY(%s) AND about IS NOT NULL"
        read_before = {text: bytes(about) for text, about in self._database.rows(select, edited)} if edited else {}
        cuts = signals_of_all(rows, self._embedding.embedder is not None, read_before)
        with self._stemming:
            stemmer = self._stemmer()
            stemmer.learn(word for found in cuts for word in found.words)
            stems = [stemmer.numbers(found.words) for found in cuts]
        vectors = self._embedding.of([found.text for found in cuts])

        def write(connection: Connection) -> int:
            connection.lock_row("index")
            embeds = self._claim_vectors(connection)
            offset = changed = 0
            for one in batch:
                planned = one.plan
                end = offset + len(planned.rows)
                if self._known(connection, planned.look.path) == one.known:
                    mine = vectors[offset:end] if vectors is not None and embeds else None
                    self._write_file(connection, one, cuts[offset:end], stems[offset:end], mine)
                    # Skips the row if another call is writing the file now; that change is indexed next.
                    connection.run(
                        "DELETE FROM unindexed u USING (SELECT path FROM unindexed WHERE ws = %s AND path = %s "
                        "AND changes = %s FOR UPDATE SKIP LOCKED) AS free WHERE u.ws = %s AND u.path = free.path",
                        *(planned.look.path, one.marked, connection.ws),
                    )
                    changed += not planned.look.same
                offset = end
            postings.merge_if_due(connection)
            if changed:
                connection.count("index", 1)
            return changed

        return self._database.run(write)

    def _write_file(
        self,
        connection: Connection,
        one: _Planned,
        cuts: Sequence[Signals],
        stems: Sequence[Sequence[int]],
        vectors: NDArray[np.float32] | None,
    ) -> None:
        planned, look = one.plan, one.plan.look
        if look.gone:
            self._drop(connection, look.path, None)
            connection.run("DELETE FROM indexed_file WHERE ws = %s AND path = %s", look.path)
            return
        connection.run(
            "INSERT INTO indexed_file (ws, path, size, mtime_ns, looked_ns, sha256, so_far, version, problem) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (ws, path) DO UPDATE SET size = excluded.size, "
            "mtime_ns = excluded.mtime_ns, looked_ns = excluded.looked_ns, sha256 = excluded.sha256, "
            "so_far = excluded.so_far, version = excluded.version, "
            "problem = CASE WHEN %s THEN indexed_file.problem ELSE excluded.problem END",
            *(look.path, look.size, look.mtime_ns, look.looked_ns, look.sha256),
            *(look.so_far.to_json() if look.so_far else None, one.version, look.problem, look.same),
        )
        if planned.drop:
            self._drop(connection, look.path, planned.drop)
        if planned.rows:
            self._insert(connection, planned.rows, cuts, stems, vectors, look.mtime_ns / 1e9)

    def _drop(self, connection: Connection, path: str, marks: Sequence[int] | None) -> None:
        """Deletes the passages of these units of a file, or of all its units if `marks` is None."""
        rows = connection.rows(
            "DELETE FROM passage WHERE ws = %s AND path = %s AND (%s OR mark = ANY(%s)) "
            "RETURNING kind, id, stems, words, project, speaker",
            *(path, marks is None, list(marks or ())),
        )
        postings.remove(connection, [(kind, number, stems) for kind, number, stems, *_ in rows])
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

        first = connection.count("passage", len(rows)) - len(rows) + 1
        half = vectors.astype("<f2") if vectors is not None else None
        narrow = in_bytes(half, self._embedding.compared) if half is not None else None
        values: list[tuple[Any, ...]] = []
        kinds: list[int] = []
        for place, (one, cut, numbers) in enumerate(zip(rows, cuts, stems, strict=True)):
            p = one.passage
            kind = LINES if is_derived_line(p) else SAID
            kinds.append(kind)
            values.append(
                (
                    *(connection.ws, first + place, p.path, one.mark, p.part, kind),
                    *(storable(p.project), storable(p.session), p.category, storable(p.speaker)),
                    *(p.at.timestamp() if p.at else None, file_at, len(cut.words), one.digest),
                    *(p.ordinal, p.start, p.end, storable(p.text), storable(p.title), p.turn, p.turn_id, p.role),
                    *(one.chars, bool(cut.tells_time), cut.first_person, bool(one.ends_with_question)),
                    np.array(numbers, dtype="<u4").tobytes(),
                    half[place].tobytes() if half is not None else None,
                    cut.about,
                )
            )
        marks = ", ".join(["%s"] * 29)
        connection.cursor().executemany(f"INSERT INTO passage VALUES ({marks})", values)
        if narrow is not None:
            connection.cursor().executemany(
                "INSERT INTO passage_vector (ws, id, kind, vector) VALUES (%s, %s, %s, %s::halfvec)",
                [(connection.ws, first + at, kind, as_vector(narrow[at].tolist())) for at, kind in enumerate(kinds)],
            )
        postings.add(connection, [(kinds[at], first + at, numbers) for at, numbers in enumerate(stems)])
        passages = [(kind, cut, one.passage) for kind, cut, one in zip(kinds, cuts, rows, strict=True)]
        self._count(connection, [(kind, 1, len(cut.words), p.project, p.speaker) for kind, cut, p in passages])

    def _count(self, connection: Connection, changes: Sequence[tuple[int, int, int, str, str]]) -> None:
        """Adds changes to the totals and to the speakers. A change is kind, number of passages, words, project,
        speaker."""
        if not changes:
            return
        kinds, numbers, words, projects, speakers = map(list, zip(*changes, strict=True))
        connection.run(
            "INSERT INTO totals (ws, kind, passages, words) SELECT %s, kind, sum(passages), sum(words) "
            "FROM unnest(%s::smallint[], %s::bigint[], %s::bigint[]) AS n (kind, passages, words) GROUP BY kind "
            "ON CONFLICT (ws, kind) "
            "DO UPDATE SET passages = totals.passages + excluded.passages, words = totals.words + excluded.words",
            *(kinds, numbers, words),
        )
        connection.run(
            "INSERT INTO speaker (ws, project, speaker, kind, passages) "
            "SELECT %s, project, speaker, kind, sum(passages) "
            "FROM unnest(%s::text[], %s::text[], %s::smallint[], %s::bigint[]) AS n (project, speaker, kind, passages) "
            "GROUP BY project, speaker, kind ON CONFLICT (ws, project, speaker, kind) "
            "DO UPDATE SET passages = speaker.passages + excluded.passages",
            *(list(map(storable, projects)), list(map(storable, speakers)), kinds, numbers),
        )
        connection.run("DELETE FROM speaker WHERE ws = %s AND passages <= 0")

    def _embed_missing(self) -> None:
        """Embeds the passages that were indexed without an embedder."""
        while self._embedding.embedder is not None:
            rows = self._database.rows(
                f"SELECT {COLUMNS} FROM passage m WHERE m.ws = %s AND m.vector IS NULL ORDER BY m.id LIMIT %s", BATCH
            )
            vectors = self._embedding.of([indexed_text(passage_of(row, NAMES)) for row in rows])
            if vectors is None:
                return
            half = vectors.astype("<f2")
            narrow = [as_vector(one.tolist()) for one in in_bytes(half, self._embedding.compared)]
            values = [row[0] for row in rows], [one.tobytes() for one in half], narrow

            def write(connection: Connection, values: Sequence[Any] = values) -> bool:
                connection.lock_row("index")
                if not self._claim_vectors(connection):
                    return False
                connection.execute(
                    "WITH new AS "
                    "(SELECT * FROM unnest(%s::bigint[], %s::bytea[], %s::text[]) AS n (id, wide, narrow)), changed AS "
                    "(UPDATE passage p SET vector = new.wide FROM new WHERE p.ws = %s AND p.id = new.id "
                    "AND p.vector IS NULL RETURNING p.ws, p.id, p.kind, new.narrow) INSERT INTO passage_vector "
                    "(ws, id, kind, vector) SELECT ws, id, kind, narrow::halfvec FROM changed",
                    (*values, connection.ws),
                )
                return True

            if not self._database.run(write):
                return

    async def read_ahead(self, most: int) -> int:
        return await run_sync(self._read_ahead, most)

    def _read_ahead(self, most: int) -> int:
        if self._embedding.embedder is None:
            return 0
        select = (
            "WITH n AS (SELECT id FROM passage WHERE ws = %s AND about IS NULL ORDER BY id DESC LIMIT %s) "
            "SELECT id, text, kind FROM passage p JOIN n USING (id) WHERE p.ws = %s "
            "ORDER BY category = ANY(%s), id DESC LIMIT %s"
        )
        waiting = self._database.run(
            lambda connection: connection.rows(select, NEWEST, connection.ws, list(COPIES), most)
        )
        found = packed_about((text, kind == LINES) for _, text, kind in waiting)
        update = (
            "UPDATE passage p SET about = new.about FROM unnest(%s::bigint[], %s::bytea[]) AS new (id, about) "
            "WHERE p.ws = %s AND p.id = new.id"
        )
        ids = [number for number, *_ in waiting]
        self._database.run(lambda connection: connection.execute(update, (ids, found, connection.ws)))
        return len(waiting)

    # ---------------------------------------------------------------- embedder and words

    def _claim_vectors(self, connection: Connection) -> bool:
        """Returns whether the index uses this process's embedder. The first embedder becomes that of the index."""
        if self._embedding.embedder is None:
            return False
        statement = "INSERT INTO index_state (ws, key, value) VALUES (%s, 'embedder', %s) ON CONFLICT DO NOTHING"
        connection.run(statement, self._embedder_text())
        return self._usable(connection)[0]

    def _usable(self, connection: Connection) -> tuple[bool, str]:
        """Returns whether the vectors of the index are from this process's embedder, and a message if they are not."""
        row = connection.row("SELECT value FROM index_state WHERE ws = %s AND key = 'embedder'")
        if not row or self._embedding.embedder is None:
            return False, ""
        if row[0] == self._embedder_text():
            return True, ""
        return False, (
            f"the index was built with the embedder {row[0]}, but this process has {self._embedder_text()}: search "
            "uses keywords only. Set the same search.embedder for all replicas, or rebuild the index with "
            "`context-manager reset --index --apply`"
        )

    def _embedder_text(self) -> str:
        return f"{self._embedding.name}, {self._embedding.dimensions} dimensions"

    def _stemmer(self) -> Stems:
        """Returns FTS5's stemmer, in an in-memory database. Callers hold `_stemming` while they use it."""
        if self._stems is None:
            self._stems = Stems(driver().module.connect(":memory:", check_same_thread=False))
        return self._stems

    async def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return await self._database.call(lambda connection: connection.rows(statement, *values))


def as_vector(numbers: Sequence[int]) -> str:
    """Returns a vector in pgvector's text format."""
    return f"[{','.join(map(str, numbers))}]"
