"""Scopes: filters as numbers and SQL of an index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcp_server.model import GLOBAL
from mcp_server.storage.values import Filters


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


SMALL_SCOPE = 1_000
"""Scopes with at most this many passages are read whole, in some milliseconds; from about 3,000 on the tables are
faster."""


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
