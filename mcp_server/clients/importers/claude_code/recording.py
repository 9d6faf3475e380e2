"""Live capture: what Claude Code has written to a transcript since the last look goes to the end of the open session.

It is the importer, reading on from a cursor: a missed hook loses nothing, and a later import of the file adds nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.clients.importers.claude_code import SOURCE
from mcp_server.clients.importers.claude_code.reading import (
    Batch,
    Cursor,
    batches,
    cursor_from,
    project_place,
    projects_folder,
    subagents,
)
from mcp_server.clients.importers.claude_code.threads import MAIN
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, append_turns, record_session
from mcp_server.errors import NotFound, Refused, Unavailable
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


__all__ = ["Captured", "capture", "projects_folder"]

MOST_TURNS, MOST_CHARACTERS = 256, 1_000_000
"""What is recorded in one piece when there is much to catch up with."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What one look added, subagents included. `skipped` lines were no messages; `note` says what else there is to say.
    `session` is empty if the file names none."""

    session: str
    new_turns: int
    skipped: int
    note: str = ""


async def capture(
    memory: Memory,
    transcript: Path,
    *,
    cwd: str | None = None,
    session: str | None = None,
    final: bool = False,
    stopped: bool = False,
    projects: Path | None = None,
) -> Captured:
    """Records what is new in `transcript`, and in those of its subagents. An answer that may still grow is left for the
    next time, unless `final`; with `stopped` (the client has stopped answering) only one that seems to lack something.
    Nothing that stands in the file makes this fail.

    `session` and `cwd` are what the hook said; the file's own words come first. `projects` is the folder that the
    transcript must lie in, by default Claude Code's own.

    Raises:
        Refused: the path leads outside of that folder, or is no transcript.
        NotFound, Unavailable: there is no such file (yet), or it cannot be read.
    """
    path = await run_sync(_allowed, transcript, projects or projects_folder(os.environ))
    done = await _capture_file(memory, path, cwd, session, final, stopped)
    for agent in await run_sync(subagents, path):
        more = await _capture_file(memory, agent, cwd, session, final, stopped)
        done = replace(done, new_turns=done.new_turns + more.new_turns, skipped=done.skipped + more.skipped)
    return done


async def _capture_file(
    memory: Memory, path: Path, cwd: str | None, session: str | None, final: bool, stopped: bool
) -> Captured:
    key = str(path)
    cursor = cursor_from(await memory.state.get(CURSORS, key))
    if await run_sync(_is_unchanged, path, cursor, final or stopped):
        return Captured(cursor.session, 0, 0, "nothing new")
    skipped: Counter[str] = Counter()
    found, new = session or "", 0
    pieces = batches(
        path,
        cursor,
        skipped,
        final=final or stopped,
        only_whole=not final,
        most_turns=MOST_TURNS,
        most_characters=MOST_CHARACTERS,
    )
    try:
        while (batch := await run_sync(next, pieces, None)) is not None:
            found = batch.session
            for part in sessions_in(batch, cwd):
                new += (await append_turns(memory, part)).new_turns
            if batch.cursor != cursor:
                await memory.state.put(CURSORS, key, batch.cursor.as_json())
                cursor = batch.cursor
    except FileNotFoundError:
        raise NotFound(f"there is no transcript at {path}") from None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}; check its permissions") from None
    note = f"the hook named session {session}, the transcript {found}" if session and session != found else ""
    return Captured(found, new, skipped.total(), note)


def _allowed(transcript: Path, projects: Path) -> Path:
    path, folder = transcript.expanduser().resolve(), projects.expanduser().resolve()
    if not path.is_relative_to(folder):
        raise Refused(f"{transcript} does not lie in {folder}, where Claude Code keeps its transcripts")
    if path.suffix != ".jsonl" or (path.exists() and not path.is_file()):
        raise Refused(f"{transcript} is no transcript: give the path of a .jsonl file")
    if not path.exists():
        raise NotFound(f"there is no transcript at {transcript} yet")
    return path


def _is_unchanged(path: Path, cursor: Cursor, final: bool) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    same = (found.st_size, found.st_mtime_ns) == (cursor.size, cursor.mtime_ns)
    return same and (cursor.whole or not final)
