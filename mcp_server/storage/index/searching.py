"""A search in an index: the filters as SQL, the words that fetch passages, and the candidates with their raw values.

SQLite and PostgreSQL run the statements below. Names in braces stand for the parts in which their SQL differs: see
`Searching`. A small scope (a conversation, a new project) is read as a whole and its words are counted directly, which
is faster than the keyword index of all passages. The result is the same, because BM25 is computed by FTS5's formula.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any

from mcp_server.model import GLOBAL
from mcp_server.search.query import read_query, weigh
from mcp_server.storage.index.scoring import (
    Fetching,
    Found,
    QueryPlan,
    Scope,
    SmallScope,
    attach_lines,
    best_rows,
    score,
)
from mcp_server.storage.sqlite import Stems
from mcp_server.storage.state import Dialect
from mcp_server.storage.values import IndexQuery
from mcp_server.text.entries import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32] | None
    Near = tuple[Vector, list[int]]
    """The query's vector by the embedder (None without one), and the nearest passages, nearest first."""

SMALL_SCOPE = 1_000
"""Scopes with at most this many passages are read as a whole, in a few milliseconds. From about 3,000 passages on, the
tables of the keyword index are faster."""

FETCHING_WORDS = 32
"""Most words that fetch passages, and most words that fetch only derived lines."""

COUNTED = 5_000
"""A word in at most this many passages is counted within the scope. The frequency of a more common word is estimated
from the scope's share of all passages."""

FIRST_FETCH = 1_000
"""Passages that are fetched before the scope is applied. If too few of them are in the scope, all matching passages are
compared with it."""

SLACK = 1.5
"""Factor on the number of passages that are fetched first, because passages outside of the scope may match better."""

FILLING_PARTS = 8
"""Most parts of a neighbor that become candidates: a turn of some megabytes has thousands of parts."""


class Searching(ABC):
    """A search in one transaction. `names` maps names as they are in rows to their text.

    The parts of `dialect` are the tables `meta` (a row `m` for each passage) and `speaker`, and:

    `here`      begins a condition: only rows of this workspace
    `among`     ends a condition: in a list
    `derived`   the column of `meta` that is 0 for a passage and 1 for a derived line
    `at`        the time of a passage `m` in seconds since 1970
    `file`      the column of `meta` that names a file, `same_file` says that `n` and `m` have the same one
    `stored`    the table `m` with the columns `stems` and `vector`; with `files` it has all `columns`
    `speakers`  begins a query for names of speakers, `of_speakers` one for their number of passages
    `totals`    the query for four numbers: the index's passages and their words, its derived lines and their words
    """

    dialect: Dialect

    def __init__(self, connection: Any, names: dict[Any, str], stems: Stems, query: IndexQuery) -> None:
        self.connection, self.names, self.stems = connection, names, stems
        self.query, self.depth = query, query.depth
        self.execute: Callable[[str, list[object]], Any] = connection.execute

    def candidates(
        self, near: Callable[[QueryPlan, Scope], Near], about: Callable[[], Vector]
    ) -> tuple[QueryPlan, Vector, list[Found]]:
        """Returns the plan of the query, its vector, and the candidates. `near` finds passages by meaning. `about`
        returns the query's vector by the recognizer's network; it is called as late as possible."""
        mode, scope = self.query.mode, self.scope()
        plan = self._plan(scope)
        if scope.lines and not plan.passages:  # an empty page
            return plan, near(plan, scope)[0], []
        ids = self._by_words(plan, scope) if mode != "vector" else []
        rows = self.fetched(ids)
        vector, by_meaning = near(plan, scope)

        def scored(rows: Sequence[tuple[Any, ...]]) -> list[Found]:
            if not rows:
                return []
            self.learn(rows)
            return score(plan, rows, self.names, vector, None if vector is None else about())

        held = {row[0] for row in rows}
        rows += self.fetched([number for number in by_meaning if number not in held])
        found = scored(sorted(rows, key=itemgetter(0)))
        of = self._sources(found, scope)
        if scope.lines:
            held = {row[0] for row in rows}
            found += scored(self.fetched([number for number in of.values() if number not in held]))
        found = attach_lines(found, of)
        if mode == "hybrid":
            found += scored(self.fetched(self._neighbors(plan, found, scope)))
        return plan, vector, found

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Returns the rows of a query. Lists are for `among`."""
        bound = [self.dialect.array(one) if isinstance(one, list) else one for one in values]
        found: list[tuple[Any, ...]] = self.execute(self.dialect.statement(statement), bound).fetchall()
        return found

    def ids(self, statement: str, *values: object) -> list[int]:
        """Returns the first value of each row of a query."""
        return [row[0] for row in self.rows(statement, *values)]

    def fetched(self, ids: Sequence[int]) -> list[tuple[Any, ...]]:
        """Returns the rows of these passages, ordered by id; deleted ones are left out."""
        select = "SELECT {columns} FROM {stored}{files} WHERE {here}m.id {among} ORDER BY m.id"
        return self.rows(select, sorted(set(ids))) if ids else []

    # ---------------------------------------------------------------- the engine's own statements

    @abstractmethod
    def numbers(self, names: Sequence[str]) -> dict[str, Any]:
        """Returns how rows store these names of projects, sessions, categories and speakers. Names that no row has may
        be left out."""

    @abstractmethod
    def learn(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Adds the names in these rows to `names`."""

    @abstractmethod
    def units_with(self, sequence: Sequence[str]) -> tuple[str, list[Any]]:
        """Returns a query for file and mark of all units with a sequence of words, and the query's values."""

    @abstractmethod
    def documents(self, words: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns for each word how many passages of the index, and how many derived lines, contain it."""

    @abstractmethod
    def holding(self, words: Sequence[str], scope: Scope) -> list[int]:
        """Returns for each word how many passages of the scope contain it."""

    @abstractmethod
    def matching(self, words: Sequence[Fetching], wanted: int, first: int, scope: Scope, *, lines: bool) -> list[int]:
        """Returns the passages of the scope, or its derived `lines`, that match best, at most `wanted`. The `first`
        best ones of the index probably include them."""

    @abstractmethod
    def turns(self, sources: Sequence[Source]) -> list[tuple[Any, ...]]:
        """Returns path, turn and number of the first passage of each of these turns."""

    # ---------------------------------------------------------------- filters

    def scope(self) -> Scope:
        """Returns the filters as SQL. A name that the index does not know matches nothing."""
        filters = self.query.filters
        named = (filters.session, filters.category, filters.speaker, filters.exclude_session)
        numbers = self.numbers([GLOBAL, *(filters.projects or ()), *(name for name in named if name is not None)])
        where: list[str] = []
        values: list[Any] = []

        def require(condition: str, *bound: Any) -> None:
            where.append(condition)
            values.extend(bound)

        for column in ("session", "category", "speaker"):
            if (name := getattr(filters, column)) is not None:
                require(f"m.{column} = ?", numbers.get(name))
        for comparison, moment in ((">=", filters.since), ("<", filters.until)):
            if moment is not None:
                require(f"{{at}} {comparison} ?", moment.timestamp())
        for wanted, sequences in (("IN", filters.phrases), ("NOT IN", filters.excluded)):
            for sequence in sequences:
                units, bound = self.units_with(sequence)
                require(f"(m.{{file}}, m.mark) {wanted} ({units})", *bound)
        other = bool(where)
        projects = None
        if filters.projects is not None:
            projects = [numbers[name] for name in sorted(filters.projects | {GLOBAL}) if name in numbers]
            if self.rows("SELECT 1 FROM {speaker} m WHERE {here}NOT m.project {among} LIMIT 1", projects):
                require("m.project {among}", projects)
            else:  # they are all projects of the index
                projects = None
        without = numbers.get(filters.exclude_session) if filters.exclude_session else None
        if without is not None and filters.exclude_from is not None:
            require("(m.session <> ? OR m.mark < ?)", without, filters.exclude_from)
            without, other = None, True  # vectors have no turns; the condition filters what they find
        elif without is not None:
            require("m.session <> ?", without)
        lines = filters.category not in (None, "conversation")
        return Scope(" AND ".join(where) or "true", tuple(values), projects, without, other, not where, lines)

    def inside(self, ids: Sequence[int], scope: Scope) -> list[int]:
        """Returns the ids of the passages that are in the scope, in the same order."""
        return list(ids) if scope.everything else self.fulfilling(ids, scope.condition, scope.values)

    def fulfilling(self, ids: Sequence[int], condition: str, values: Sequence[Any]) -> list[int]:
        """Returns the ids of the passages that fulfill a condition, in the same order."""
        if not ids:
            return []
        select = f"SELECT m.id FROM {{meta}} m WHERE {{here}}m.id {{among}} AND {condition}"
        kept = set(self.ids(select, list(ids), *values))
        return [number for number in ids if number in kept]

    def is_small(self, scope: Scope) -> bool:
        """Returns whether a scope has at most SMALL_SCOPE passages, without counting more."""
        if scope.everything:
            return False
        inside = f"SELECT 1 FROM {{meta}} m WHERE {{here}}m.{{derived}} <= ? AND {scope.condition} LIMIT ?"
        select = f"SELECT count(*) FROM ({inside}) AS counted"
        return self.ids(select, int(scope.lines), *scope.values, SMALL_SCOPE + 1)[0] <= SMALL_SCOPE

    def stored(self, scope: Scope, column: str) -> list[tuple[int, bytes]]:
        """Returns id and `stems` or `vector` of every passage of a scope, ordered by id."""
        inside = f"{{here}}m.{{derived}} <= ? AND {scope.condition}"
        select = f"SELECT m.id, {column} FROM {{stored}} WHERE {inside} ORDER BY m.id"
        return [(number, value) for number, value in self.rows(select, int(scope.lines), *scope.values)]

    def count(self, scope: Scope, all_passages: int) -> int:
        """Returns the number of passages in a scope."""
        lines = int(scope.lines)
        if scope.other:
            select = f"SELECT count(*) FROM {{meta}} m WHERE {{here}}m.{{derived}} <= ? AND {scope.condition}"
            return int(self.ids(select, lines, *scope.values)[0])
        counted = all_passages
        if scope.projects is not None:
            counted = int(self.ids("{of_speakers} AND m.project {among}", lines, scope.projects)[0])
        if scope.without_session is not None:
            own = "SELECT count(*) FROM {meta} m WHERE {here}m.session = ?"
            counted -= int(self.ids(own, scope.without_session)[0])
        return max(0, counted)

    # ---------------------------------------------------------------- words

    def _plan(self, scope: Scope) -> QueryPlan:
        projects = [] if scope.projects is None else [scope.projects]
        select = f"{{speakers}}{' AND m.project {among}' if projects else ''} ORDER BY 1"
        asked = read_query(self.query.text, tuple(name for (name,) in self.rows(select, *projects)))
        everywhere, of_lines = self.documents(asked.lookup)
        all_passages, all_words, lines, line_words = self.rows("{totals}")[0]
        if scope.lines:
            everywhere = tuple(map(add, everywhere, of_lines))
            all_passages, all_words = all_passages + lines, all_words + line_words
        passages = all_passages if scope.everything else self.count(scope, all_passages)
        small = None
        if not scope.everything and passages <= SMALL_SCOPE:
            small = SmallScope.of(self.stored(scope, "stems"))

        stems = tuple(self.stems.numbers(asked.lookup))
        frequencies = list(everywhere)
        if not scope.everything:
            frequencies = [max(1, round(known * passages / all_passages)) if known else 0 for known in everywhere]
            rare = [place for place, known in enumerate(everywhere) if 0 < known <= COUNTED]
            words_of, stems_of = [asked.lookup[place] for place in rare], [stems[place] for place in rare]
            held = small.holding(stems_of) if small else self.holding(words_of, scope)
            for place, number in zip(rare, held, strict=True):
                frequencies[place] = number
        words = [Fetching(*word) for word in zip(asked.words, stems, everywhere, strict=False)]
        return QueryPlan(
            asked=weigh(asked, frequencies, passages),
            numbers=stems,
            frequencies=tuple(frequencies),
            passages=passages,
            everywhere=everywhere,
            all_passages=all_passages,
            mean_words=all_words / all_passages if all_passages else 1.0,
            fetching=self._fetching(words),
            of_lines=tuple(sorted(word for word in words if not word.frequency)[:FETCHING_WORDS]),
            small=None if scope.lines else small,  # the lines have a keyword index of their own
        )

    def _fetching(self, words: Sequence[Fetching]) -> tuple[Fetching, ...]:
        """Returns the words that fetch passages: the rarest one always, then the next ones, while all together occur in
        at most `depth.postings` passages."""
        found: list[Fetching] = []
        postings = self.depth.postings
        for word in sorted(words, key=lambda word: (word.frequency, word)):
            if word.frequency and (not found or word.frequency <= postings) and len(found) < FETCHING_WORDS:
                found.append(word)
                postings -= word.frequency
        return tuple(found)

    def _by_words(self, plan: QueryPlan, scope: Scope) -> list[int]:
        """Returns the passages of the scope that match the fetching words best, then derived lines."""
        depth = self.depth
        share = plan.passages / plan.all_passages if plan.all_passages else 1.0
        slack = 1.0 if scope.everything else SLACK / max(share, 0.01)
        if plan.small is not None:
            found = plan.small.best(plan.fetching, plan.all_passages, plan.mean_words, depth.words)
        else:
            found = self.matching(plan.fetching, depth.words, int(slack * depth.words), scope, lines=False)
        words, most = (*plan.fetching, *plan.of_lines), depth.words if scope.lines else depth.lines
        return found + self.matching(words, most, int(slack * most), scope, lines=True)

    # ---------------------------------------------------------------- turns around candidates

    def _sources(self, found: Sequence[Found], scope: Scope) -> dict[Source, int]:
        """Returns the passages of the turns that derived lines among `found` come from, if they are in the scope."""
        wanted = {source for one in found for source in one.sources[:1]}
        rows = self.turns(sorted(wanted, key=lambda one: (one.path, one.turn))) if wanted else []
        kept = set(self.inside([number for *_, number in rows], scope))
        return {Source(path, turn): number for path, turn, number in rows if number in kept}

    def _neighbors(self, plan: QueryPlan, found: Sequence[Found], scope: Scope) -> list[int]:
        """Returns the passages of the turns next to the best units, at most two turns away, if not found yet.

        An answer often has no word of the question, but a turn next to it does: without these passages, 7% of the turns
        that answer a question are not candidates (`benchmarks retrieval`).
        """
        known = {one.row_id for one in found}
        near = self.ids(
            "SELECT DISTINCT n.id FROM {meta} m CROSS JOIN {meta} n WHERE {here}m.id {among} AND {same_file} "
            "AND n.mark BETWEEN m.mark - 2 AND m.mark + 2 AND n.mark <> m.mark AND n.session = m.session "
            "AND n.part < ? ORDER BY n.id",
            *(best_rows(plan, found, self.depth.around), FILLING_PARTS),
        )
        return self.inside([number for number in near if number not in known], scope)
