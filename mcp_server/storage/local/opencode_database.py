"""Reads the database of OpenCode, an agent that stores its conversations in SQLite. Writes nothing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from mcp_server.errors import NotFound, Unavailable

_SESSIONS = """
    SELECT id, coalesce(parent_id, ''), directory FROM session
    WHERE ? IN ('', id, parent_id) ORDER BY time_created, id
"""
_MESSAGES = """
    SELECT m.id, m.data, p.data FROM message m LEFT JOIN part p ON p.message_id = m.id
    WHERE m.session_id = ? AND m.id > ? ORDER BY m.id, p.id
"""


def sessions(database: Path, session: str = "") -> list[tuple[str, str, str]]:
    """Returns id, parent and folder of all sessions, or of one and its subagents.

    Raises NotFound if there is no database, Unavailable if it cannot be read.
    """
    return [(str(row[0]), str(row[1]), str(row[2])) for row in _rows(database, _SESSIONS, (session,))]


def messages(database: Path, session: str, after: str) -> list[dict[str, Any]]:
    """Returns the messages of a session after the id `after`, each with its `id` and its `parts`. Raises the same
    errors as `sessions`."""
    found: dict[str, dict[str, Any]] = {}
    for message, data, part in _rows(database, _MESSAGES, (session, after)):
        fields = found.setdefault(str(message), {**_object(data), "id": str(message), "parts": []})
        fields["parts"].append(_object(part))
    return list(found.values())


def _rows(database: Path, query: str, parameters: tuple[str, ...]) -> list[tuple[Any, ...]]:
    if not database.is_file():
        raise NotFound(f"there is no database at {database}")
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)) as opened:
            return opened.execute(query, parameters).fetchall()
    except sqlite3.Error as error:
        raise Unavailable(f"{database} cannot be read: {error}") from None


def _object(text: object) -> dict[str, Any]:
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
