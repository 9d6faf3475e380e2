"""ContextLoop: for an agent that has its own list of messages, which the memory shortens.

    loop = memory.loop(get_context=lambda: messages, set_context=messages_become)

    status = await loop.before_response(max_tokens=100_000)
    if status.needs_compaction:
        await loop.compact()
    …
    await loop.session_end()

`before_response` records the new messages of the list, so that the agent need not call `observe`. Messages are stored
in cold storage before they leave the list. Chunks that are recovered, automatically or by `recover`, return to it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from mcp_server.checkpoints import checkpoint
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller, Role, ToolCall, Turn
from mcp_server.pressure import pressure
from mcp_server.relevance.chunks import LiveChunk, as_shown
from mcp_server.relevance.live_set import Lookups, live_set
from mcp_server.settings import Settings
from mcp_server.text.prose import clipped
from mcp_server.text.redaction import redact

Message = Mapping[str, Any]
"""A message: `role`, `content`, and other fields of the agent. `content` is a text or a list of parts with `text`."""

ROLES: Mapping[str, Role] = {
    "user": "user",
    "assistant": "agent",
    "agent": "agent",
    "model": "agent",
    "system": "system",
    "developer": "system",
    "tool": "agent",
    "function": "agent",
}
TOOL_ROLES = ("tool", "function")
NOTE = "[memory] These pieces of the conversation left this context to make room, and can be recovered by their ids:"
NOTED = 12
"""Most cold chunks that the note names. The note only counts the others."""


@dataclass(frozen=True, slots=True)
class Said:
    """The text of a message, or of a tool's result."""

    role: Role
    text: str
    tool: str | None = None

    @property
    def content(self) -> str:
        """Returns the content of its turn."""
        return "" if self.tool else self.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Returns the tool calls of its turn."""
        return (ToolCall(self.tool, "", self.text),) if self.tool else ()


def said(message: Message) -> Said | None:
    """Returns the text of a message; None for the note about cold chunks, and for a message without text (only a tool
    call or an image)."""
    role, text = str(message.get("role", "")), _text(message)
    if not text.strip() or text.startswith(NOTE) or role not in ROLES:
        return None
    tool = str(message.get("name") or "tool") if role in TOOL_ROLES else None
    return Said(ROLES[role], text, tool)


def face(turn: Turn, chunks: Mapping[int, LiveChunk]) -> Said:
    """Returns the current text of a turn's message, according to the turn's chunks; for a cold chunk, a line that says
    so."""
    tool = turn.tool_calls[0].name if not turn.content and len(turn.tool_calls) == 1 else None
    shown = as_shown(turn, chunks)
    chunk = chunks.get(1 if tool else 0)
    text = ""
    if shown is not None:
        text = shown.tool_calls[0].result if tool and shown.tool_calls else shown.content
    if not text and chunk is not None and chunk.form != "whole":
        text = f"[{'a result' if tool else 'words'} left this context; recover {chunk.id} brings them back]"
    return Said(turn.role, text, tool)


def mark(text: str) -> str:
    """Returns a short hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def aligned(
    messages: Sequence[Message],
    turns: Sequence[Turn],
    chunks: Mapping[int, Mapping[int, LiveChunk]],
    clean: Callable[[str], str],
    handed: Mapping[str, int],
) -> list[int | None]:
    """Returns the turn number of each message; None for a new message and for one that is not recorded.

    `chunks` maps turn number and part to chunk; `clean` returns a text as it is recorded. A message can have its
    original text, its text in the live set, or a text that was passed to the agent earlier (`handed`: hash of the text
    → turn). Both lists are in the order of the conversation, so the first of two equal messages is the earlier turn.
    """
    places: dict[tuple[Role, str], list[int]] = {}
    by_number = {turn.number: place for place, turn in enumerate(turns)}
    for place, turn in enumerate(turns):
        now = face(turn, chunks.get(turn.number, {}))
        for text in {now.text, turn.tool_calls[0].result if now.tool else turn.content}:
            places.setdefault((turn.role, text), []).append(place)
    numbers: list[int | None] = []
    behind = -1
    for message in messages:
        one = said(message)
        known = places.get((one.role, clean(one.text)), []) if one else []
        found = next((place for place in known if place > behind), None)
        if found is None and one is not None:
            found = by_number.get(handed.get(mark(one.text), 0))
        numbers.append(None if found is None else turns[found].number)
        behind = behind if found is None else found
    return numbers


def mirrored(
    messages: Sequence[Message],
    numbers: Sequence[int | None],
    turns: Mapping[int, Turn],
    chunks: Mapping[int, Mapping[int, LiveChunk]],
    originals: Mapping[int, Message],
    handed: Mapping[str, int],
    note: str,
) -> list[Message]:
    """Returns the messages as the live set has them. Messages that are whole in it are returned as the same objects.

    `originals` maps turns to earlier messages that left the list or were shortened; messages that are whole again
    return to their place. A message that another process shortened (`handed`, as in `aligned`) gets the full text of
    its turn again. `note` is inserted after the leading system messages, unless it is empty.
    """
    here = {number for number in numbers if number is not None}
    back = sorted(number for number in originals if number not in here and number in turns)
    made: list[Message] = []

    def put(number: int, message: Message) -> None:
        parts = chunks.get(number, {})
        whole = originals.get(number, message)
        if all(chunk.form == "whole" for chunk in parts.values()):
            short = (one := said(whole)) is not None and mark(one.text) in handed
            made.append(_with_text(whole, face(turns[number], parts).text) if short else whole)
        elif any(chunk.form != "cold" for chunk in parts.values()) or _must_stay(whole):
            made.append(_with_text(whole, face(turns[number], parts).text))

    for message, number in zip(messages, numbers, strict=True):
        while number is not None and back and back[0] < number:
            put(back[0], originals[back.pop(0)])
        if number is not None:
            put(number, message)
        elif not _text(message).startswith(NOTE):
            made.append(message)
    for number in back:
        put(number, originals[number])
    if note:
        leading = next(
            (place for place, one in enumerate(made) if ROLES.get(str(one.get("role"))) != "system"), len(made)
        )
        made.insert(leading, {"role": "system", "content": note})
    return made


def note_of(turns: Mapping[int, Turn], cold: Sequence[LiveChunk], most: int, count: Callable[[str], int]) -> str:
    """Returns the note that names cold chunks, in at most `most` tokens: the newest first, one line each, then the
    number of the others. Empty if nothing is cold or the note does not fit."""
    newest = sorted(cold, key=lambda chunk: (chunk.turn, chunk.part), reverse=True)[:NOTED]
    lines = []
    for chunk in newest:
        turn = turns.get(chunk.turn)
        words = (turn.content if chunk.part == 0 else f"[tool:{chunk.name}]") if turn else chunk.name
        lines.append(f"- {chunk.id}: {clipped(words, 60)}")
    for named in range(len(lines), -1, -1):
        more = [f"- {'and ' if named else ''}{len(cold) - named} {'more' if named else 'pieces'}"]
        note = "\n".join([NOTE, *lines[:named], *(more if len(cold) > named else [])])
        if cold and count(note) <= most:
            return note
    return ""


def _must_stay(message: Message) -> bool:
    """Returns whether a message has tool calls, a tool result or parts without text. Such a message stays in the list:
    models require a result for every tool call, and a tool call for every result."""
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    return (
        message.get("role") in TOOL_ROLES
        or bool(message.get("tool_calls") or message.get("function_call"))
        or any(not _is_text_part(part) for part in parts)
    )


def _with_text(message: Message, text: str) -> Message:
    """Returns the message with another text; its other fields stay."""
    content = message.get("content")
    if isinstance(content, list | tuple):
        others = [part for part in content if not _is_text_part(part)]
        return {**message, "content": [{"type": "text", "text": text}, *others]}
    return {**message, "content": text}


def _is_text_part(part: object) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _text(message: Message) -> str:
    """Returns the text of a message, or the texts of its parts."""
    content = message.get("content")
    if isinstance(content, list | tuple):
        return "\n".join(part["text"] for part in content if _is_text_part(part))
    return content if isinstance(content, str) else ""


__all__ = ["Compacted", "ContextLoop", "LoopStatus", "Message"]

GetContext = Callable[[], Sequence[Message] | Awaitable[Sequence[Message]]]
SetContext = Callable[[list[Message]], Awaitable[None] | None]
NOTE_TOKENS, NOTE_SHARE = 200, 0.05
"""Limits of the note about cold chunks: in tokens, and as a share of the window."""

HANDED = "loop"
"""Namespace of the state: session → the shortened texts in an agent's list, as hash → turn."""

CountTokens = Callable[[], int | Awaitable[int]]


@dataclass(frozen=True, slots=True)
class LoopStatus:
    """How full the context is. `why` is the reason for `needs_compaction`: the context is too full, or the live set
    differs from the list (chunks left or came back)."""

    session: str
    tokens: int
    max_tokens: int
    needs_compaction: bool
    why: str = ""

    @property
    def pct_used(self) -> float:
        """Returns the share of `max_tokens` that is used."""
        return self.tokens / self.max_tokens


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of `compact`. `dropped` and `shortened` are ids for `recover`."""

    tokens_before: int
    tokens_after: int
    dropped: tuple[str, ...]
    shortened: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Matched:
    """The list of messages, with the turn and the chunks of each."""

    messages: list[Message]
    numbers: list[int | None]
    turns: dict[int, Turn]
    chunks: dict[int, dict[int, LiveChunk]]


class ContextLoop:
    """One conversation of an agent. Made by `AgentMemory.loop`.

    Args:
        get_context: returns the current messages: mappings with `role` and `content`.
        set_context: receives the messages of the new context; those that stay whole are the same objects.
        get_token_count: returns the tokens of the whole context as your model counts them, including tools and formats.
            By default only the messages are counted, with `TokenCounter`.
    """

    def __init__(
        self,
        memory: Memory,
        caller: Caller,
        get_context: GetContext,
        set_context: SetContext,
        get_token_count: CountTokens | None = None,
        session: str | None = None,
        project: str | None = None,
    ) -> None:
        self._memory, self._caller, self._project = memory, caller, project
        self._get_context, self._set_context, self._count = get_context, set_context, get_token_count
        self._session = session or memory.new_id()
        self._max_tokens = memory.settings.context.limit_tokens
        self._originals: dict[int, Message] = {}
        self._handed: dict[str, int] | None = None
        self._cleaned: dict[bytes, str] = {}

    @property
    def session(self) -> str:
        """Returns the conversation's id, for `compile`, `recover` and the commands."""
        return self._session

    async def before_response(self, max_tokens: int) -> LoopStatus:
        """Records the new messages durably, and returns whether `compact` has something to do.

        `max_tokens` is the size of the model's window; shares in the settings (`context.compaction_trigger_pct`) refer
        to it.
        """
        self._max_tokens = max_tokens
        matched = await self._record_new()
        tokens = await self._tokens(matched.messages)
        trigger = self._memory.settings.context.compaction_trigger_pct
        why = ""
        if tokens >= trigger * max_tokens:
            why = f"{tokens:,} of {max_tokens:,} tokens, over {trigger:.0%}"
        elif self._as_live(matched) != matched.messages:
            why = "chunks have left the live set or returned to it"
        return LoopStatus(self._session, tokens, max_tokens, bool(why), why)

    async def compact(self) -> Compacted:
        """Shortens the context until it fits, and passes it to `set_context`. Drops irrelevant chunks first, shortens
        tool results to one line, and summarizes other chunks. The originals are on disk before."""
        matched = await self._record_new()
        before = await self._tokens(matched.messages)
        trigger = self._memory.settings.context.compaction_trigger_pct
        around = before - self._own_count(matched.messages)
        target = max(0, int(trigger * self._max_tokens) - 1 - around - self._note_tokens)
        chunks = [chunk for parts in matched.chunks.values() for chunk in parts.values()]
        if sum(chunk.tokens for chunk in chunks if chunk.form != "cold") > target:
            memory = self._scaled(around)
            async with memory.locks.transcript(self._session):
                lookups = Lookups(memory, self._session, list(matched.turns.values()))
                event = await pressure.plan(memory, lookups, "compaction", asked=True, target=target)
                if event.changes:
                    await checkpoint.before(self._memory, self._session, "compaction")
                await pressure.carry_out(memory, event)
            matched = replace(matched, chunks=await self._chunks())
        after = self._as_live(matched)
        for number, message in zip(matched.numbers, matched.messages, strict=True):
            if number is not None and any(chunk.form != "whole" for chunk in matched.chunks.get(number, {}).values()):
                self._originals.setdefault(number, message)
        await self._hand_out(matched)
        await _maybe_async(self._set_context(after))
        forms = [chunk for parts in matched.chunks.values() for chunk in parts.values()]
        return Compacted(
            before,
            await self._tokens(after),
            tuple(chunk.id for chunk in forms if chunk.form == "cold"),
            tuple(chunk.id for chunk in forms if chunk.form not in ("cold", "whole")),
        )

    async def session_end(self) -> None:
        """Records the remaining messages and closes the conversation: its chunks go to cold storage, its transcript is
        sealed."""
        await self._record_new()
        if await self._memory.state.session(self._session) is not None:
            await sessions.end_session(self._memory, self._session)
        await self._memory.state.remove(HANDED, self._session)
        self._originals.clear()

    # ------------------------------------------------------------ the list and the memory

    async def _record_new(self) -> _Matched:
        """Records the new messages and returns the list."""
        messages = list(cast(Sequence[Message], await _maybe_async(self._get_context())))
        matched = await self._match(messages)
        last = max(matched.turns, default=0)
        around = await self._tokens(messages) - self._own_count(messages)
        memory = self._scaled(around)
        new = [
            one
            for number, message in zip(matched.numbers, messages, strict=True)
            if number is None and (one := said(message))
        ]
        for place, one in enumerate(new, start=1):
            turn = NewTurn(
                role=one.role,
                content=one.content,
                session=self._session,
                turn_id=f"loop-{last + place}",  # so that two equal messages in a row are two turns
                project=self._project,
                delivery="replace",
                tool_calls=one.tool_calls,
            )
            await observe(memory, turn, self._caller)
        return await self._match(messages) if new else matched

    async def _match(self, messages: list[Message]) -> _Matched:
        row = await self._memory.state.session(self._session)
        turns = await sessions.session_turns(self._memory, self._session) if row is not None else ()
        chunks = await self._chunks() if turns else {}
        if self._handed is None:
            self._handed = dict(await self._memory.state.get(HANDED, self._session) or {})
        numbers = aligned(messages, turns, chunks, self._clean, self._handed)
        return _Matched(messages, numbers, {turn.number: turn for turn in turns}, chunks)

    async def _hand_out(self, matched: _Matched) -> None:
        """Stores the shortened texts of the list, so that they are not recorded as new messages, even when their chunks
        are whole again."""
        short = {
            mark(face(matched.turns[number], parts).text): number
            for number, parts in matched.chunks.items()
            if number in matched.turns and any(chunk.form != "whole" for chunk in parts.values())
        }
        self._handed = {**(self._handed or {}), **short}
        await self._memory.state.put(HANDED, self._session, self._handed)

    async def _chunks(self) -> dict[int, dict[int, LiveChunk]]:
        chunks: dict[int, dict[int, LiveChunk]] = {}
        for chunk in await live_set(self._memory, self._session):
            if chunk.kind in ("message", "tool"):
                chunks.setdefault(chunk.turn, {})[chunk.part] = chunk
        return chunks

    def _as_live(self, matched: _Matched) -> list[Message]:
        cold = [chunk for parts in matched.chunks.values() for chunk in parts.values() if chunk.form == "cold"]
        note = note_of(matched.turns, cold, self._note_tokens, self._memory.tokens.count)
        return mirrored(
            matched.messages, matched.numbers, matched.turns, matched.chunks, self._originals, self._handed or {}, note
        )

    async def _tokens(self, messages: Sequence[Message]) -> int:
        """Returns the tokens of the whole context."""
        if self._count is None:
            return self._own_count(messages)
        return int(cast(int, await _maybe_async(self._count())))

    def _own_count(self, messages: Sequence[Message]) -> int:
        return sum(self._memory.tokens.count(text) for text in map(_text, messages) if text)

    @property
    def _note_tokens(self) -> int:
        """Returns the most tokens of the note about cold chunks."""
        return min(NOTE_TOKENS, int(NOTE_SHARE * self._max_tokens))

    def _scaled(self, around: int) -> Memory:
        """Returns the memory with the context limit of this model's window, less `around`, the tokens outside of the
        messages, and less the tokens of the note."""
        knobs = self._memory.settings.context
        limit = max(1, int(self._max_tokens - (around + self._note_tokens) / knobs.compaction_trigger_pct))
        settings: Settings = self._memory.settings.model_copy(
            update={"context": knobs.model_copy(update={"limit_tokens": limit})}
        )
        return replace(self._memory, settings=settings)

    def _clean(self, text: str) -> str:
        """Returns a text as it is recorded: without secrets."""
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if key not in self._cleaned:
            self._cleaned[key] = redact(text).text
        return self._cleaned[key]


async def _maybe_async(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
