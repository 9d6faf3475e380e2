"""Reads the export of ChatGPT: `conversations.json`, a list of

    {id, title, create_time, current_node, mapping: {node: {message, parent, children}}}
    message: {id, author: {role, name}, create_time, content: {content_type, parts}, recipient, weight, metadata}

`mapping` is a tree. The path from its root to `current_node` is imported; messages on other branches are counted. Calls
of tools (an assistant's message to a `recipient`) and their results become tool calls of the next answer. Footnotes
(text between private characters) are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from mcp_server.clients.adapters.adapter import as_mapping
from mcp_server.clients.importers.imported import (
    EPOCH,
    Skipped,
    as_text,
    mappings_in,
    one_line,
    plain_id,
    session_of,
    time_of_epoch,
    tool_call,
)
from mcp_server.conversations.imports import ImportedSession, ImportedTurn
from mcp_server.model import ToolCall

MARKS = ('"mapping"', '"current_node"')
"""Keys of which at least one is near the start of every file of this format."""

_REASONING = frozenset({"thoughts", "reasoning_recap"})
_SETTINGS = frozenset({"user_editable_context", "model_editable_context"})
_PLACEHOLDERS = {
    "image_asset_pointer": "[image]",
    "audio_asset_pointer": "[audio]",
    "video_container_asset_pointer": "[video]",
}
_MARKED = re.compile(r"(?<![ \t])[ \t]*\ue200([^\ue200\ue201]*)\ue201")
"""A mark: a footnote, links, a picture (`cite`, `turn0search3`), or words of the text (`entity`, `url`)."""
_LEFT_OVER = re.compile("[\ue200-\ue206]")
_KEPT_PARTS = frozenset({"audio_transcription", "text"})


def session(conversation: object, place: int, project: str | None = None) -> Iterator[ImportedSession | Skipped]:
    """Yields the session made from one conversation of the list, and the parts that were left out."""
    if not isinstance(conversation, Mapping) or not isinstance(conversation.get("mapping"), Mapping):
        yield Skipped(f"conversation {place}", "not an object with `mapping`")
        return
    title = one_line(conversation.get("title"), "")
    shown = title or f"conversation {place}"
    mapping = {str(key): node for key, node in conversation["mapping"].items() if isinstance(node, Mapping)}
    branch = _branch(mapping, conversation.get("current_node"))
    left = sum(bool(node.get("message")) for key, node in mapping.items() if key not in branch)
    yield from [Skipped(shown, "message on a branch that was left")] * left
    reading = _TurnBuilder(time_of_epoch(conversation.get("create_time")) or EPOCH)
    for key in branch:
        if isinstance(message := mapping[key].get("message"), Mapping) and (why := reading.read(message, key)):
            yield Skipped(shown, why)
    given = conversation.get("conversation_id") or conversation.get("id")
    model = reading.model or conversation.get("default_model_slug")
    yield session_of("chatgpt", given, title, shown, reading.finish(), project, model)


class _TurnBuilder:
    def __init__(self, at: datetime) -> None:
        self.model: str | None = None
        self._at = at
        self._turns: list[ImportedTurn] = []
        self._calls: list[ToolCall] = []
        self._first_call = ""

    def read(self, message: Mapping[str, Any], node: str) -> str:
        """Adds one message. Returns why it is left out, or ""."""
        metadata, author = as_mapping(message.get("metadata")), as_mapping(message.get("author"))
        content = as_mapping(message.get("content"))
        role, kind = author.get("role"), str(content.get("content_type"))[:40]
        text = _text(content, metadata)
        self._at = time_of_epoch(message.get("create_time")) or self._at
        if metadata.get("is_visually_hidden_from_conversation") is True:
            return "hidden message"
        if kind in _SETTINGS or metadata.get("is_user_system_message") is True:
            return "custom instructions"
        if kind in _REASONING:
            return "reasoning"
        if role == "system":
            return "system message"
        if role == "tool":
            return self._answered(str(author.get("name") or ""), text)
        if role not in ("user", "assistant"):
            return f"role {str(role)[:40]!r}"
        if message.get("weight") == 0:
            return "message of weight 0"
        if not text.strip():
            return "message without text" if kind in ("text", "multimodal_text", "code") else f"content of type {kind}"
        turn_id = plain_id(message.get("id") or node, ImportedTurn("user", text, self._at))
        recipient = as_text(message.get("recipient"))
        if role == "assistant" and recipient not in ("", "all"):
            self._first_call = self._first_call or turn_id
            self._calls.append(tool_call(recipient, {"content": text}, "", None))
            return ""
        if role == "user":
            self._close_calls()
            self._turns.append(ImportedTurn("user", text, self._at, turn_id))
            return ""
        self.model = as_text(metadata.get("model_slug")) or self.model
        calls, self._calls, self._first_call = tuple(self._calls), [], ""
        self._turns.append(ImportedTurn("agent", text, self._at, turn_id, tool_calls=calls))
        return ""

    def finish(self) -> list[ImportedTurn]:
        self._close_calls()
        return self._turns

    def _answered(self, tool: str, text: str) -> str:
        """Adds a tool's result to the last open call of that tool, else to the last open call."""
        waiting = [place for place, call in enumerate(self._calls) if not call.result]
        if not waiting:
            return "tool result without its call"
        place = next((at for at in reversed(waiting) if self._calls[at].name == tool), waiting[-1])
        answered = tool_call(self._calls[place].name, {}, text, None)
        self._calls[place] = replace(self._calls[place], result=answered.result)
        return ""

    def _close_calls(self) -> None:
        """Adds a turn with the tool calls that no answer followed, if there are any."""
        if self._calls:
            self._turns.append(ImportedTurn("agent", "", self._at, self._first_call, tool_calls=tuple(self._calls)))
            self._calls, self._first_call = [], ""


def _branch(mapping: Mapping[str, Mapping[str, Any]], leaf: object) -> dict[str, None]:
    """Returns the nodes from the root to `leaf`, or to the newest leaf if `leaf` does not exist."""
    here = str(leaf) if leaf is not None and str(leaf) in mapping else _newest_leaf(mapping)
    branch: dict[str, None] = {}
    while here is not None and here in mapping and here not in branch:
        branch[here] = None
        parent = mapping[here].get("parent")
        here = str(parent) if parent is not None else None
    return dict.fromkeys(reversed(branch))


def _newest_leaf(mapping: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Returns the leaf with the newest message; of equal ones the last."""

    def written(key: str) -> datetime:
        return time_of_epoch(as_mapping(mapping[key].get("message")).get("create_time")) or EPOCH

    leaves = [key for key, node in mapping.items() if not node.get("children")]
    return max(reversed(leaves), key=written, default=None)


def _text(content: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Returns a message's text, with placeholders such as `[image]` and the names of attached files."""
    pieces: list[str] = []
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else ():
        fields = as_mapping(part)
        kind = str(fields.get("content_type"))
        text = as_text(fields.get("text")) if kind in _KEPT_PARTS else _PLACEHOLDERS.get(kind, "")
        pieces.append(as_text(part) or text)
    pieces += [as_text(content.get(key)) for key in ("text", "result")]
    for item in mappings_in(metadata.get("attachments")):
        if as_text(item.get("name")).strip():
            pieces.append(f"[attached: {one_line(item['name'], '')}]")
    pieces = [_LEFT_OVER.sub("", _MARKED.sub(_visible_words, piece)) for piece in pieces]
    return "\n\n".join(piece.strip("\n") for piece in pieces if piece.strip())


def _visible_words(mark: re.Match[str]) -> str:
    """Returns the visible words of a mark, with the space before it; "" for a reference."""
    kind, *fields = mark[1].split("\ue202")
    words = fields[0] if fields else ""
    if kind == "entity":  # ["city", "Paris", "what else there is to say"]
        try:
            named = json.loads(words)
            words = named[1] if isinstance(named[1], str) else ""
        except (ValueError, LookupError, TypeError, RecursionError):
            words = ""
    elif kind != "url":
        return ""
    space = mark[0][: mark[0].index("\ue200")]
    return space + words if words else ""
