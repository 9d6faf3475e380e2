"""Compares the list of messages that an agent keeps with our live set of the same conversation.

Each message of the list is one turn of the transcript. `aligned` finds the turn of each message; `mirrored` returns the
list in the form of the live set: whole, shortened, or left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_server.model import Role, ToolCall, Turn
from mcp_server.relevance.chunks import LiveChunk, as_shown

Message = Mapping[str, Any]
"""`role` and `content`, and other fields of the agent. `content` is a text or a list of parts with `text`."""

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
"""Most cold chunks that the note names; it counts the others."""


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
    """Returns the text of a message; None for our own note and for a message without text (a bare tool call, an
    image)."""
    role = str(message.get("role", ""))
    content = message.get("content")
    if isinstance(content, list | tuple):
        content = "\n".join(part["text"] for part in content if _is_words(part))
    if not isinstance(content, str) or not content.strip() or content.startswith(NOTE) or role not in ROLES:
        return None
    tool = str(message.get("name") or "tool") if role in TOOL_ROLES else None
    return Said(ROLES[role], content, tool)


def face(turn: Turn, chunks: Mapping[int, LiveChunk]) -> Said:
    """Returns the current text of a turn's message, by the turn's chunks; for a cold one, a line that says so."""
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

    `chunks` are those of each turn, by part; `clean` returns a text as it is recorded. A message can have its original
    text, its text in the live set, or a text that was handed out earlier (`handed`: hash of the text → turn). Both
    lists are in the order of the conversation, so that the first of two equal messages is the earlier turn.
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
    """Returns the messages in the form of the live set. Messages that are whole in it are the same objects.

    `originals` are earlier messages that left or were shortened, by turn: those that are whole again return to their
    place. A message that another process handed out shortened (`handed`, as in `aligned`) gets the words of its turn
    again. `note` is inserted after the leading system messages, unless it is empty.
    """
    here = {number for number in numbers if number is not None}
    back = sorted(number for number in originals if number not in here and number in turns)
    made: list[Message] = []

    def put(number: int, message: Message) -> None:
        parts = chunks.get(number, {})
        whole = originals.get(number, message)
        if all(chunk.form == "whole" for chunk in parts.values()):
            short = (one := said(whole)) is not None and mark(one.text) in handed
            made.append(_saying(whole, face(turns[number], parts).text) if short else whole)
        elif any(chunk.form != "cold" for chunk in parts.values()) or _must_stay(whole):
            made.append(_saying(whole, face(turns[number], parts).text))

    for message, number in zip(messages, numbers, strict=True):
        while number is not None and back and back[0] < number:
            put(back[0], originals[back.pop(0)])
        if number is not None:
            put(number, message)
        elif not _is_note(message):
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
        words = " ".join(
            ((turn.content if chunk.part == 0 else f"[tool:{chunk.name}]") if turn else chunk.name).split()
        )
        lines.append(f"- {chunk.id}: {words[:60]}")
    for named in range(len(lines), -1, -1):
        more = [f"- {'and ' if named else ''}{len(cold) - named} {'more' if named else 'pieces'}"]
        note = "\n".join([NOTE, *lines[:named], *(more if len(cold) > named else [])])
        if cold and count(note) <= most:
            return note
    return ""


def _must_stay(message: Message) -> bool:
    """Returns whether a message has more than text. Models require an answer to every call, and a call to every
    answer."""
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else ()
    return (
        message.get("role") in TOOL_ROLES
        or bool(message.get("tool_calls") or message.get("function_call"))
        or any(not _is_words(part) for part in parts)
    )


def _saying(message: Message, text: str) -> Message:
    """Returns the message with another text; its other fields stay."""
    content = message.get("content")
    if isinstance(content, list | tuple):
        others = [part for part in content if not _is_words(part)]
        return {**message, "content": [{"type": "text", "text": text}, *others]}
    return {**message, "content": text}


def _is_words(part: object) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _is_note(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, str) and content.startswith(NOTE)
