"""Searches in a team's workspace, and the status of its index.

Keywords find passages by postings (`postings`), meaning finds them by an exact scan of narrow vectors. Candidates and
raw values are the same as with SQLite: see `storage.index.searching`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anyio import move_on_after, sleep
from anyio.to_thread import run_sync

from mcp_server.model import Exchange
from mcp_server.storage.index.file_reader import plan
from mcp_server.storage.index.scoring import (
    ENOUGH,
    EXCHANGE_PARTS,
    Fetching,
    QueryPlan,
    Scope,
    as_candidates,
    exchanges_of,
    import_numpy,
    in_bytes,
    numpy_is_there,
)
from mcp_server.storage.index.searching import FIRST_FETCH, SLACK, Searching
from mcp_server.storage.postgres import postings
from mcp_server.storage.postgres.database import Connection
from mcp_server.storage.postgres.indexing import COLUMNS, NAMES, Indexing, as_vector
from mcp_server.storage.postgres.postings import LINES, SAID
from mcp_server.storage.postgres.state import WS
from mcp_server.storage.sqlite import Stems
from mcp_server.storage.state import Dialect
from mcp_server.storage.values import Candidates, IndexQuery, IndexStatus, TurnsNear, is_indexed
from mcp_server.text.entries import Source
from mcp_server.understanding.encoder import vector_of_query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.storage.index.searching import Near

T = TypeVar("T")

LARGE_SHARE = 0.1
"""If a scope has at least this share of all passages, the nearest of all passages are found first, and then filtered.
Otherwise only the scope's vectors are compared, which is faster for a project with a sixteenth of 100,000 passages
(measured 2026-11-23)."""

OF_KINDS = ", ".join(
    f"coalesce(sum({what}) FILTER (WHERE kind = {kind}), 0)::bigint"
    for kind in (SAID, LINES)
    for what in ("passages", "words")
)

POSTGRES = Dialect(
    "%s",
    list,
    {
        "meta": "passage",
        "speaker": "speaker",
        "here": f"m.ws = {WS} AND ",
        "among": "= ANY(?)",
        "derived": "kind",
        "at": "coalesce(m.at, m.file_at)",
        "file": "path",
        "same_file": "n.ws = m.ws AND n.path = m.path",
        "stored": "passage m",
        "files": "",
        "columns": COLUMNS,
        "speakers": f"SELECT DISTINCT m.speaker FROM speaker m WHERE m.ws = {WS} AND m.speaker <> ''",
        "of_speakers": f"SELECT coalesce(sum(passages), 0) FROM speaker m WHERE m.ws = {WS} AND m.kind <= ?",
        "totals": f"SELECT {OF_KINDS} FROM totals WHERE ws = {WS}",
    },
)


class TeamSearching(Searching):
    """A search in one transaction. `compared` is the number of dimensions of the narrow vectors."""

    dialect = POSTGRES

    def __init__(self, connection: Connection, stems: Stems, query: IndexQuery, compared: int) -> None:
        super().__init__(connection, NAMES, stems, query)
        self.execute, self.compared = partial(connection.execute, binary=True), compared

    def numbers(self, names: Sequence[str]) -> dict[str, str]:
        return dict(zip(names, names, strict=True))

    def learn(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Does nothing, because rows contain the names."""

    def units_with(self, sequence: Sequence[str]) -> tuple[str, list[Any]]:
        import numpy as np

        numbers = self.stems.numbers(sequence)
        paths: list[str] = []
        marks: list[int] = []
        for kind in (SAID, LINES):
            listed = postings.load(self.connection, kind, numbers)
            if not numbers or set(listed) != set(numbers):
                continue
            ids = listed[numbers[0]].ids
            for number in numbers[1:]:
                ids = np.intersect1d(ids, listed[number].ids)
            rows = self.connection.rows(
                "SELECT path, mark, stems FROM passage WHERE ws = %s AND id = ANY(%s)", ids.tolist()
            )
            for path, mark, stored in rows:
                stems = np.frombuffer(stored, dtype="<u4")
                at = np.flatnonzero(stems == numbers[0])
                for step, number in enumerate(numbers):
                    at = at[at + step < len(stems)]
                    at = at[stems[at + step] == number]
                if len(at):
                    paths.append(path)
                    marks.append(mark)
        return "SELECT * FROM unnest(?::text[], ?::bigint[])", [paths, marks]

    def documents(self, words: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        numbers = self.stems.numbers(words)
        rows = self.connection.rows(
            "SELECT kind, stem, df FROM term WHERE ws = %s AND kind = ANY(%s) AND stem = ANY(%s)",
            *([SAID, LINES], sorted(set(numbers))),
        )
        known = {(kind, stem): int(frequency) for kind, stem, frequency in rows}
        said, lines = (tuple(known.get((kind, number), 0) for number in numbers) for kind in (SAID, LINES))
        return said, lines

    def holding(self, words: Sequence[str], scope: Scope) -> list[int]:
        counted = []
        for number in self.stems.numbers(words):
            ids: list[int] = []
            for kind in (SAID, LINES) if scope.lines else (SAID,):
                for listed in postings.load(self.connection, kind, [number]).values():
                    ids += listed.ids.tolist()
            counted.append(len(self.inside(ids, scope)))
        return counted

    def matching(self, words: Sequence[Fetching], wanted: int, first: int, scope: Scope, *, lines: bool) -> list[int]:
        kind = LINES if lines else SAID
        listed = postings.load(self.connection, kind, [one.stem for one in words])
        if not listed:
            return []
        of_kind = "SELECT passages, words FROM totals WHERE ws = %s AND kind = %s"
        passages, total = self.connection.row(of_kind, kind) or (0, 0)
        by_word = [listed[one.stem] for one in words if one.stem in listed]
        ordered = postings.best(by_word, passages, total / passages if passages else 1.0).tolist()
        for most in (first, FIRST_FETCH, len(ordered)):
            kept = self.inside(ordered[:most], scope)
            if len(kept) >= wanted or most >= len(ordered):
                return kept[:wanted]
        return []

    def turns(self, sources: Sequence[Source]) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self.connection.rows(
            "SELECT m.path, m.mark, m.id FROM passage m WHERE m.ws = %s AND m.part = 0 AND "
            "(m.path, m.mark) IN (SELECT * FROM unnest(%s::text[], %s::bigint[]))",
            [one.path for one in sources],
            [one.turn for one in sources],
        )
        return rows

    # ---------------------------------------------------------------- meaning

    def by_meaning(self, vector: NDArray[np.float32], plan: QueryPlan, scope: Scope) -> list[int]:
        """Returns the passages of the scope nearest to a vector, nearest first, by the narrow vectors."""
        (narrow,) = in_bytes(vector.astype("<f2").reshape(1, -1), self.compared)
        literal, wanted = as_vector(narrow.tolist()), self.depth.meaning
        if scope.everything:
            return self._nearest(wanted, scope, literal)
        every = max(1, plan.all_passages)
        if scope.other and not self.is_small(scope):
            # As with SQLite: first the nearest passages of the projects, without the excluded session.
            where, values = list[str](), list[Any]()
            if scope.projects is not None:
                where.append("m.project {among}")
                values.append(scope.projects)
            if scope.without_session is not None:
                where.append("m.session <> ?")
                values.append(scope.without_session)
            if where:
                share = self.count(replace(scope, other=False), every) / every
                found = self._nearest_with(" AND ".join(where), values, share, scope, literal)
            else:
                found = self._nearest(wanted, scope, literal)
            kept = self.inside(found, scope)
            if len(found) < wanted or len(kept) >= ENOUGH * wanted:
                return kept
        return self._nearest_with(scope.condition, scope.values, plan.passages / every, scope, literal)

    def _nearest(self, wanted: int, scope: Scope, literal: str) -> list[int]:
        rows = self.connection.rows(
            "SELECT v.id FROM passage_vector v WHERE v.ws = %s AND v.kind <= %s "
            "ORDER BY v.vector <-> %s::halfvec, v.id LIMIT %s",
            *(int(scope.lines), literal, wanted),
        )
        return [number for (number,) in rows]

    def _nearest_with(
        self, condition: str, values: Sequence[Any], share: float, scope: Scope, literal: str
    ) -> list[int]:
        """Returns the nearest passages that fulfill a condition. `share` is the approximate share of all passages that
        fulfill it."""
        wanted = self.depth.meaning
        if share >= LARGE_SHARE:
            kept = self.fulfilling(self._nearest(int(SLACK * wanted / share), scope, literal), condition, values)
            if len(kept) >= wanted:
                return kept[:wanted]
        # Materialized, because PostgreSQL may otherwise sort the vectors of all passages before it filters them.
        return self.ids(
            "WITH near AS MATERIALIZED (SELECT v.id, v.vector <-> ?::halfvec AS distance FROM passage_vector v "
            f"JOIN passage m ON m.ws = v.ws AND m.id = v.id WHERE {{here}}v.kind <= ? AND {condition}) "
            "SELECT id FROM near ORDER BY distance, id LIMIT ?",
            *(literal, int(scope.lines), *values, wanted),
        )


SETTLE_SECONDS = 1.0
"""Time limit of `settle`."""


class TeamIndex(Indexing):
    """The search index of one workspace."""

    async def answer(self, queries: Sequence[IndexQuery], then: Callable[[Sequence[Candidates], TurnsNear], T]) -> T:
        return await run_sync(lambda: then(list(map(self._found, queries)), self._turns_near))

    def _found(self, query: IndexQuery) -> Candidates:
        import_numpy()
        vector = None if query.mode == "keyword" else self._embedding.of_query(query.text)

        def search(connection: Connection) -> Candidates:
            usable, problem = self._usable(connection)
            asked = vector if usable else None
            with self._stemming:
                compared = self._embedding.compared
                searching = TeamSearching(connection, self._stemmer(), query, compared)

                def near(planned: QueryPlan, scope: Scope) -> Near:
                    return asked, [] if asked is None else searching.by_meaning(asked, planned, scope)

                planned, _, found = searching.candidates(near, lambda: vector_of_query(query.said or query.text))
            if self._scan and not planned.all_passages and self._waiting(connection):
                return self._scan(query, "missing")
            messages = [*self._embedding.messages(), *([problem] if problem else [])]
            return as_candidates(planned, found, query.mode, asked is not None, "1", messages)

        return self._database.run(search)

    def _turns_near(self, text: str, turns: Sequence[Source]) -> Mapping[Source, Exchange]:
        vector = self._embedding.of_query(text) if turns else None
        if vector is None:
            return {}
        paths, marks, size = [one.path for one in turns], [one.turn for one in turns], 2 * len(vector)
        rows = self._database.run(
            lambda connection: connection.execute(
                "SELECT DISTINCT n.path, n.mark, n.part, n.vector FROM unnest(%s::text[], %s::bigint[]) "
                "AS t (path, turn) JOIN passage n ON n.ws = %s AND n.path = t.path "
                "AND n.mark BETWEEN t.turn - 1 AND t.turn + 1 WHERE n.part < %s AND length(n.vector) = %s",
                (paths, marks, connection.ws, EXCHANGE_PARTS, size),
                binary=True,
            ).fetchall()
        )
        return exchanges_of(sorted(rows, key=lambda row: row[:3]), vector, turns)

    def embed_ahead(self, text: str) -> None:
        if numpy_is_there.is_set():
            self._embedding.of_query(text)

    async def settle(self, paths: Iterable[str], patience: float = SETTLE_SECONDS) -> None:
        wanted = sorted({path for path in paths if is_indexed(path)})
        with move_on_after(patience):
            while wanted:
                rows = await self._rows("SELECT path FROM unindexed WHERE ws = %s AND path = ANY(%s)", wanted)
                wanted = [path for (path,) in rows]
                if wanted:
                    await sleep(0.02)

    async def last_turn(self, session: str) -> int | None:
        rows = await self._rows("SELECT max(mark) FROM passage WHERE ws = %s AND session = %s", session)
        return int(rows[0][0] or 0)

    async def data_version(self) -> tuple[str, int]:
        rows = await self._rows("SELECT value FROM counter WHERE ws = %s AND name = 'index'")
        return "1", int(rows[0][0]) if rows else 0

    async def status(self) -> IndexStatus:
        def ask(connection: Connection) -> IndexStatus:
            row = connection.execute(
                "SELECT (SELECT count(*) FROM indexed_file WHERE ws = %(ws)s), "
                "(SELECT coalesce(sum(passages), 0) FROM totals WHERE ws = %(ws)s), "
                "(SELECT count(*) FROM passage WHERE ws = %(ws)s AND vector IS NULL), "
                "(SELECT count(*) FROM unindexed WHERE ws = %(ws)s), "
                "(SELECT coalesce(sum(length(text) + length(stems) + coalesce(length(vector), 0)), 0) "
                "FROM passage WHERE ws = %(ws)s), current_setting('server_version'), "
                "(SELECT extversion FROM pg_extension WHERE extname = 'vector')",
                {"ws": connection.ws},
            ).fetchone()
            assert row is not None
            files, passages, waiting, unindexed, size, server, vector = row
            problems = connection.rows(
                "SELECT problem FROM indexed_file WHERE ws = %s AND problem IS NOT NULL ORDER BY path"
            )
            _, problem = self._usable(connection)
            messages = [*self._embedding.messages(), *([problem] if problem else [])]
            without = int(waiting) if self._embedding.dimensions else 0
            if without and self._embedding.embedder is not None:
                messages.append(f"{without} passages are not embedded yet: they are found by keywords only")
            return IndexStatus(
                state="building" if self._building or unindexed else "ready",
                generation="1",
                embedder=self._embedding.name,
                vectors="none" if self._embedding.name == "none" else f"pgvector {vector}",
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
        rows = await self._rows(
            "SELECT f.path FROM indexed_file f WHERE f.ws = %s AND NOT EXISTS (SELECT 1 FROM unindexed u "
            "WHERE u.ws = f.ws AND u.path = f.path) ORDER BY random() LIMIT %s",
            files,
        )

        def compare(path: str) -> bool:
            found = self._read(path, None)[2]
            expected = {(row.mark, row.passage.part, row.digest) for row in plan(found, {}).rows}
            stored = self._database.rows("SELECT mark, part, digest FROM passage WHERE ws = %s AND path = %s", path)
            return {(mark, part, bytes(digest)) for mark, part, digest in stored} == expected

        differing = [path for (path,) in rows if not await run_sync(compare, path)]
        return len(rows), tuple(differing)
