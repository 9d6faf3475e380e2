"""Live capture: what Claude Code has written to a transcript since the last look goes to the end of the open session.

It is the importer, reading on from a cursor: a missed hook loses nothing, and a later import of the file adds nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.clients.importers.claude_code.places import projects_folder, subagents
from mcp_server.clients.importers.claude_code.reading import Cursor, batches, cursor_from
from mcp_server.clients.importers.claude_code.record import CURSORS, sessions_in
from mcp_server.conversations.imports import append_turns
from mcp_server.errors import NotFound, Refused, Unavailable
from mcp_server.memory import Memory

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
