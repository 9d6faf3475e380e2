"""Query plans: the words of a query as the index sees them, its filters as SQL, and the passages that the words fetch.

A small scope (a conversation, a young project) is read whole: its words are counted directly, which is faster than the
tables for the whole index. The result is the same, because BM25 is computed by FTS5's formula.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from operator import add
from typing import Any

from mcp_server.model import GLOBAL
from mcp_server.search.query import read_query
from mcp_server.storage.index.scoring import (
    FIRST_FETCH,
    SLACK,
    SMALL_SCOPE,
    Fetching,
    QueryPlan,
    Scope,
    SmallScope,
    planned,
)
from mcp_server.storage.sqlite import Stems
from mcp_server.storage.values import Depth, Filters


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
    for comparison, moment in ((">=", filters.since), ("<", filters.until)):
        if moment is not None:
            of_file = "SELECT f.mtime_ns / 1e9 FROM files f WHERE f.id = m.file"
            where.append(f"coalesce(m.at, ({of_file})) {comparison} ?")
            values.append(moment.timestamp())
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
    """Returns the plan of a query."""
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
    small = None
    if not scope.everything and passages <= SMALL_SCOPE:
        small = SmallScope.of(rows_in(connection, scope, "stems"))

    def counted(place: int) -> int:
        return _counted(connection, asked.lookup[place], scope)

    numbers, totals = tuple(stems.numbers(asked.lookup)), (all_passages, total_words)
    return planned(asked, numbers, everywhere, totals, scope, passages, small, counted, postings)


def _documents(connection: sqlite3.Connection, table: str, terms: Sequence[str]) -> tuple[int, ...]:
    """Returns the number of passages that contain each term."""
    found = (connection.execute(f"SELECT doc FROM {table} WHERE term = ?", (term,)).fetchone() for term in terms)
    return tuple(int(row[0]) if row else 0 for row in found)


def _counted(connection: sqlite3.Connection, word: str, scope: Scope) -> int:
    """Returns the number of passages of the scope that contain a word."""
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
        found = _matching(connection, "knowledge_fts", plan.fetching, depth.words, plan, scope)
    most_lines = depth.words if scope.lines else depth.lines
    return found + _matching(connection, "lines_fts", (*plan.fetching, *plan.of_lines), most_lines, plan, scope)


def _matching(
    connection: sqlite3.Connection, table: str, words: Sequence[Fetching], wanted: int, plan: QueryPlan, scope: Scope
) -> list[int]:
    """Returns the best matching passages of the scope in a keyword index, at most `wanted`.

    Ordering by `bm25()` keeps only the best; ordering by `rank`, which is the same value, would sort all matches.
    """
    if not words:
        return []
    fetch = " OR ".join(f'"{one.word}"' for one in words)
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
