"""Query plans: the words of a query as the index sees them, and the passages that they fetch.

A small scope (a conversation, a young project) is read whole: its words are counted directly, which is faster than the
tables for the whole index. The result is the same, because BM25 is computed by FTS5's formula.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_server.storage.local.index.scope import SMALL_SCOPE, Scope, rows_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


import json
from operator import add

from mcp_server.search.query import Query, read_query, weigh
from mcp_server.storage.local.index.connection import Stems
from mcp_server.storage.local.index.scope import count, in_scope
from mcp_server.storage.values import Depth

K1, B = 1.2, 0.75
"""BM25's constants, as in FTS5."""


@dataclass(frozen=True, slots=True)
class SmallScope:
    """The words of all passages of a small scope: `stems` of one passage after the other; `owner` is the place in `ids`
    of the passage that each stem belongs to."""

    ids: NDArray[np.int64]
    stems: NDArray[np.uint32]
    owner: NDArray[np.intp]
    lengths: NDArray[np.intp]

    @classmethod
    def read(cls, connection: sqlite3.Connection, scope: Scope) -> SmallScope:
        """Reads the words of a scope, ordered by passage id."""
        import numpy as np

        rows = rows_in(connection, scope, "stems")
        lengths = np.array([len(stems) // 4 for _, stems in rows], dtype=np.intp)
        return cls(
            ids=np.array([number for number, _ in rows], dtype=np.int64),
            stems=np.frombuffer(b"".join(stems for _, stems in rows), dtype="<u4"),
            owner=np.repeat(np.arange(len(rows)), lengths),
            lengths=lengths,
        )

    def holding(self, stem: int) -> int:
        """Returns the number of passages that contain a stem."""
        import numpy as np

        return len(np.unique(self.owner[self.stems == stem]))

    def best(self, words: Sequence[tuple[int, int]], passages: int, mean_words: float, most: int) -> list[int]:
        """Returns the ids of the `most` passages that match best. `words` are pairs of a stem and the number of
        passages of the whole index that contain it; `passages` and `mean_words` are those of the whole index."""
        import numpy as np

        total = np.zeros(len(self.ids))
        norm = K1 * (1 - B + B * self.lengths / mean_words)
        for stem, frequency in words:
            times = np.bincount(self.owner[self.stems == stem], minlength=len(self.ids))
            total += idf(passages, frequency) * times * (K1 + 1) / (times + norm)
        order = np.argsort(-total, kind="stable")[:most]
        return [int(number) for number in self.ids[order[total[order] > 0]]]


def idf(passages: int, frequency: int) -> float:
    """Returns a word's inverse document frequency: it is in `frequency` of `passages`."""
    return max(math.log(max((passages - frequency + 0.5) / (frequency + 0.5), 1e-6)), 1e-6)


FETCHING_WORDS = 32

COUNTED = 5_000
"""Words in at most this many passages are counted within the scope; for more common ones the scope's share is used."""

FIRST_FETCH = 1_000
"""Passages that are fetched before the scope is applied; if too few of them are in it, it is joined to the search."""

SLACK = 1.5
"""Factor on the number of passages that are fetched first for a scope, because passages outside of it may match better.
"""


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query as this index understands it. `numbers` are the stems of `asked.lookup`; `fetch` is a MATCH expression,
    "" for none.

    `frequencies` and `passages` are those of the scope; `everywhere`, `all_passages` and `mean_words` those of the
    whole index, which BM25 uses. Derived lines count only if the scope includes them.
    """

    asked: Query
    numbers: tuple[int, ...]
    frequencies: tuple[int, ...]
    passages: int
    everywhere: tuple[int, ...]
    all_passages: int
    mean_words: float
    fetch: str
    fetch_lines: str
    fetching: tuple[tuple[int, int], ...] = ()
    small: SmallScope | None = None
    """The fetching words as stems with their frequencies in the whole index; and the words of the scope if it is small.
    """


def plan_query(connection: sqlite3.Connection, stems: Stems, text: str, scope: Scope, postings: int) -> QueryPlan:
    """Returns the plan of a query: its words, and those that fetch. The rarest word always fetches, then the next ones,
    while all together occur in at most `postings` passages."""
    asked = read_query(text, speakers(connection, scope.projects))
    terms = stems.terms(asked.lookup)
    everywhere = _documents(connection, "knowledge_terms", terms)
    all_passages, total_words, lines, line_words = connection.execute(
        "SELECT passages, words, lines, line_words FROM totals"
    ).fetchone()
    if scope.lines:
        everywhere = tuple(map(add, everywhere, _documents(connection, "lines_terms", terms)))
        all_passages, total_words = all_passages + lines, total_words + line_words
    passages = all_passages if scope.everything else count(connection, scope, all_passages)
    numbers = tuple(stems.numbers(asked.lookup))
    small = (
        SmallScope.read(connection, scope)
        if not (scope.everything or scope.lines) and passages <= SMALL_SCOPE
        else None
    )
    frequencies = everywhere
    if not scope.everything:
        share = passages / all_passages if all_passages else 0.0
        frequencies = tuple(
            small.holding(number)
            if small and 0 < known <= COUNTED
            else _frequency(connection, word, known, share, scope)
            for word, number, known in zip(asked.lookup, numbers, everywhere, strict=True)
        )
    fetching: list[str] = []
    of_lines: list[str] = []  # words that no turn holds, too
    fetching_stems: list[tuple[int, int]] = []
    budget = postings
    for frequency, word, number in sorted(zip(everywhere, asked.words, numbers, strict=False)):
        if frequency and (not fetching or frequency <= budget) and len(fetching) < FETCHING_WORDS:
            fetching.append(f'"{word}"')
            fetching_stems.append((number, frequency))
            budget -= frequency
        elif not frequency and len(of_lines) < FETCHING_WORDS:
            of_lines.append(f'"{word}"')
    return QueryPlan(
        asked=weigh(asked, frequencies, passages),
        numbers=numbers,
        frequencies=frequencies,
        passages=passages,
        everywhere=everywhere,
        all_passages=all_passages,
        mean_words=total_words / all_passages if all_passages else 1.0,
        fetch=" OR ".join(fetching),
        fetch_lines=" OR ".join([*fetching, *of_lines]) if lines else "",
        fetching=tuple(fetching_stems),
        small=small,
    )


def _documents(connection: sqlite3.Connection, table: str, terms: Sequence[str]) -> tuple[int, ...]:
    """Returns the number of passages that contain each term."""
    found = (connection.execute(f"SELECT doc FROM {table} WHERE term = ?", (term,)).fetchone() for term in terms)
    return tuple(int(row[0]) if row else 0 for row in found)


def _frequency(connection: sqlite3.Connection, word: str, everywhere: int, share: float, scope: Scope) -> int:
    """Returns the number of passages of the scope that contain a word; for a common word an estimate by the scope's
    share."""
    if everywhere > COUNTED:
        return max(1, round(everywhere * share))
    if not everywhere:
        return 0
    times = 0
    for table in ("knowledge_fts", "lines_fts") if scope.lines else ("knowledge_fts",):
        times += connection.execute(
            f"SELECT count(*) FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
            f"WHERE {table} MATCH ? AND {scope.condition}",
            (f'"{word}"', *scope.values),
        ).fetchone()[0]
    return times


def speakers(connection: sqlite3.Connection, projects: tuple[int, ...] | None) -> list[str]:
    """Returns the names of the speakers in these projects, or in all."""
    where = "" if projects is None else "AND s.project IN (SELECT value FROM json_each(?))"
    values = () if projects is None else (json.dumps(projects),)
    rows = connection.execute(
        "SELECT DISTINCT n.name FROM speakers s JOIN names n ON n.id = s.speaker "
        f"WHERE n.name <> '' {where} ORDER BY 1",
        values,
    )
    return [row[0] for row in rows]


def fetch_by_words(connection: sqlite3.Connection, plan: QueryPlan, scope: Scope, depth: Depth) -> list[int]:
    """Returns the ids of the passages of the scope that match the fetching words best, then of derived lines."""
    if plan.small is not None:
        found = plan.small.best(plan.fetching, plan.all_passages, plan.mean_words, depth.words)
    else:
        found = _matching(connection, "knowledge_fts", plan.fetch, depth.words, plan, scope)
    most_lines = depth.words if scope.lines else depth.lines
    return found + _matching(connection, "lines_fts", plan.fetch_lines, most_lines, plan, scope)


def _matching(
    connection: sqlite3.Connection, table: str, fetch: str, wanted: int, plan: QueryPlan, scope: Scope
) -> list[int]:
    """Returns the best matching passages of the scope in a keyword index, at most `wanted`.

    Ordering by `bm25()` keeps only the best; ordering by `rank`, which is the same value, would sort all matches.
    """
    if not fetch:
        return []
    share = plan.passages / plan.all_passages if plan.all_passages else 1.0
    likely = wanted if scope.everything else int(SLACK * wanted / max(share, 0.01))
    for most in (likely, FIRST_FETCH) if likely < FIRST_FETCH else (FIRST_FETCH,):
        rows = connection.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY bm25({table}) LIMIT ?", (fetch, most)
        )
        found = [row[0] for row in rows]
        kept = in_scope(connection, found, scope)
        if len(found) < most or len(kept) >= wanted:
            return kept[:wanted]
    # CROSS JOIN fixes the order: the keyword index first, never one keyword search per passage of the scope.
    rows = connection.execute(
        f"SELECT m.id FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
        f"WHERE {table} MATCH ? AND {scope.condition} ORDER BY {table}.rank LIMIT ?",
        (fetch, *scope.values, wanted),
    )
    return [row[0] for row in rows]
