"""Query plans: the words of a query as the index sees them, its filters as SQL, and the passages that the words fetch.

A small scope (a conversation, a young project) is read whole: its words are counted directly, which is faster than the
tables for the whole index. The result is the same, because BM25 is computed by FTS5's formula.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import TYPE_CHECKING, Any

from mcp_server.model import GLOBAL
from mcp_server.search.query import read_query, weigh
from mcp_server.storage.index.query_plan import (
    COUNTED,
    FETCHING_WORDS,
    FIRST_FETCH,
    SLACK,
    SMALL_SCOPE,
    QueryPlan,
    SmallScope,
)
from mcp_server.storage.values import Depth, Filters

if TYPE_CHECKING:
    from mcp_server.storage.sqlite import Stems


@dataclass(frozen=True, slots=True)
class Scope:
    """Filters as this index understands them. `condition` is SQL over a row `m` of knowledge_meta, with `values` for
    its placeholders.

    `projects` and `without_session` are part of the condition, and separate for the vector table, which can check only
    these. `other`: there are further conditions. `everything`: nothing is left out. `lines`: derived lines are searched
    and counted as passages of their own.
    """

    condition: str
    values: tuple[Any, ...]
    projects: tuple[int, ...] | None
    without_session: int | None
    other: bool
    everything: bool
    lines: bool = False


def scope_of(connection: sqlite3.Connection, filters: Filters) -> Scope:
    """Returns the scope of filters. A name that the index does not know matches nothing."""

    def number(name: str) -> int:
        row = connection.execute("SELECT id FROM names WHERE name = ?", (name,)).fetchone()
        return int(row[0]) if row else -1

    projects = None
    if filters.projects is not None:
        known = (number(name) for name in sorted(filters.projects | {GLOBAL}))
        projects = tuple(n for n in known if n >= 0) or (-1,)
    without = number(filters.exclude_session) if filters.exclude_session else -1
    where: list[str] = []
    values: list[Any] = []
    for column, name in (("session", filters.session), ("category", filters.category), ("speaker", filters.speaker)):
        if name is not None:
            where.append(f"m.{column} = ?")
            values.append(number(name))
    moment = "coalesce(m.at, (SELECT f.mtime_ns / 1e9 FROM files f WHERE f.id = m.file))"
    if filters.since is not None:
        where.append(f"{moment} >= ?")
        values.append(filters.since.timestamp())
    if filters.until is not None:
        where.append(f"{moment} < ?")
        values.append(filters.until.timestamp())
    holding = " UNION ALL ".join(
        f"SELECT u.file, u.mark FROM {table} JOIN knowledge_meta u ON u.id = {table}.rowid WHERE {table} MATCH ?"
        for table in ("knowledge_fts", "lines_fts")
    )
    for wanted, sequences in (("IN", filters.phrases), ("NOT IN", filters.excluded)):
        for sequence in sequences:
            where.append(f"(m.file, m.mark) {wanted} ({holding})")
            values += [f'"{" ".join(sequence)}"'] * 2
    other = bool(where)
    if projects is not None and not _covers_all(connection, projects):
        where.append("m.project IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(projects))
    else:
        projects = None
    if without >= 0 and filters.exclude_from is not None:
        where.append("(m.session <> ? OR m.mark < ?)")
        values += [without, filters.exclude_from]
        without, other = -1, True  # the vector table knows no turns: what it finds is looked at by the condition
    elif without >= 0:
        where.append("m.session <> ?")
        values.append(without)
    condition = " AND ".join(where) or "1"
    lines = filters.category not in (None, "conversation")
    return Scope(condition, tuple(values), projects, without if without >= 0 else None, other, not where, lines)


def _covers_all(connection: sqlite3.Connection, projects: tuple[int, ...]) -> bool:
    others = connection.execute(
        "SELECT 1 FROM speakers WHERE project NOT IN (SELECT value FROM json_each(?)) LIMIT 1", (json.dumps(projects),)
    ).fetchone()
    return others is None


def in_scope(connection: sqlite3.Connection, ids: Sequence[int], scope: Scope) -> list[int]:
    """Returns those of these passages that are in the scope, in the same order."""
    if scope.everything or not ids:
        return list(ids)
    rows = connection.execute(
        "SELECT m.id FROM json_each(?) j CROSS JOIN knowledge_meta m ON m.id = j.value "
        f"WHERE {scope.condition} ORDER BY j.key",
        (json.dumps(ids), *scope.values),
    )
    return [row[0] for row in rows]


def count(connection: sqlite3.Connection, scope: Scope, all_passages: int) -> int:
    """Returns the number of passages in a scope."""
    if scope.other:
        (counted,) = connection.execute(
            f"SELECT count(*) FROM knowledge_meta m WHERE m.derived <= ? AND {scope.condition}",
            (scope.lines, *scope.values),
        ).fetchone()
        return int(counted)
    counted = all_passages
    if scope.projects is not None:
        (counted,) = connection.execute(
            "SELECT coalesce(sum(passages + ? * lines), 0) FROM speakers WHERE project IN (SELECT value FROM "
            "json_each(?))",
            (scope.lines, json.dumps(scope.projects)),
        ).fetchone()
    if scope.without_session is not None:
        (own,) = connection.execute(
            "SELECT count(*) FROM knowledge_meta WHERE session = ?", (scope.without_session,)
        ).fetchone()
        counted -= own
    return max(0, int(counted))


def is_small(connection: sqlite3.Connection, scope: Scope) -> bool:
    """Returns whether a scope has at most SMALL_SCOPE passages, without counting more."""
    if scope.everything:
        return False
    (counted,) = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM knowledge_meta m WHERE m.derived <= ? AND {scope.condition} LIMIT ?)",
        (scope.lines, *scope.values, SMALL_SCOPE + 1),
    ).fetchone()
    return int(counted) <= SMALL_SCOPE


def rows_in(connection: sqlite3.Connection, scope: Scope, column: str) -> list[tuple[int, bytes]]:
    """Returns id and a column of `passages` for every passage of a scope, ordered by id."""
    return connection.execute(
        f"SELECT m.id, p.{column} FROM knowledge_meta m CROSS JOIN passages p ON p.id = m.id "
        f"WHERE m.derived <= ? AND {scope.condition} ORDER BY m.id",
        (scope.lines, *scope.values),
    ).fetchall()


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
        SmallScope.of(rows_in(connection, scope, "stems"))
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
