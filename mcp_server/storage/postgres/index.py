"""Searches of a team's workspace, and what the index holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from anyio import move_on_after, sleep
from anyio.to_thread import run_sync

from mcp_server.model import Exchange
from mcp_server.storage.index.file_reader import plan
from mcp_server.storage.index.scoring import EXCHANGE_PARTS, as_candidates, exchanges_of, import_numpy, numpy_is_there
from mcp_server.storage.postgres.database import Connection
from mcp_server.storage.postgres.indexing import Indexing
from mcp_server.storage.postgres.searching import TeamSearching
from mcp_server.storage.values import (
    Candidates,
    IndexQuery,
    IndexStatus,
    TurnsNear,
    is_indexed,
)
from mcp_server.text.entries import Source
from mcp_server.understanding.encoder import vector_of_query

if TYPE_CHECKING:
    from mcp_server.storage.index.scoring import QueryPlan, Scope
    from mcp_server.storage.index.searching import Near


T = TypeVar("T")

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
