"""Taking forgotten text out of a SQLite file: out of its rows, and out of the pages that deleted rows leave behind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

from mcp_server.text.forgotten import Forgotten, values

PROSE = frozenset({"title", "text", "content", "summary", "shown"})
"""Columns that hold what people say; the others hold names, and a name has no brackets."""


KEPT = frozenset({"session", "turn_id", "sha"})
"""Columns of ids: a conversation is known to its client by them."""


def scrub(connection: sqlite3.Connection, request: Forgotten) -> dict[str, int]:
    """Cleans every text of every table, in the caller's transaction; returns how many rows of which table changed."""
    changed: dict[str, int] = {}
    for table, columns, stale in _stale(connection, request):
        changed[table] = len(stale)
        same = " AND ".join(f'"{name}" IS ?' for name in columns)
        marks = ", ".join("?" * len(columns))
        for row, fresh in stale:
            connection.execute(f'DELETE FROM "{table}" WHERE {same}', row)
            connection.execute(f'INSERT OR REPLACE INTO "{table}" VALUES ({marks})', fresh)
    return changed


def held(connection: sqlite3.Connection, request: Forgotten) -> dict[str, int]:
    """How many rows of which table `scrub` would change. Writes nothing, so that it waits for nobody."""
    return {table: len(stale) for table, _, stale in _stale(connection, request)}


_Row = tuple[object, ...]


def _stale(connection: sqlite3.Connection, request: Forgotten) -> list[tuple[str, list[str], list[tuple[_Row, _Row]]]]:
    """Tables with rows that hold a forgotten text: the name, the columns, and each row as it is and as it should be."""
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE 'CREATE V%'"
    ).fetchall()
    found: list[tuple[str, list[str], list[tuple[_Row, _Row]]]] = []
    for (table,) in tables:
        cursor = connection.execute(f'SELECT * FROM "{table}"')
        columns = [column[0] for column in cursor.description]
        stale = [
            (row, fresh)
            for row in cursor
            if (fresh := tuple(_clean(name, value, request) for name, value in zip(columns, row, strict=True))) != row
        ]
        if stale:
            found.append((table, columns, stale))
    return found


def wipe(connection: sqlite3.Connection) -> bool:
    """Writes the file anew without its free pages and empties the write-ahead log. Outside a transaction.

    False if a reader of another process still needs the log; then call it again.
    """
    connection.execute("PRAGMA secure_delete = ON").fetchone()
    connection.execute("VACUUM")
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _clean(column: str, value: object, request: Forgotten) -> object:
    if not isinstance(value, str) or column in KEPT:
        return value
    clean: Callable[[str], str] = request.clean if column in PROSE else request.name
    if value[:1] in ('"', "{", "["):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return clean(value)
        fresh = values(parsed, request.clean, request.name)
        return value if fresh == parsed else json.dumps(fresh)
    return clean(value)
