"""Imports: conversations that happened elsewhere become sealed transcripts, markdown files become reference."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.actions.projects import claim, project_of
from mcp_server.core.model import GLOBAL, Caller, Delivery, Role, ToolCall, TranscriptHead, Turn
from mcp_server.core.projects import slugify
from mcp_server.core.source_keys import content_sha, missing
from mcp_server.core.text.redaction import redact
from mcp_server.core.text.titles import slug_of_title, title_of
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.memory import Memory
from mcp_server.store.changes import Change


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """One message of a conversation that happened elsewhere. `at` is aware, or UTC."""

    role: Role
    content: str
    at: datetime
    turn_id: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """One conversation, whole. `session_id` must be the same at every import of it; `source` is `import:FORMAT`."""

    session_id: str
    turns: tuple[ImportedTurn, ...]
    source: str
    title: str | None = None
    project: str | None = None
    model: str | None = None
    delivery: Delivery = "add"


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """What an import added. `path` is None if every turn was there before."""

    session: str
    path: str | None
    new_turns: int
    repeated_turns: int
    redacted: int = 0


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """What became of one file: new, same, changed or skipped; `why` it was skipped."""

    path: str
    status: str
    why: str = ""


async def record_session(memory: Memory, imported: ImportedSession) -> RecordedSession:
    """Records the turns that are not there yet as one sealed transcript, written in one piece. Importing it again adds
    nothing; if the session has grown since, what is new becomes a transcript that continues the first."""
    await sessions.ready(memory)
    turns = await run_sync(lambda: [_clean(turn, imported.source) for turn in imported.turns])
    async with memory.locks.transcript(imported.session_id):
        row = await sessions.current_row(memory, imported.session_id)
        keys = await memory.state.keys(imported.session_id) if row else []
        new = missing(keys, [(turn.role, content_sha(turn.content), turn.turn_id) for turn in turns])
        if not new:
            return RecordedSession(imported.session_id, None, 0, len(turns))
        if row is not None and row.status == "open":
            row = await sessions.seal(memory, row)
        first = row.turns + 1 if row else 1
        fresh = [replace(turns[place], number=number) for number, place in enumerate(new, start=first)]
        head = await _head(memory, imported, fresh, row.path if row else None)
        path = await run_sync(memory.transcripts.create_sealed, head, fresh)
        await sessions.restore(memory, path)
        await memory.state.put(sessions.PENDING_COMMITS, path, head.slug)
    memory.changes.publish(Change("session", path, imported.session_id))
    redacted = sum(bool(turn.redacted) for turn in fresh)
    return RecordedSession(imported.session_id, path, len(fresh), len(turns) - len(fresh), redacted)


async def import_markdown_file(memory: Memory, name: str, relative: str, data: bytes) -> ImportedFile:
    """Writes one markdown file under `knowledge/reference/{name}/`, secrets redacted; what cannot be read is skipped
    and says why. The same bytes again change nothing."""
    folder = slugify(name)
    if not folder:
        raise Invalid(f"{name!r} has no letter or digit to name the import by; pass another name")
    path = f"knowledge/reference/{folder}/{relative}"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return ImportedFile(path, "skipped", f"not UTF-8 text (byte {error.start})")
    if "\0" in text:
        return ImportedFile(path, "skipped", "binary: it holds NUL bytes")
    clean = redact(text).text
    try:
        return await run_sync(_written, memory, path, clean)
    except ContextManagerError as error:
        return ImportedFile(path, "skipped", str(error))


async def commit_import(memory: Memory, name: str, paths: list[str]) -> str:
    """Commits what one import wrote as one commit; returns its id, or a sentence why there is none."""
    waiting = await memory.state.entries(sessions.PENDING_COMMITS)
    everything = sorted({*paths, *waiting})
    if not everything or not memory.settings.git.auto_commit:
        return "nothing to commit" if not everything else "git.auto_commit is off"
    message = f"conversation: import {name}\n\n{len(everything)} files"
    try:
        async with memory.locks.git():
            committed = await run_sync(memory.git.commit, everything, message)
    except ContextManagerError as error:
        return f"not committed yet: {error}"
    for path in waiting:
        await memory.state.remove(sessions.PENDING_COMMITS, path)
    return committed or "nothing to commit"


def _written(memory: Memory, path: str, text: str) -> ImportedFile:
    before = memory.files.read_text(path) if memory.files.exists(path) else None
    if before is not None and _sha(before) == _sha(text):
        return ImportedFile(path, "same")
    memory.files.write_atomic(path, text)
    return ImportedFile(path, "new" if before is None else "changed")


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _clean(turn: ImportedTurn, source: str) -> Turn:
    content = redact(turn.content)
    calls = tuple(ToolCall(c.name, redact(c.summary).text, redact(c.result).text, c.files) for c in turn.tool_calls)
    at = turn.at.replace(tzinfo=UTC) if turn.at.tzinfo is None else turn.at.astimezone(UTC)
    return Turn(
        0, turn.role, content.text, at, turn.turn_id, turn.name, source, tool_calls=calls, redacted=content.kinds
    )


async def _head(memory: Memory, imported: ImportedSession, turns: list[Turn], continues: str | None) -> TranscriptHead:
    project = await project_of(memory, Caller(source=imported.source), imported.project) if imported.project else None
    if project is not None:
        await claim(memory, project)
    title = title_of(imported.title or turns[0].content)
    tokens = await run_sync(sessions.token_sums, memory, turns)
    return TranscriptHead(
        session_id=imported.session_id,
        started=turns[0].at,
        ended=turns[-1].at,
        title=title,
        slug=slug_of_title(title),
        project=project.key if project else GLOBAL,
        delivery=imported.delivery,
        model=imported.model,
        channel=imported.source,
        topic=title,
        tokens_in=tokens[0],
        tokens_out=tokens[1],
        continues=continues,
    )
