"""Records OpenCode's sessions from its database: each message once, when it is complete.

The cursor of a session has the id of its last recorded message, so that a missed hook loses nothing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.clients.adapters import opencode
from mcp_server.clients.importers.claude_code.reading import Batch, Cursor
from mcp_server.clients.importers.claude_code.recording import sessions_in
from mcp_server.clients.importers.claude_code.threads import ReadingState, Threads
from mcp_server.clients.importers.imported import ImportReport
from mcp_server.conversations.imports import ImportedSession, RecordedSession, append_turns, record_session
from mcp_server.memory import Memory
from mcp_server.storage.sqlite import rows_of

CURSORS = "captured"
"""Namespace of the state: real path of the database and session → the last recorded message, and the session of the
messages after it."""

MOST_MESSAGES = 200
"""Messages that are recorded in one piece."""

_SESSIONS = """
    SELECT id, coalesce(parent_id, ''), directory FROM session
    WHERE ? IN ('', id, parent_id) ORDER BY time_created, id
"""
_MESSAGES = """
    SELECT m.id, m.data, p.data FROM message m LEFT JOIN part p ON p.message_id = m.id
    WHERE m.session_id = ? AND m.id > ? ORDER BY m.id, p.id
"""

Write = Callable[[Memory, ImportedSession], Awaitable[RecordedSession]]


async def capture(memory: Memory, database: Path, session: str) -> int:
    """Records new complete messages of a session and of its subagents, and returns the number of turns.

    Raises NotFound if there is no database, Unavailable if it cannot be read.
    """
    return sum([done.new_turns async for done in _record(memory, database, session, append_turns)])


async def import_database(
    memory: Memory, database: Path, project: str | None, report: ImportReport, *, anew: bool = False
) -> None:
    """Records all sessions from their cursors, or with `anew` from their beginnings, and adds the result to `report`.

    Raises as `capture` does.
    """
    known: set[str] = set()
    if not project:
        named = {folder for *_, folder in await run_sync(_sessions, database)}
        report.folders += await run_sync(lambda: sorted(folder for folder in named if Path(folder).is_dir()))
    async for done in _record(memory, database, "", record_session, project, anew=anew):
        report.add_session(done, is_first=done.session not in known)
        known.add(done.session)


def count(database: Path) -> int:
    """Returns the number of sessions, without subagents'. Raises as `capture` does."""
    return sum(not parent for _, parent, _ in _sessions(database))


async def _record(
    memory: Memory, database: Path, session: str, write: Write, project: str | None = None, *, anew: bool = False
) -> AsyncIterator[RecordedSession]:
    database = await run_sync(database.resolve)
    for found, parent, folder in await run_sync(_sessions, database, session):
        key = f"{database}#{found}"
        stored = None if anew else await memory.state.get(CURSORS, key)
        messages = await run_sync(_messages, database, found, stored["after"] if stored else "")
        main = (stored or {}).get("session") or parent or found
        for batch, last in _batches(messages, main, found if parent else ""):
            for part in sessions_in(batch, opencode.ADAPTER, folder, project):
                yield await write(memory, part)
            await memory.state.put(CURSORS, key, {"after": last, "session": batch.cursor.session})


async def continued_session(memory: Memory, database: Path, session: str) -> str:
    """Returns the session that OpenCode's `session` continues since our prompt `resume`; else `session` itself."""
    stored = await memory.state.get(CURSORS, f"{await run_sync(database.resolve)}#{session}")
    return (stored or {}).get("session") or session


def _batches(messages: list[dict[str, Any]], session: str, agent: str) -> Iterator[tuple[Batch, str]]:
    """Yields the turns of the messages before the first incomplete one, each batch with the id of its last message.

    A message with our prompt `resume` ends a batch: the session that its cursor names continues after it.
    """
    complete = list(takewhile(opencode.is_complete, messages))
    while complete:
        threads = Threads(ReadingState())
        said, taken = [], 0
        for message in complete[:MOST_MESSAGES]:
            taken += 1
            for line in opencode.lines({**message, "subagent": agent}):
                said += threads.read(line, 0)
            if threads.resumed:
                break
        said += threads.finish()
        following = Cursor(threads.resumed or session)
        yield Batch(session, tuple(said), following, threads.cwd, threads.model), message["id"]
        session, complete = following.session, complete[taken:]


def _sessions(database: Path, session: str = "") -> list[tuple[str, str, str]]:
    """Returns id, parent and folder of all sessions, or of one and its subagents."""
    return [(str(row[0]), str(row[1]), str(row[2])) for row in rows_of(database, _SESSIONS, (session,))]


def _messages(database: Path, session: str, after: str) -> list[dict[str, Any]]:
    """Returns the messages of a session after the id `after`, each with its `id` and its `parts`."""
    found: dict[str, dict[str, Any]] = {}
    for message, data, part in rows_of(database, _MESSAGES, (session, after)):
        fields = found.setdefault(str(message), {**_object(data), "id": str(message), "parts": []})
        fields["parts"].append(_object(part))
    return list(found.values())


def _object(text: object) -> dict[str, Any]:
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
