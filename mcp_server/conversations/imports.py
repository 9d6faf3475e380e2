"""Imports conversations of other programs as transcripts, and markdown files as reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from anyio.to_thread import run_sync

from mcp_server.conversations import closed_sessions, sessions
from mcp_server.conversations.projects import claimed
from mcp_server.conversations.source_keys import TurnKey, content_sha, counts_of, keys_of, missing, sort_out
from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.memory import Memory
from mcp_server.model import Caller, Delivery, Kind, Role, ToolCall, TranscriptHead, Turn, slugify
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.markdown import to_utc
from mcp_server.text.redaction import redact, redact_turn
from mcp_server.text.transcript_head import slug_of_title, title_of

FULL = 8 * 1024 * 1024
"""Bytes of an open transcript above which a conversation continues in another one, so that reading one stays fast."""


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """One message of an imported conversation. `at` without a time zone is UTC."""

    role: Role
    content: str
    at: datetime
    turn_id: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """An imported conversation, or its next part if all turns have ids.

    `session_id` must be the same at every import of it; `source` is `import:FORMAT`. `folder` is the folder in which
    the conversation took place; it determines the project if `project` is missing. `unique_ids`: the ids are unique
    across sessions, so a turn that another session has recorded is a copy.
    """

    session_id: str
    turns: tuple[ImportedTurn, ...]
    source: str
    title: str | None = None
    project: str | None = None
    model: str | None = None
    delivery: Delivery = "add"
    kind: Kind = "main"
    folder: str | None = None
    unique_ids: bool = False


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """The result of an import. `path` is None if every turn was recorded before. `copied` is the number of repeated
    turns that another session has recorded."""

    session: str
    path: str | None
    new_turns: int
    repeated_turns: int
    redacted: int = 0
    copied: int = 0


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The result for one file: new, same, changed or skipped, and why it was skipped."""

    path: str
    status: str
    why: str = ""


async def record_session(memory: Memory, imported: ImportedSession) -> RecordedSession:
    """Records the new turns as one sealed transcript, in one write. Importing the same again adds nothing; if the
    session has grown, the new turns become a transcript that continues the first."""
    await sessions.ready(memory)
    turns = await _cleaned(memory, imported)
    async with memory.locks.transcript(imported.session_id):
        row = await sessions.current_row(memory, imported.session_id)
        new = await _new_turns(memory, imported, turns, row)
        if not (fresh := new.turns):
            return _recorded(imported, None, turns, new)
        if row is not None and row.status == "open":
            row = await memory.rooms.close_session(memory, row)
        head = await _head(memory, imported, fresh, row)
        tokens = await run_sync(sessions.token_sums, memory, fresh)
        head = replace(head, ended=fresh[-1].at, topic=head.title, tokens_in=tokens[0], tokens_out=tokens[1])
        async with sessions.continuing(memory, row):
            path, size = await run_sync(lambda: memory.transcripts.create(head, *fresh, sealed=True))
            row = sessions.row_of(head, path, size, fresh[-1], row)
            await memory.state.save_session(row, new.keys)
            await memory.state.put(closed_sessions.PENDING_COMMITS, path, head.session_id)
            await closed_sessions.queue_extraction(memory, path, imported.session_id)
    memory.changes.publish(Change("session", path, imported.session_id))
    return _recorded(imported, path, turns, new)


async def append_turns(memory: Memory, imported: ImportedSession) -> RecordedSession:
    """Appends the new turns durably to the session's open transcript. If there is none, or it is idle or large, a new
    transcript continues it and stays open."""
    await sessions.ready(memory)
    turns = await _cleaned(memory, imported)
    arrived = memory.clock()
    async with memory.locks.transcript(imported.session_id):
        row = await sessions.current_row(memory, imported.session_id)
        new = await _new_turns(memory, imported, turns, row)
        if not (fresh := new.turns):
            return _recorded(imported, None, turns, new)
        if row is not None and row.status == "open" and (sessions.is_idle(memory, row, arrived) or row.size > FULL):
            row = await memory.rooms.close_session(memory, row)
        if row is not None and row.status == "open":
            size = await run_sync(memory.transcripts.append, row.path, fresh, row.size, row.last_at)
            row = replace(row, turns=fresh[-1].number, last_at=fresh[-1].at, last_arrival=arrived, size=size)
            await memory.state.save_session(row, new.keys)
        else:
            head = replace(await _head(memory, imported, fresh, row), timezone=memory.timezone)
            async with sessions.continuing(memory, row):
                path, size = await run_sync(lambda: memory.transcripts.create(head, *fresh))
                row = replace(sessions.row_of(head, path, size, fresh[-1], row), last_arrival=arrived)
                await memory.state.save_session(row, new.keys)
        await memory.rooms.after_turn(memory, row, fresh, ())
    memory.changes.publish(Change("turn", row.path, imported.session_id))
    await memory.rooms.watch_topics(memory, row, fresh, ())
    return _recorded(imported, row.path, turns, new)


async def import_markdown_file(memory: Memory, name: str, relative: str, data: bytes) -> ImportedFile:
    """Writes one markdown file under `knowledge/reference/{name}/` without secrets. A file that cannot be read is
    skipped with a reason; the same bytes again change nothing."""
    folder = slugify(name)
    if not folder:
        raise Invalid(f"{name!r} has no letter or digit to name the import by; pass another name")
    path = f"knowledge/reference/{folder}/{relative}"
    if redact(relative).kinds:
        return ImportedFile(redact(path).text, "skipped", "its name holds a secret")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return ImportedFile(path, "skipped", f"not UTF-8 text (byte {error.start})")
    if "\0" in text:
        return ImportedFile(path, "skipped", "binary: it holds NUL bytes")
    try:
        return await run_sync(_written, memory, path, text)
    except ContextManagerError as error:
        return ImportedFile(path, "skipped", str(error))


def _written(memory: Memory, path: str, text: str) -> ImportedFile:
    path = memory.forgotten.path(path)
    clean = memory.forgotten.document(path, redact(text).text)
    if clean is None:
        return ImportedFile(path, "skipped", "it was forgotten on request")
    before = memory.files.text_or_none(path)
    if before == clean:
        return ImportedFile(path, "same")
    memory.files.write_atomic(path, clean)
    return ImportedFile(path, "new" if before is None else "changed")


async def _cleaned(memory: Memory, imported: ImportedSession) -> list[Turn]:
    """Returns the turns without secrets and without text that was forgotten on request."""

    def clean(given: ImportedTurn) -> Turn:
        turn = Turn(
            number=0,
            role=given.role,
            content=given.content,
            at=to_utc(given.at),
            turn_id=given.turn_id,
            name=given.name,
            source=imported.source,
            context_tokens=given.context_tokens,
            tool_calls=given.tool_calls,
        )
        return memory.forgotten.turn(redact_turn(turn), imported.session_id)

    return await run_sync(lambda: [clean(turn) for turn in imported.turns])


@dataclass(frozen=True, slots=True)
class _New:
    """The new turns of an import with their numbers, their keys, and the number of copies among the other turns."""

    turns: list[Turn]
    keys: list[TurnKey]
    copied: int = 0


async def _new_turns(memory: Memory, imported: ImportedSession, turns: list[Turn], row: SessionRow | None) -> _New:
    """Returns the turns that are not recorded yet. Recorded turns without an id get the id of the imported turn."""
    session, copied = imported.session_id, 0
    sequence = [(turn.role, content_sha(turn.content), turn.turn_id) for turn in turns]
    with_ids = [(role, sha, turn_id) for role, sha, turn_id in sequence if turn_id]
    counts: Mapping[tuple[Role, str], int]
    if len(with_ids) < len(turns):  # then `nth` must be counted over the whole sequence
        keys = await memory.state.keys(session) if row else []
        places, counts = missing(keys, sequence), counts_of(keys)
    else:
        known = await memory.state.known(session, with_ids, anywhere=imported.unique_ids)
        places, named = sort_out(known, with_ids)
        if named:
            await memory.state.name_turns(session, named)
        copied = sum(turn_id in known.elsewhere and turn_id not in known.ids for _, _, turn_id in with_ids)
        counts = known.counts
    first = row.turns + 1 if row else 1
    fresh = [replace(turns[place], number=number) for number, place in enumerate(places, start=first)]
    return _New(fresh, keys_of(fresh, counts), copied)


async def _head(memory: Memory, imported: ImportedSession, turns: list[Turn], row: SessionRow | None) -> TranscriptHead:
    """Returns the front matter of a new transcript. A session keeps its project, kind and delivery."""
    caller = Caller(source=imported.source, folder=imported.folder)
    project = row.project if row else await claimed(memory, caller, imported.project)
    spoken = next((turn for turn in turns if turn.role != "system"), turns[0])
    title = title_of(memory.forgotten.clean(redact(imported.title).text if imported.title else spoken.content))
    return TranscriptHead(
        session_id=imported.session_id,
        started=turns[0].at,
        title=title,
        slug=slug_of_title(title),
        project=project,
        kind=(row.kind if row else None) or imported.kind,
        delivery=(row.delivery if row else None) or imported.delivery,
        model=redact(imported.model).text if imported.model else None,
        channel=imported.source,
        continues=row.path if row else None,
    )


def _recorded(imported: ImportedSession, path: str | None, turns: list[Turn], new: _New) -> RecordedSession:
    redacted, repeated = sum(bool(turn.redacted) for turn in new.turns), len(turns) - len(new.turns)
    return RecordedSession(imported.session_id, path, len(new.turns), repeated, redacted, new.copied)
