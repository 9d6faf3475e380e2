"""The statements of a search that only PostgreSQL has.

Words fetch by postings (`postings`), meaning by an exact scan of narrow vectors. The candidates are those of the
embedded engine, with the same raw values: `storage.index.searching`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp_server.storage.index.scoring import ENOUGH, Fetching, QueryPlan, Scope, in_bytes
from mcp_server.storage.index.searching import FIRST_FETCH, SLACK, Searching
from mcp_server.storage.postgres import postings
from mcp_server.storage.postgres.database import Connection
from mcp_server.storage.postgres.postings import LINES, SAID
from mcp_server.storage.postgres.state import WS
from mcp_server.storage.sqlite import Stems
from mcp_server.storage.state import Dialect
from mcp_server.storage.values import IndexQuery
from mcp_server.text.entries import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COLUMNS: str = (
    "m.id, m.path, m.mark, m.part, m.ordinal, m.first_line, m.last_line, m.text, m.title, m.category, m.project, "
    "m.session, m.turn, m.turn_id, m.role, m.speaker, m.at, "
    "m.chars, m.tells_time, m.first_person, m.ends_with_question, m.stems, m.vector, m.about"
)
"""The columns of a passage in the order that `score` and `passage_of` expect."""


LARGE_SHARE = 0.1
"""If a scope has at least this share of all passages, the nearest of all passages are filtered. Otherwise only vectors
of the scope are compared, which is faster for a project with a sixteenth of 100,000 passages (2026-11-23)."""


class Names(dict[Any, str]):
    """The names in rows of passages: here rows have the names themselves, not their numbers."""

    def __missing__(self, name: str) -> str:
        return name


NAMES = Names()


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
    """A search in one transaction. `compared` is how many numbers of a vector the narrow vectors have."""

    dialect = POSTGRES

    def __init__(self, connection: Connection, stems: Stems, query: IndexQuery, compared: int) -> None:
        super().__init__(connection, NAMES, stems, query)
        self.execute, self.compared = partial(connection.execute, binary=True), compared

    def numbers(self, names: Sequence[str]) -> dict[str, str]:
        return dict(zip(names, names, strict=True))

    def learn(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Does nothing, because rows have the names themselves."""

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
            # As the embedded engine does: first the nearest passages of the projects without the session.
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
        """Returns the nearest of all passages."""
        rows = self.connection.rows(
            "SELECT v.id FROM passage_vector v WHERE v.ws = %s AND v.kind <= %s "
            "ORDER BY v.vector <-> %s::halfvec, v.id LIMIT %s",
            *(int(scope.lines), literal, wanted),
        )
        return [number for (number,) in rows]

    def _nearest_with(
        self, condition: str, values: Sequence[Any], share: float, scope: Scope, literal: str
    ) -> list[int]:
        """Returns the nearest passages that fulfill a condition. `share` is about the share of all that do so."""
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


def as_vector(numbers: Sequence[int]) -> str:
    """Returns a vector as pgvector reads it."""
    return f"[{','.join(map(str, numbers))}]"
