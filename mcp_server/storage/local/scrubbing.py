"""Finds and removes forgotten text in the rows of a SQLite file."""

from __future__ import annotations

import sqlite3

from mcp_server.storage.copies import clean_value
from mcp_server.text.forgotten import Forgotten


def scrub(connection: sqlite3.Connection, request: Forgotten) -> dict[str, int]:
    """Cleans all texts of all tables in the caller's transaction. Returns the number of changed rows of each table."""
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
    """Returns the number of rows of each table that `scrub` would change. Takes no write lock."""
    return {table: len(stale) for table, _, stale in _stale(connection, request)}


_Row = tuple[object, ...]


def _stale(connection: sqlite3.Connection, request: Forgotten) -> list[tuple[str, list[str], list[tuple[_Row, _Row]]]]:
    """Returns the tables with forgotten text: name, columns, and each row before and after cleaning."""
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
            if (fresh := tuple(clean_value(name, value, request) for name, value in zip(columns, row, strict=True)))
            != row
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
