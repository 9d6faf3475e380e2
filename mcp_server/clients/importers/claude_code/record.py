"""Batches of turns → sessions, and the import of a whole file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.clients.importers.claude_code import SOURCE
from mcp_server.clients.importers.claude_code.places import project_place
from mcp_server.clients.importers.claude_code.reading import Batch, Cursor, batches, cursor_from
from mcp_server.clients.importers.claude_code.threads import MAIN
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.errors import Unavailable
from mcp_server.memory import Memory

CURSORS = "captured"
"""Where the state keeps the cursor of each transcript file, by its real path."""


def sessions_in(batch: Batch, cwd: str | None = None, project: str | None = None) -> Iterator[ImportedSession]:
    """The parts of conversations that a batch holds: of the session itself, and of each subagent in the same file.
    `cwd` counts if the file does not say where it was held, `project` before both."""
    turns: dict[str, list[ImportedTurn]] = {}
    for said in batch.said:
        turns.setdefault(said.agent, []).append(said.turn)
    place = project_place(batch.cwd or cwd)
    for agent, of_agent in turns.items():
        yield ImportedSession(
            session_id=batch.session if agent == MAIN else subagent_session(batch.session, agent),
            turns=tuple(of_agent),
            source=SOURCE,
            project=project or place.name,
            folder=place.folder,
            model=batch.model,
            kind="main" if agent == MAIN else "subagent",
            unique_ids=True,
        )


def subagent_session(session: str, agent: str) -> str:
    """The session of a subagent, by its id and the session that started it."""
    return f"{session}-agent-{agent}"


STILL_WRITTEN = timedelta(minutes=10)
"""An answer at the end of a file that was written to so shortly ago may still grow."""


@dataclass(frozen=True, slots=True)
class FileImported:
    """What came of one file; `turns` counts those that were recorded before too."""

    sessions: int = 0
    new_sessions: int = 0
    turns: int = 0
    new_turns: int = 0
    copied: int = 0
    redacted: int = 0
    unchanged: int = 0


async def import_file(
    memory: Memory,
    file: Path,
    project: str | None,
    skipped: Counter[str],
    *,
    anew: bool = False,
    told: Callable[[int], None] = lambda _: None,
) -> FileImported:
    """Records what a transcript holds, part by part, from where it was read to before; `anew` from its beginning. What
    is no message is counted in `skipped`.

    Raises Unavailable if the file cannot be read.
    """
    try:
        file, found = await run_sync(lambda: (file.resolve(), file.stat()))
        key = str(file)
        cursor = Cursor() if anew else cursor_from(await memory.state.get(CURSORS, key))
        if cursor.whole and (found.st_size, found.st_mtime_ns) == (cursor.size, cursor.mtime_ns):
            return FileImported(sessions=1, turns=cursor.turns, unchanged=1)
        age = memory.clock() - datetime.fromtimestamp(found.st_mtime, UTC)
        growing = timedelta(0) <= age < STILL_WRITTEN
        known: set[str] = set()
        begun: set[str] = set()
        new = copied = redacted = 0
        offsets = [0]
        pieces = batches(file, cursor, skipped, final=True, only_whole=growing, told=offsets.append)
        while (batch := await run_sync(next, pieces, None)) is not None:
            for part in sessions_in(batch, project=project):
                is_known = part.session_id in known or await memory.state.session(part.session_id) is not None
                recorded = await record_session(memory, part)
                known.add(part.session_id)
                begun |= {part.session_id} if recorded.new_turns and not is_known else set()
                new, copied = new + recorded.new_turns, copied + recorded.copied
                redacted += recorded.redacted
            if batch.cursor != cursor:
                await memory.state.put(CURSORS, key, batch.cursor.as_json())
                cursor = batch.cursor
            told(offsets[-1])
            offsets[:] = offsets[-1:]
    except OSError as error:
        raise Unavailable(f"{file} cannot be read: {error.strerror or error}; check its permissions") from None
    return FileImported(
        sessions=max(1, len(known)) if cursor.turns else 0,
        new_sessions=len(begun),
        turns=cursor.turns,
        new_turns=new,
        copied=copied,
        redacted=redacted,
    )
