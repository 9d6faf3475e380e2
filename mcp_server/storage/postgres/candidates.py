"""Searches the index in PostgreSQL: the same candidates, with the same raw values, as the embedded engine finds.

Words fetch by postings (`postings`), meaning by an exact scan of narrow vectors. All candidates are then scored by
every word and by the exact cosine (`storage.index.scoring`), however they were found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

from mcp_server.model import GLOBAL
from mcp_server.search.query import read_query
from mcp_server.storage.index import scoring
from mcp_server.storage.index.scoring import (
    FILLING_PARTS,
    FIRST_FETCH,
    SLACK,
    SMALL_SCOPE,
    Found,
    QueryPlan,
    SmallScope,
    attach_lines,
    best_rows,
    planned,
    score,
)
from mcp_server.storage.index.vectors import ENOUGH, in_bytes
from mcp_server.storage.postgres import postings
from mcp_server.storage.postgres.database import Connection
from mcp_server.storage.postgres.postings import LINES, SAID
from mcp_server.storage.values import Depth, Filters
from mcp_server.text.entries import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mcp_server.storage.sqlite import Stems

COLUMNS: str = (
    "m.id, m.path, m.mark, m.part, m.ordinal, m.first_line, m.last_line, m.text, m.title, m.category, m.project, "
    "m.session, m.turn, m.turn_id, m.role, m.speaker, m.at, "
    "m.chars, m.tells_time, m.first_person, m.ends_with_question, m.stems, m.vector"
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


class Scope(scoring.Scope):
    """Filters as SQL. `condition` is about a row `m` of `passage`."""

    @property
    def kinds(self) -> list[int]:
        """Returns the kinds of passages that are counted and searched by meaning."""
        return [SAID, LINES] if self.lines else [SAID]


@dataclass(slots=True)
class Searching:
    """A search in one transaction. `vector` is the query's, None without one; `compared` is how many of its numbers the
    narrow vectors have."""

    connection: Connection
    stems: Stems
    text: str
    filters: Filters
    depth: Depth
    vector: NDArray[np.float32] | None
    compared: int

    def candidates(self, mode: str) -> tuple[QueryPlan, list[Found]]:
        """Returns the plan of the query, and the candidates."""
        scope = self.scope()
        plan, wanted = self._plan(scope)
        ids = self._by_words(plan, wanted, scope) if mode != "vector" else []
        rows = {row[0]: row for row in self._fetched(ids)}
        by_meaning = self._by_meaning(plan, scope) if self.vector is not None else []

        def scored(rows: Sequence[tuple[Any, ...]]) -> list[Found]:
            return score(plan, rows, NAMES, self.vector)

        more = self._fetched([number for number in by_meaning if number not in rows])
        found = scored(sorted((*rows.values(), *more), key=itemgetter(0)))
        of = self._sources(found, scope)
        held = {one.row_id for one in found}
        if scope.lines:
            found += scored(self._fetched([number for number in of.values() if number not in held]))
        found = attach_lines(found, of)
        if mode == "hybrid":
            found += scored(self._fetched(self._neighbors(plan, found, scope)))
        return plan, found

    # ---------------------------------------------------------------- filters

    def scope(self) -> Scope:
        """Returns the filters as SQL."""
        filters = self.filters
        where: list[str] = []
        values: list[Any] = []
        since, until = (moment and moment.timestamp() for moment in (filters.since, filters.until))
        for condition, value in (
            ("m.session = %s", filters.session),
            ("m.category = %s", filters.category),
            ("m.speaker = %s", filters.speaker),
            ("coalesce(m.at, m.file_at) >= %s", since),
            ("coalesce(m.at, m.file_at) < %s", until),
        ):
            if value is not None:
                where.append(condition)
                values.append(value)
        for wanted, sequences in (("IN", filters.phrases), ("NOT IN", filters.excluded)):
            for sequence in sequences:
                where.append(f"(m.path, m.mark) {wanted} (SELECT * FROM unnest(%s::text[], %s::bigint[]))")
                values += self._units_with(sequence)
        other = bool(where)
        projects = None if filters.projects is None else tuple(sorted(filters.projects | {GLOBAL}))
        if projects is not None and not self._covers_all(projects):
            where.append("m.project = ANY(%s)")
            values.append(list(projects))
        else:
            projects = None
        without = filters.exclude_session
        if without and filters.exclude_from is not None:
            where.append("(m.session <> %s OR m.mark < %s)")
            values += [without, filters.exclude_from]
            without, other = None, True
        elif without:
            where.append("m.session <> %s")
            values.append(without)
        lines = filters.category not in (None, "conversation")
        joined: str = " AND ".join(where) or "true"
        return Scope(joined, tuple(values), projects, without or None, other, not where, lines)

    def _covers_all(self, projects: Sequence[str]) -> bool:
        return not self.connection.rows(
            "SELECT 1 FROM speaker WHERE ws = %s AND project <> ALL(%s) LIMIT 1", list(projects)
        )

    def _units_with(self, sequence: Sequence[str]) -> list[list[Any]]:
        """Returns paths and marks of the units with a sequence of words in one of their passages."""
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
        return [paths, marks]

    def _inside(self, ids: Sequence[int], scope: Scope) -> list[int]:
        """Returns those of these passages that are in the scope, in the same order."""
        return list(ids) if scope.everything else self._fulfilling(ids, scope.condition, scope.values)

    def _fulfilling(self, ids: Sequence[int], condition: str, values: Sequence[Any]) -> list[int]:
        """Returns those of these passages that fulfill a condition, in the same order."""
        if not ids:
            return []
        rows = self.connection.rows(
            f"SELECT m.id FROM passage m WHERE m.ws = %s AND m.id = ANY(%s) AND {condition}", list(ids), *values
        )
        kept = {number for (number,) in rows}
        return [number for number in ids if number in kept]

    # ---------------------------------------------------------------- words

    def _plan(self, scope: Scope) -> tuple[QueryPlan, dict[int, list[tuple[int, int]]]]:
        """Returns the plan, and for each kind the stems that fetch with their frequencies among its passages, as BM25
        counts them there."""
        asked = read_query(self.text, self._speakers(scope.projects))
        numbers = tuple(self.stems.numbers(asked.lookup))
        said, lines = (self._documents(kind, numbers) for kind in (SAID, LINES))
        totals = {
            kind: (passages, words)
            for kind, passages, words in self.connection.rows("SELECT kind, passages, words FROM totals WHERE ws = %s")
        }
        all_passages, total_words = totals.get(SAID, (0, 0))
        line_passages, line_words = totals.get(LINES, (0, 0))
        everywhere = said
        if scope.lines:
            everywhere = tuple(map(add, said, lines))
            all_passages, total_words = all_passages + line_passages, total_words + line_words
        passages = all_passages if scope.everything else self._count(scope, all_passages)
        small = self._small(scope) if not (scope.everything or scope.lines) and passages <= SMALL_SCOPE else None

        def counted(place: int) -> int:
            return self._counted(numbers[place], scope)

        whole, budget = (all_passages, total_words), self.depth.postings
        plan = planned(asked, numbers, everywhere, whole, scope, passages, small, counted, budget)
        among, among_lines = (dict(zip(numbers, known, strict=True)) for known in (said, lines))
        fetching = [(one.stem, among[one.stem]) for one in plan.fetching]
        of_lines = [(one.stem, among_lines[one.stem]) for one in (*plan.fetching, *plan.of_lines)]
        return plan, {SAID: fetching, LINES: of_lines if line_passages else []}

    def _speakers(self, projects: tuple[str, ...] | None) -> list[str]:
        where, values = ("", []) if projects is None else (" AND project = ANY(%s)", [list(projects)])
        rows = self.connection.rows(
            f"SELECT DISTINCT speaker FROM speaker WHERE ws = %s AND speaker <> ''{where} ORDER BY 1", *values
        )
        return [name for (name,) in rows]

    def _documents(self, kind: int, numbers: Sequence[int]) -> tuple[int, ...]:
        rows = self.connection.rows(
            "SELECT stem, df FROM term WHERE ws = %s AND kind = %s AND stem = ANY(%s)", kind, sorted(set(numbers))
        )
        known = dict(rows)
        return tuple(int(known.get(number, 0)) for number in numbers)

    def _count(self, scope: Scope, all_passages: int) -> int:
        """Returns the number of passages in a scope."""
        if scope.other:
            rows = self.connection.rows(
                f"SELECT count(*) FROM passage m WHERE m.ws = %s AND m.kind = ANY(%s) AND {scope.condition}",
                scope.kinds,
                *scope.values,
            )
            return int(rows[0][0])
        counted = all_passages
        if scope.projects is not None:
            rows = self.connection.rows(
                "SELECT coalesce(sum(passages), 0) FROM speaker WHERE ws = %s AND project = ANY(%s) AND kind = ANY(%s)",
                list(scope.projects),
                scope.kinds,
            )
            counted = int(rows[0][0])
        if scope.without_session is not None:
            rows = self.connection.rows(
                "SELECT count(*) FROM passage WHERE ws = %s AND session = %s", scope.without_session
            )
            counted -= int(rows[0][0])
        return max(0, counted)

    def _small(self, scope: Scope) -> SmallScope:
        select = f"SELECT m.id, m.stems FROM passage m WHERE m.ws = %s AND m.kind = {SAID} AND {scope.condition}"
        return SmallScope.of(self.connection.rows(f"{select} ORDER BY m.id", *scope.values))

    def _counted(self, number: int, scope: Scope) -> int:
        """Returns the number of passages of the scope that contain a word."""
        ids: list[int] = []
        for kind in scope.kinds:
            listed = postings.load(self.connection, kind, [number])
            ids += listed[number].ids.tolist() if number in listed else []
        return len(self._inside(ids, scope))

    def _by_words(self, plan: QueryPlan, wanted: Mapping[int, list[tuple[int, int]]], scope: Scope) -> list[int]:
        """Returns the ids of the passages of the scope that match the fetching words best, then of derived lines."""
        if plan.small is not None:
            found = plan.small.best(plan.fetching, plan.all_passages, plan.mean_words, self.depth.words)
        else:
            found = self._matching(SAID, wanted[SAID], self.depth.words, plan, scope)
        most_lines = self.depth.words if scope.lines else self.depth.lines
        return found + self._matching(LINES, wanted[LINES], most_lines, plan, scope)

    def _matching(
        self, kind: int, words: Sequence[tuple[int, int]], wanted: int, plan: QueryPlan, scope: Scope
    ) -> list[int]:
        """Returns the best matching passages of the scope, at most `wanted`."""
        if not words:
            return []
        listed = postings.load(self.connection, kind, [stem for stem, _ in words])
        of_kind = "SELECT passages, words FROM totals WHERE ws = %s AND kind = %s"
        passages, total = self.connection.row(of_kind, kind) or (0, 0)
        ordered = postings.best(listed, words, passages, total / passages if passages else 1.0).tolist()
        share = plan.passages / plan.all_passages if plan.all_passages else 1.0
        likely = wanted if scope.everything else int(SLACK * wanted / max(share, 0.01))
        for most in (likely, FIRST_FETCH, len(ordered)):
            kept = self._inside(ordered[:most], scope)
            if len(kept) >= wanted or most >= len(ordered):
                return kept[:wanted]
        return []

    # ---------------------------------------------------------------- meaning

    def _by_meaning(self, plan: QueryPlan, scope: Scope) -> list[int]:
        """Returns the passages of the scope nearest to the query, nearest first, by the narrow vectors."""
        assert self.vector is not None
        (narrow,) = in_bytes(self.vector.astype("<f2").reshape(1, -1), self.compared)
        literal = as_vector(narrow.tolist())
        if scope.everything:
            return self._nearest(self.depth.meaning, scope, literal)
        every = max(1, plan.all_passages)
        if scope.other and not self._is_small(scope):
            # As the embedded engine does: first those that a project and a session leave.
            where, values = list[str](), list[Any]()
            if scope.projects is not None:
                where.append("m.project = ANY(%s)")
                values.append(list(scope.projects))
            if scope.without_session is not None:
                where.append("m.session <> %s")
                values.append(scope.without_session)
            if where:
                share = self._count(replace(scope, other=False), every) / every
                found = self._nearest_with(" AND ".join(where), values, share, scope, literal)
            else:
                found = self._nearest(self.depth.meaning, scope, literal)
            kept = self._inside(found, scope)
            if len(found) < self.depth.meaning or len(kept) >= ENOUGH * self.depth.meaning:
                return kept
        return self._nearest_with(scope.condition, scope.values, plan.passages / every, scope, literal)

    def _nearest(self, wanted: int, scope: Scope, literal: str) -> list[int]:
        """Returns the nearest of all passages."""
        rows = self.connection.rows(
            "SELECT v.id FROM passage_vector v WHERE v.ws = %s AND v.kind = ANY(%s) "
            "ORDER BY v.vector <-> %s::halfvec, v.id LIMIT %s",
            scope.kinds,
            literal,
            wanted,
        )
        return [number for (number,) in rows]

    def _nearest_with(
        self, condition: str, values: Sequence[Any], share: float, scope: Scope, literal: str
    ) -> list[int]:
        """Returns the nearest passages that fulfill a condition. `share` is about the share of all that do so."""
        wanted = self.depth.meaning
        if share >= LARGE_SHARE:
            found = self._nearest(int(SLACK * wanted / share), scope, literal)
            kept = self._fulfilling(found, condition, values)
            if len(kept) >= wanted:
                return kept[:wanted]
        # Materialized, because PostgreSQL may otherwise sort the vectors of all passages before it filters them.
        rows = self.connection.execute(
            "WITH near AS MATERIALIZED (SELECT v.id, v.vector <-> %s::halfvec AS distance FROM passage_vector v "
            "JOIN passage m ON m.ws = v.ws AND m.id = v.id "
            f"WHERE v.ws = %s AND v.kind = ANY(%s) AND {condition}) "
            "SELECT id FROM near ORDER BY distance, id LIMIT %s",
            (literal, self.connection.ws, scope.kinds, *values, wanted),
            binary=True,
        ).fetchall()
        return [number for (number,) in rows]

    def _is_small(self, scope: Scope) -> bool:
        """Returns whether a scope has at most SMALL_SCOPE passages, without counting more."""
        rows = self.connection.rows(
            "SELECT count(*) FROM (SELECT 1 FROM passage m WHERE m.ws = %s AND m.kind = ANY(%s) "
            f"AND {scope.condition} LIMIT %s) AS counted",
            scope.kinds,
            *scope.values,
            SMALL_SCOPE + 1,
        )
        return int(rows[0][0]) <= SMALL_SCOPE

    # ---------------------------------------------------------------- around

    def _sources(self, found: Sequence[Found], scope: Scope) -> dict[Source, int]:
        """Returns the passages of the turns that derived lines among `found` come from, if they are in the scope."""
        wanted = sorted({source for one in found for source in one.sources[:1]}, key=lambda one: (one.path, one.turn))
        if not wanted:
            return {}
        rows = self.connection.rows(
            "SELECT m.path, m.mark, m.id FROM passage m WHERE m.ws = %s AND m.part = 0 AND "
            "(m.path, m.mark) IN (SELECT * FROM unnest(%s::text[], %s::bigint[]))",
            [one.path for one in wanted],
            [one.turn for one in wanted],
        )
        kept = set(self._inside([number for *_, number in rows], scope))
        return {Source(path, turn): number for path, turn, number in rows if number in kept}

    def _neighbors(self, plan: QueryPlan, found: Sequence[Found], scope: Scope) -> list[int]:
        """Returns the passages of the turns next to the best units, at most two turns away, if not found yet."""
        rows = self.connection.rows(
            "SELECT DISTINCT n.id FROM passage b JOIN passage n ON n.ws = b.ws AND n.path = b.path "
            "AND n.mark BETWEEN b.mark - 2 AND b.mark + 2 "
            "WHERE b.ws = %s AND b.id = ANY(%s) AND n.mark <> b.mark AND n.session = b.session AND n.part < %s "
            "ORDER BY n.id",
            best_rows(plan, found, self.depth.around),
            FILLING_PARTS,
        )
        known = {one.row_id for one in found}
        return self._inside([number for (number,) in rows if number not in known], scope)

    def _fetched(self, ids: Sequence[int]) -> list[tuple[Any, ...]]:
        """Returns the rows of these passages, ordered by id; deleted ones are left out."""
        if not ids:
            return []
        return self.connection.rows(
            f"SELECT {COLUMNS} FROM passage m WHERE m.ws = %s AND m.id = ANY(%s) ORDER BY m.id", sorted(set(ids))
        )


def as_vector(numbers: Sequence[int]) -> str:
    """Returns a vector as pgvector reads it."""
    return f"[{','.join(map(str, numbers))}]"
