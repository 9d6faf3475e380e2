"""Observe: records a message; it is on disk before the call returns.

    check → redact → find the session → is it a repeat? → transcript (durable) → state → steps of `after_turn`
    → publish the change → topics (outside the lock: the gate may ask an LLM)

Each step is a function, in this order, below.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, cast, get_args

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.conversations.projects import claimed
from mcp_server.conversations.source_keys import TurnKey, content_sha, repeated
from mcp_server.errors import Conflict, Invalid
from mcp_server.memory import Memory
from mcp_server.model import Caller, Delivery, Kind, Role, ToolCall, TranscriptHead, Turn
from mcp_server.storage.values import Change, SessionRow
from mcp_server.text.markdown import read_moment, to_utc
from mcp_server.text.redaction import redact, redact_turn, secrets
from mcp_server.text.transcript_head import slug_of_title, title_of

ROLES: dict[str, Role] = {"user": "user", "agent": "agent", "assistant": "agent", "system": "system"}
LONGEST_ID = 200
MOST_TOKENS = 10**12
"""Largest token count that a client may give. A larger number is a mistake, and SQLite stores only 64 bits."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

RETRIED = timedelta(hours=1)
"""A message with a time that is later than that of an equal last message by more than this is another message."""


@dataclass(frozen=True, slots=True)
class ContextChunk:
    """An item besides messages that entered the client's context. `tokens` is the client's count."""

    type: Literal["file", "skill", "agent"]
    id: str
    tokens: int | None = None
    tags: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    mtime: datetime | None = None


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A message as it arrives. `at` without a time zone is UTC. Without `session`, the message goes to the caller's
    session, or to a new one."""

    role: str
    content: str
    session: str | None = None
    turn_id: str | None = None
    name: str | None = None
    at: datetime | None = None
    project: str | None = None
    kind: str | None = None
    delivery: str | None = None
    model: str | None = None
    channel: str | None = None
    important: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    chunks: tuple[ContextChunk, ...] = ()
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """The recorded turn. `recorded` is False for a repeat; `redacted` names the kinds of secrets that were removed."""

    session: str
    turn: int
    recorded: bool
    redacted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        """The answer for the model; its first line is the session's id."""
        lines = [
            f"session: {self.session}",
            f"turn {self.turn} {'recorded' if self.recorded else 'was already recorded'}",
        ]
        if self.redacted:
            lines.append(f"redacted before writing: {', '.join(sorted(set(self.redacted)))}")
        return "\n".join([*lines, *self.notes])


async def observe(memory: Memory, turn: NewTurn, caller: Caller) -> Observed:
    """Records one message durably. A repeat adds nothing and returns the turn that it repeats.

    Raises:
        Invalid: an unknown role, kind or delivery, an id that is malformed or a secret, a number, a time or a name that
            cannot be stored; nothing was recorded.
        Conflict: the session already has another kind or delivery.
        Unavailable: the disk refuses the write; nothing was recorded.
    """
    role = _checked(turn)
    session = turn.session or (None if caller.explicit_sessions else caller.session) or memory.new_id()
    arrived = memory.clock()
    said, sha = await _redacted(turn, role, arrived, caller.source)
    await sessions.ready(memory)

    async with memory.locks.transcript(session):
        known = await memory.state.recorded(session, role, sha, said.turn_id)
        row = await sessions.checked_row(memory, session, known.row)
        if row is not None:
            if row is not known.row:  # restored from its transcripts
                known = await memory.state.recorded(session, role, sha, said.turn_id)
            is_later = turn.at is not None and row.last_at is not None and said.at > row.last_at + RETRIED
            candidates = [key for key in (known.same_id, None if is_later else known.last) if key is not None]
            same = repeated(candidates, role, sha, said.turn_id)
            if same is not None:
                return Observed(session, same.number, recorded=False, redacted=said.redacted)
            row = await _named(memory, row, turn)
        if row is not None and row.status == "open" and sessions.is_idle(memory, row, arrived):
            row = await memory.rooms.close_session(memory, row)
        said = replace(said, number=row.turns + 1 if row else 1)
        async with sessions.continuing(memory, row if row and row.status == "closed" else None):
            row = await _written(memory, row, session, said, turn, caller, arrived)
            await memory.state.save_session(row, [TurnKey(said.number, role, sha, known.nth, said.turn_id)])
        notes = await memory.rooms.after_turn(memory, row, [said], turn.chunks)

    memory.changes.publish(Change("turn", row.path, session))
    notes += await memory.rooms.watch_topics(memory, row, [said], turn.chunks)
    return Observed(session, said.number, recorded=True, redacted=said.redacted, notes=notes)


def _checked(turn: NewTurn) -> Role:
    """Returns the role. Raises Invalid for a value that a later step could not store."""
    role = ROLES.get(turn.role)
    if role is None:
        raise Invalid(f"role {turn.role!r} is not one of {', '.join(ROLES)}")
    ids = (("session", turn.session), ("turn_id", turn.turn_id), ("name", turn.name), ("project", turn.project))
    for what, value in ids:
        if value is not None and (not value.strip() or len(value) > LONGEST_ID or _UNPRINTABLE.search(value)):
            raise Invalid(f"{what} must be 1 to {LONGEST_ID} printable characters; this one is not: {value[:40]!r}")
        if value is not None and what in ("session", "turn_id") and (found := secrets(value)):
            raise Invalid(f"{what} contains a secret ({found[0].kind}) and would be stored; pass another id")
    _moment("at", turn.at)
    _count("context_tokens", turn.context_tokens)
    for number, chunk in enumerate(turn.chunks):
        _count(f"chunks.{number}.tokens", chunk.tokens)
        _moment(f"chunks.{number}.mtime", chunk.mtime)
        if any(_SURROGATE.search(text) for text in (chunk.id, *chunk.tags, *chunk.topics)):
            raise Invalid(f"chunks.{number} has half a surrogate pair in its id, tags or topics; send valid Unicode")
    _one_of("kind", turn.kind, get_args(Kind))
    _one_of("delivery", turn.delivery, get_args(Delivery))
    return role


def _moment(field: str, value: datetime | None) -> None:
    if value is not None and read_moment(value) is None:
        raise Invalid(f"{field} {value.isoformat()!r} is not between the years 1 and 9999 in UTC")


def _count(field: str, value: int | None) -> None:
    if value is not None and not 0 <= value <= MOST_TOKENS:
        raise Invalid(f"{field} must be a number of tokens from 0 to {MOST_TOKENS:,}, not {value}")


def _one_of(field: str, value: str | None, known: tuple[str, ...]) -> None:
    if value is not None and value not in known:
        raise Invalid(f"{field} {value!r} is not one of {', '.join(known)}")


async def _redacted(turn: NewTurn, role: Role, arrived: datetime, source: str) -> tuple[Turn, str]:
    """Returns the turn without secrets in content, tool calls and speaker's name, and the SHA-256 of its content."""

    def clean() -> tuple[Turn, str]:
        said = Turn(
            number=0,
            role=role,
            content=turn.content,
            at=to_utc(turn.at or arrived),
            turn_id=turn.turn_id,
            name=turn.name,
            source=source,
            important=turn.important,
            context_tokens=turn.context_tokens,
            tool_calls=turn.tool_calls,
        )
        said = redact_turn(said)
        return said, content_sha(said.content)

    size = len(turn.content) + sum(len(call.summary) + len(call.result) for call in turn.tool_calls)
    return await run_sync(clean) if size > 20_000 else clean()


async def _named(memory: Memory, row: SessionRow, turn: NewTurn) -> SessionRow:
    """Sets the session's kind and delivery, also in the front matter, if this is the first call that names them."""
    for what, known, given in (("kind", row.kind, turn.kind), ("delivery", row.delivery, turn.delivery)):
        if given is not None and known is not None and given != known:
            raise Conflict(f"session {row.session} has {what} {known!r} already; open another session for {given!r}")
    kind, delivery = _kind_and_delivery(row, turn)
    if (kind, delivery) == (row.kind, row.delivery) or row.status == "closed":
        return row
    return await sessions.rename_head(memory, row, kind, delivery)


def _kind_and_delivery(row: SessionRow | None, turn: NewTurn) -> tuple[Kind | None, Delivery | None]:
    """Returns the session's kind and delivery, as given by the first call that named them."""
    known = (row.kind, row.delivery) if row else (None, None)
    return known[0] or cast("Kind | None", turn.kind), known[1] or cast("Delivery | None", turn.delivery)


def _clean(text: str | None) -> str | None:
    return redact(text).text if text else None


async def _written(
    memory: Memory, row: SessionRow | None, session: str, said: Turn, turn: NewTurn, caller: Caller, arrived: datetime
) -> SessionRow:
    """Writes the turn into the open transcript, or as the first turn of a new one. Returns the session's new row."""
    if row is not None and row.status == "open":
        size = await run_sync(memory.transcripts.append, row.path, said, row.size, row.last_at)
        return replace(row, turns=said.number, last_at=said.at, last_arrival=arrived, size=size)

    project = row.project if row else await claimed(memory, caller, turn.project)
    title = title_of(said.content)
    kind, delivery = _kind_and_delivery(row, turn)
    head = TranscriptHead(
        session_id=session,
        started=said.at,
        title=title,
        slug=slug_of_title(title),
        project=project,
        kind=kind or "main",
        delivery=delivery or "add",
        timezone=memory.timezone,
        model=_clean(turn.model),
        channel=_clean(turn.channel or caller.client),
        continues=row.path if row else None,
    )
    path, size = await run_sync(memory.transcripts.create, head, said)
    new = sessions.row_of(head, path, size, said, row)
    opened = row.opened if row else arrived
    return replace(new, kind=kind, delivery=delivery, opened=opened, last_arrival=arrived)
