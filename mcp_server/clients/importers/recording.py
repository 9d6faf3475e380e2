"""Records clients' transcripts: whole ones (import), or the new turns of an open session (capture).

Both continue from the same stored cursor, so that a missed hook loses nothing, and importing a captured transcript adds
nothing. OpenCode has all its sessions in one database. Each message in it is recorded once, when it is complete.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.clients.adapters import opencode
from mcp_server.clients.adapters.adapter import CLAUDE_CODE, Adapter, as_mapping
from mcp_server.clients.importers.imported import ImportReport, as_text, files_named, result_text
from mcp_server.clients.importers.reading import (
    Batch,
    Cursor,
    batches,
    cursor_from,
    lines,
    project_place,
    subagents,
)
from mcp_server.clients.importers.threads import COMPACTED, MAIN, ReadingState, Threads, blocks_of
from mcp_server.conversations.imports import (
    ImportedSession,
    ImportedTurn,
    RecordedSession,
    append_turns,
    record_session,
)
from mcp_server.errors import NotFound, Refused, Unavailable
from mcp_server.memory import Memory
from mcp_server.storage.local import opencode_database

LONGEST_RESULT = 1_000_000
"""Characters of a tool result that are read."""


def files_read(transcript: Path, adapter: Adapter) -> Mapping[str, Sequence[str]]:
    """Returns the complete results of the tool calls that name exactly one file, by the path that the calls give.

    A result that is in the transcript twice is returned once. Raises OSError if the transcript cannot be read.
    """
    found: dict[str, list[str]] = {}
    called: dict[str, str] = {}
    read: set[str] = set()  # tool calls whose result was found
    with transcript.open("rb") as file:
        for line in lines(file, 0):
            for fields in adapter.lines(line.fields) if line.fields else ():
                if fields.get("subtype") == COMPACTED:
                    found.clear()
                if fields.get("isSidechain") is True:
                    continue
                for block in blocks_of(fields):
                    files = files_named(as_mapping(block.get("input")), as_text(fields.get("cwd")) or None)
                    if len(files) == 1:
                        called[as_text(block.get("id"))] = files[0]
                    elif (call := as_text(block.get("tool_use_id"))) in called and call not in read:
                        read.add(call)
                        text = result_text(block.get("content"), block.get("is_error") is True, LONGEST_RESULT)
                        found.setdefault(called[call], []).append(text)
    return found


CURSORS = "captured"
"""Namespace of the state: real path of a transcript → its cursor; real path of a database and session → the last
recorded message, and the session of the messages after it."""

STILL_WRITTEN = timedelta(minutes=10)
"""The last answer of a file that was changed less than this ago may be incomplete."""

MOST_TURNS, MOST_CHARACTERS = 256, 1_000_000
"""The most that is recorded in one piece."""

MOST_MESSAGES = 200
"""Messages of a database that are recorded in one piece."""

Write = Callable[[Memory, ImportedSession], Awaitable[RecordedSession]]


def sessions_in(
    batch: Batch, adapter: Adapter, cwd: str | None = None, project: str | None = None
) -> Iterator[ImportedSession]:
    """Yields the parts of a batch: of the session itself, and of each subagent in the same file.

    The project is `project`, else that of the folder in the file, else that of `cwd`.
    """
    turns: dict[str, list[ImportedTurn]] = {}
    for said in batch.said:
        turns.setdefault(said.agent, []).append(said.turn)
    folder, name = project_place(batch.cwd or cwd)
    for agent, of_agent in turns.items():
        yield ImportedSession(
            session_id=batch.session if agent == MAIN else subagent_session(batch.session, agent),
            turns=tuple(of_agent),
            source=adapter.source,
            project=project or name,
            folder=folder,
            model=batch.model,
            kind="main" if agent == MAIN else "subagent",
            unique_ids=True,
        )


def subagent_session(session: str, agent: str) -> str:
    return f"{session}-agent-{agent}"


async def import_file(
    memory: Memory,
    file: Path,
    project: str | None,
    report: ImportReport,
    *,
    adapter: Adapter,
    anew: bool,
    on_bytes: Callable[[int], None],
) -> None:
    """Records a transcript from its cursor, or with `anew` from its beginning, and adds the result to `report`.

    `report.turns` includes the turns that were recorded before. `on_bytes` is called with the number of bytes recorded.
    Raises Unavailable if the file cannot be read.
    """
    skipped: Counter[str] = Counter()
    known: set[str] = set()
    begun: set[str] = set()
    new = copied = redacted = 0
    try:
        file, found = await run_sync(lambda: (file.resolve(), file.stat()))
        cursor = Cursor() if anew else cursor_from(await memory.state.get(CURSORS, str(file)))
        if cursor.whole and (found.st_size, found.st_mtime_ns) == (cursor.size, cursor.mtime_ns):
            report.sessions, report.turns = report.sessions + 1, report.turns + cursor.turns
            report.unchanged += 1
            return
        age = memory.clock() - datetime.fromtimestamp(found.st_mtime, UTC)
        growing = timedelta(0) <= age < STILL_WRITTEN
        offsets = [0]
        pieces = batches(
            file, cursor, skipped, adapter=adapter, final=True, only_whole=growing, on_bytes=offsets.append
        )
        while (batch := await run_sync(next, pieces, None)) is not None:
            for part in sessions_in(batch, adapter, project=project):
                is_known = part.session_id in known or await memory.state.session(part.session_id) is not None
                recorded = await record_session(memory, part)
                known.add(part.session_id)
                if part.folder and not project and part.folder not in report.folders:
                    report.folders.append(part.folder)
                begun |= {part.session_id} if recorded.new_turns and not is_known else set()
                new, copied = new + recorded.new_turns, copied + recorded.copied
                redacted += recorded.redacted
            cursor = await _advance(memory, file, cursor, batch)
            on_bytes(offsets[-1])
            offsets[:] = offsets[-1:]
    except OSError as error:
        raise Unavailable(f"{file} cannot be read: {error.strerror or error}; check its permissions") from None
    report.sessions += max(1, len(known)) if cursor.turns else 0
    report.new_sessions += len(begun)
    report.turns += cursor.turns
    report.new_turns += new
    report.copied += copied
    report.redacted += redacted
    report.skip_counted(skipped)


async def _advance(memory: Memory, file: Path, cursor: Cursor, batch: Batch) -> Cursor:
    """Stores the cursor after a recorded batch, if it differs, and returns it."""
    if batch.cursor != cursor:
        await memory.state.put(CURSORS, str(file), batch.cursor.as_json())
    return batch.cursor


async def capture(
    memory: Memory,
    transcript: Path,
    *,
    adapter: Adapter = CLAUDE_CODE,
    session: str = "",
    cwd: str | None = None,
    final: bool = False,
    stopped: bool = False,
    projects: Path | None = None,
) -> int:
    """Records new turns of `transcript` and of its subagents' transcripts, and returns their number.

    Invalid content never causes an error. The last answer is left for the next call, except with `stopped` (the client
    has stopped answering) if the answer seems complete, and always with `final`. `cwd` comes from the hook; the folder
    in the file takes precedence. The transcript must be in the folder `projects`, by default the client's own. From a
    database only complete messages of the client's `session` and its subagents are recorded.

    Raises:
        Refused: the path is outside that folder, or is not a transcript.
        NotFound, Unavailable: there is no such file (yet), or it cannot be read.
    """
    if adapter.is_database:
        return sum([done.new_turns async for done in _from_database(memory, transcript, session, append_turns)])
    new = 0
    folder = projects or adapter.transcripts_folder(os.environ, Path.home())
    for path in await run_sync(_with_subagents, transcript, folder, adapter):
        cursor = cursor_from(await memory.state.get(CURSORS, str(path)))
        pieces = _new_batches(path, cursor, adapter, final, stopped)
        try:
            while (batch := await run_sync(next, pieces, None)) is not None:
                for part in sessions_in(batch, adapter, cwd):
                    new += (await append_turns(memory, part)).new_turns
                cursor = await _advance(memory, path, cursor, batch)
        except FileNotFoundError:
            raise NotFound(f"there is no transcript at {path}") from None
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error.strerror or error}; check its permissions") from None
    return new


def contents_read(transcript: Path, adapter: Adapter, projects: Path) -> Mapping[str, Sequence[str]]:
    """Returns the result of `files_read` for a transcript; {} if it cannot be read, is a database, or is not in the
    folder `projects`."""
    if adapter.is_database:
        return {}
    try:
        return files_read(_with_subagents(transcript, projects, adapter)[0], adapter)
    except (NotFound, Refused, OSError):
        return {}


def _new_batches(path: Path, cursor: Cursor, adapter: Adapter, final: bool, stopped: bool) -> Iterator[Batch]:
    """Yields the batches of a transcript after `cursor`; none if the file has not changed since then."""
    found = path.stat()
    same = (found.st_size, found.st_mtime_ns) == (cursor.size, cursor.mtime_ns)
    if same and (cursor.whole or not (final or stopped)):
        return
    yield from batches(
        path,
        cursor,
        Counter(),
        adapter=adapter,
        final=final or stopped,
        only_whole=not final,
        most_turns=MOST_TURNS,
        most_characters=MOST_CHARACTERS,
    )


def _with_subagents(transcript: Path, projects: Path, adapter: Adapter) -> list[Path]:
    """Returns the real path of a transcript, and those of its subagents. Raises as `capture` does."""
    path, folder = transcript.expanduser().resolve(), projects.expanduser().resolve()
    if not path.is_relative_to(folder):
        raise Refused(f"{transcript} is not in {folder}, where {adapter.title} keeps its transcripts")
    if not path.match(adapter.file_names) or (path.exists() and not path.is_file()):
        raise Refused(f"{transcript} is not a transcript: its name does not match {adapter.file_names}")
    if not path.exists():
        raise NotFound(f"there is no transcript at {transcript} yet")
    return [path, *subagents(path)]


async def continued_session(memory: Memory, adapter: Adapter, transcript: Path, session: str) -> str:
    """Returns the session that a client's `session` continues since our prompt `resume`; else `session` itself."""
    key = str(await run_sync(transcript.resolve))
    stored = await memory.state.get(CURSORS, f"{key}#{session}" if adapter.is_database else key)
    return cursor_from(stored).session or session


async def import_database(
    memory: Memory, database: Path, project: str | None, report: ImportReport, *, anew: bool
) -> None:
    """Records all sessions of OpenCode's database from their cursors, or with `anew` from their beginnings.

    Adds the result to `report`. Raises NotFound if there is no database, Unavailable if it cannot be read.
    """
    known: set[str] = set()
    if not project:
        named = {folder for *_, folder in await run_sync(opencode_database.sessions, database)}
        report.folders += await run_sync(lambda: sorted(folder for folder in named if Path(folder).is_dir()))
    async for done in _from_database(memory, database, "", record_session, project, anew=anew):
        report.add_session(done, is_first=done.session not in known)
        known.add(done.session)


def count_sessions(database: Path) -> int:
    """Returns the number of sessions in OpenCode's database, without subagents'. Raises as `import_database` does."""
    return sum(not parent for _, parent, _ in opencode_database.sessions(database))


async def _from_database(
    memory: Memory, database: Path, session: str, write: Write, project: str | None = None, *, anew: bool = False
) -> AsyncIterator[RecordedSession]:
    database = await run_sync(database.resolve)
    for found, parent, folder in await run_sync(opencode_database.sessions, database, session):
        key = f"{database}#{found}"
        stored = None if anew else await memory.state.get(CURSORS, key)
        messages = await run_sync(opencode_database.messages, database, found, stored["after"] if stored else "")
        main = (stored or {}).get("session") or parent or found
        for batch, last in _message_batches(messages, main, found if parent else ""):
            for part in sessions_in(batch, opencode.ADAPTER, folder, project):
                yield await write(memory, part)
            await memory.state.put(CURSORS, key, {"after": last, "session": batch.cursor.session})


def _message_batches(messages: list[dict[str, Any]], session: str, agent: str) -> Iterator[tuple[Batch, str]]:
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
