"""The export of claude.ai: `conversations.json`, a list of

    {uuid, name, created_at, chat_messages: [
        {uuid, sender, text, content: [{type, …}], created_at, attachments: [{file_name, extracted_content}], files}]}

Every conversation becomes one session, every message one turn, with its tool calls; reasoning is left out. The text of
what was attached belongs to the message. Where messages name their parents, the branch that was shown last is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from mcp_server.actions.imports import ImportedSession, ImportedTurn
from mcp_server.clients.importers.claude_code.tools import result_text, tool_call
from mcp_server.clients.importers.imported import Skipped, parse_time, plain_id
from mcp_server.core.model import Role, ToolCall

SOURCE = "import:claude-ai"
MARK = '"chat_messages"'
"""What shows in the first bytes of such a file."""

_ROLES: Mapping[str, Role] = {"human": "user", "user": "user", "assistant": "agent"}
_REASONING = frozenset({"thinking", "redacted_thinking"})
_SILENT = _REASONING | {"tool_use", "tool_result"}
_PICTURES = frozenset({"image", "document"})
_ROOT = "00000000-0000-4000-8000-000000000000"


def session(conversation: object, place: int, project: str | None = None) -> Iterator[ImportedSession | Skipped]:
    """The session that one conversation of the list becomes, and what was left out of it."""
    if not isinstance(conversation, Mapping) or not isinstance(conversation.get("chat_messages"), list):
        yield Skipped(f"conversation {place}", "not an object with `chat_messages`")
        return
    name = " ".join(str(conversation.get("name") or "").split())
    shown = name or f"conversation {place}"
    messages = [message for message in conversation["chat_messages"] if isinstance(message, Mapping)]
    on_branch = _branch(messages, conversation.get("current_leaf_message_uuid"))
    for _ in range(len(messages) - len(on_branch)):
        yield Skipped(shown, "message on a branch that was left")
    at = parse_time(conversation.get("created_at")) or datetime.fromtimestamp(0, UTC)
    turns: list[ImportedTurn] = []
    for message in on_branch:
        at = parse_time(message.get("created_at")) or at
        for why in _left_out(message):
            yield Skipped(shown, why)
        turn = _turn(message, at)
        if isinstance(turn, str):
            yield Skipped(shown, turn)
        else:
            turns.append(turn)
    if not turns:
        yield Skipped(shown, "conversation without a message")
        return
    yield ImportedSession(
        session_id=f"claude-ai-{plain_id(conversation.get('uuid'), turns[0])}",
        title=name or None,
        turns=tuple(turns),
        project=project,
        source=SOURCE,
        model=model if isinstance(model := conversation.get("model"), str) and model else None,
    )


def _turn(message: Mapping[str, Any], at: datetime) -> ImportedTurn | str:
    """The message as a turn, or why it is none."""
    role = _ROLES.get(str(message.get("sender")).lower())
    if role is None:
        return f"sender {str(message.get('sender'))[:40]!r}"
    blocks = _blocks(message)
    texts = [block["text"] for block in blocks if _kind(block) not in _SILENT and isinstance(block.get("text"), str)]
    if not any(text.strip() for text in texts) and isinstance(message.get("text"), str):
        # Exports of 2023 have nothing else. Beside other blocks it is reasoning and "This block is not supported …".
        texts = [message["text"]] if all(_kind(block) == "text" for block in blocks) else []
    pieces = [text.strip("\n") for text in texts if text.strip()]
    pieces += [f"[{_kind(block)}]" for block in blocks if _kind(block) in _PICTURES]
    pieces += _attached(message)
    calls = _calls(blocks)
    if not pieces and not calls:
        return "message without text"
    content = "\n\n".join(pieces)
    given = ImportedTurn(role=role, content=content, at=at, tool_calls=calls)
    return ImportedTurn(role, content, at, plain_id(message.get("uuid"), given), tool_calls=calls)


def _left_out(message: Mapping[str, Any]) -> Iterator[str]:
    """Why each block of a message is left out that is: reasoning, and what is neither words nor known here."""
    for block in _blocks(message):
        kind = _kind(block)
        if kind in _REASONING:
            yield "reasoning"
        elif kind not in _SILENT | _PICTURES and not isinstance(block.get("text"), str):
            yield f"block of type {kind}"


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    blocks = message.get("content")
    return [block for block in blocks if isinstance(block, Mapping)] if isinstance(blocks, list) else []


def _kind(block: Mapping[str, Any]) -> str:
    return str(block.get("type"))[:40]


def _attached(message: Mapping[str, Any]) -> Iterator[str]:
    """What came with a message: the text of attachments, the names of files, which list the attachments once more."""
    named: set[str] = set()
    for key in ("attachments", "files"):
        items = message.get(key)
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, Mapping):
                continue
            name = " ".join(str(item.get("file_name") or item.get("file_uuid") or "without a name").split())
            text = item.get("extracted_content")
            if key == "attachments" or name not in named:
                yield f"[attached: {name}]" + (f"\n{text}" if isinstance(text, str) and text.strip() else "")
            named.add(name)


def _calls(blocks: list[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    """Tool calls with what they answered: by id, or the next result of the same tool."""
    results = [block for block in blocks if block.get("type") == "tool_result"]
    calls: list[ToolCall] = []
    for block in blocks:
        if block.get("type") != "tool_use":
            continue
        answer = next((r for r in results if r.get("tool_use_id") and r.get("tool_use_id") == block.get("id")), None)
        answer = answer or next((r for r in results if r.get("name") == block.get("name")), None)
        if answer is not None:
            results.remove(answer)
        given = block.get("input")
        text = result_text(answer.get("content"), answer.get("is_error") is True) if answer else ""
        calls.append(tool_call(str(block.get("name") or ""), given if isinstance(given, Mapping) else {}, text, None))
    return tuple(calls)


def _branch(messages: list[Mapping[str, Any]], leaf: object) -> list[Mapping[str, Any]]:
    """From the first message to `leaf` (or the last one in the list), if every parent on the way is there; else all."""
    by_id = {str(message.get("uuid")): message for message in messages if message.get("uuid")}
    if len(by_id) < len(messages) or not any(message.get("parent_message_uuid") for message in messages):
        return messages
    here = by_id.get(str(leaf)) or messages[-1]
    way: dict[str, Mapping[str, Any]] = {}
    while str(here.get("uuid")) not in way:
        way[str(here.get("uuid"))] = here
        parent = here.get("parent_message_uuid")
        if not parent or parent == _ROOT:
            return list(reversed(way.values()))
        if str(parent) not in by_id:
            break
        here = by_id[str(parent)]
    return messages
