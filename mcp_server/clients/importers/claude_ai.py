"""Reads the export of claude.ai: `conversations.json`, a list of

    {uuid, name, created_at, chat_messages: [
        {uuid, sender, text, content: [{type, …}], created_at, attachments: [{file_name, extracted_content}], files}]}

Every conversation becomes one session, every message one turn, with its tool calls; reasoning is left out. The text of
attachments and artifacts belongs to the message. If messages name their parents, only the branch that was shown last is
imported. Projects (`projects.json`: instructions and documents) and memories (`memories.json`) become markdown files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from mcp_server.clients.adapters.adapter import as_mapping
from mcp_server.clients.importers.imported import (
    EPOCH,
    Skipped,
    as_text,
    mappings_in,
    one_line,
    plain_id,
    result_text,
    session_of,
    tool_call,
)
from mcp_server.conversations.imports import ImportedSession, ImportedTurn
from mcp_server.model import Role, ToolCall, slugify, unused
from mcp_server.text.markdown import read_moment

MARKS = ('"chat_messages"', '"prompt_template"', '"conversations_memory"')
"""Keys of which at least one is near the start of every file of this format."""

_ROLES: Mapping[str, Role] = {"human": "user", "user": "user", "assistant": "agent"}
_REASONING = frozenset({"thinking", "redacted_thinking"})
_SILENT = _REASONING | {"tool_use", "tool_result"}
_PICTURES = frozenset({"image", "document"})
_ROOT = "00000000-0000-4000-8000-000000000000"


def session(conversation: object, place: int, project: str | None = None) -> Iterator[ImportedSession | Skipped]:
    """Yields the session made from one conversation of the list, and the parts that were left out."""
    if not isinstance(conversation, Mapping) or not isinstance(conversation.get("chat_messages"), list):
        yield Skipped(f"conversation {place}", "not an object with `chat_messages`")
        return
    name = one_line(conversation.get("name"), "")
    shown = name or f"conversation {place}"
    messages = mappings_in(conversation["chat_messages"])
    broken = len(conversation["chat_messages"]) - len(messages)
    yield from [Skipped(shown, "message that is not an object")] * broken
    if conversation.get("summary"):
        yield Skipped(shown, "summary of a conversation")
    on_branch = _branch(messages, conversation.get("current_leaf_message_uuid"))
    yield from [Skipped(shown, "message on a branch that was left")] * (len(messages) - len(on_branch))
    at = read_moment(conversation.get("created_at")) or EPOCH
    turns: list[ImportedTurn] = []
    for message in on_branch:
        at = read_moment(message.get("created_at")) or at
        for why in _left_out(message):
            yield Skipped(shown, why)
        turn = _turn(message, at)
        if isinstance(turn, str):
            yield Skipped(shown, turn)
        else:
            turns.append(turn)
    yield session_of("claude-ai", conversation.get("uuid"), name, shown, turns, project, conversation.get("model"))


def _turn(message: Mapping[str, Any], at: datetime) -> ImportedTurn | str:
    """Returns the message as a turn, or why it is left out."""
    role = _ROLES.get(str(message.get("sender")).lower())
    if role is None:
        return f"sender {str(message.get('sender'))[:40]!r}"
    blocks = mappings_in(message.get("content"))
    texts = [_artifact(block) if _kind(block) in _SILENT else as_text(block.get("text")) for block in blocks]
    if not any(text.strip() for text in texts) and all(_kind(block) == "text" for block in blocks):
        # Exports of 2023 have only `text`. If there are other blocks, it is "This block is not supported …".
        texts = [as_text(message.get("text"))]
    pieces = [text.strip("\n") for text in texts if text.strip()]
    pieces += [f"[{_kind(block)}]" for block in blocks if _kind(block) in _PICTURES]
    pieces += [f"[attached: {name}]" + (f"\n{text}" if text else "") for name, text in _files(message)]
    calls = _calls(blocks)
    if not pieces and not calls:
        return "message without text"
    content = "\n\n".join(pieces)
    turn_id = plain_id(message.get("uuid"), ImportedTurn(role, content, at))
    return ImportedTurn(role, content, at, turn_id, tool_calls=calls)


def _artifact(block: Mapping[str, Any]) -> str:
    """Returns the text that a tool call writes into an artifact or file, under its name; "" for other blocks."""
    if block.get("type") != "tool_use":
        return ""
    given = as_mapping(block.get("input"))
    text, name, verb = "", None, ""
    if block.get("name") == "artifacts":
        text, name, verb = as_text(given.get("content")), given.get("title") or given.get("id"), "artifact"
        if not text.strip():
            text, verb = as_text(given.get("new_str")), "changed in artifact"
    elif block.get("name") == "create_file":
        text, name, verb = as_text(given.get("file_text")), given.get("path"), "file"
    return f"[{verb}: {one_line(name, 'without a name')}]\n{text}" if text.strip() else ""


def _left_out(message: Mapping[str, Any]) -> Iterator[str]:
    """Yields the reason for each part of a message that is left out: reasoning, pictures, files, unknown blocks."""
    blocks = message.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        kind = _kind(block) if isinstance(block, Mapping) else ""
        if not isinstance(block, Mapping):
            yield "block that is not an object"
        elif kind in _REASONING:
            yield "reasoning"
        elif kind in _PICTURES:
            yield f"{kind} (its place is marked)"
        elif kind not in _SILENT and not isinstance(block.get("text"), str):
            yield f"block of type {kind}"
        elif isinstance(citations := block.get("citations"), list):
            yield from ["citation"] * len(citations)
    for name, text in _files(message):
        if not text:
            yield f"file whose text is not in the export ({PurePosixPath(name).suffix or 'no type'})"


def _kind(block: Mapping[str, Any]) -> str:
    return str(block.get("type"))[:40]


def _files(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields name and text of each attachment, and of each file that is not listed as an attachment as well."""
    named: set[str] = set()
    for key in ("attachments", "files"):
        for item in mappings_in(message.get(key)):
            name = one_line(item.get("file_name") or item.get("file_uuid"), "without a name")
            text = as_text(item.get("extracted_content"))
            if key == "attachments" or name not in named:
                yield name, text if text.strip() else ""
            named.add(name)


def _calls(blocks: list[Mapping[str, Any]]) -> tuple[ToolCall, ...]:
    """Returns the tool calls with their results, matched by id, else by the tool's name."""
    results = [block for block in blocks if block.get("type") == "tool_result"]
    calls: list[ToolCall] = []
    for block in blocks:
        if block.get("type") != "tool_use":
            continue
        answer = next((r for r in results if r.get("tool_use_id") and r.get("tool_use_id") == block.get("id")), None)
        answer = answer or next((r for r in results if r.get("name") == block.get("name")), None)
        if answer is not None:
            results.remove(answer)
        text = result_text(answer.get("content"), answer.get("is_error") is True) if answer else ""
        calls.append(tool_call(str(block.get("name") or ""), as_mapping(block.get("input")), text, None))
    return tuple(calls)


def _branch(messages: list[Mapping[str, Any]], leaf: object) -> list[Mapping[str, Any]]:
    """Returns the messages from the first one to `leaf` (or to the last one in the list).

    A message whose parent is not named, or is not in the export, follows the message before it in the list. If messages
    have no ids or share one, all are returned.
    """
    places = {str(message.get("uuid")): place for place, message in enumerate(messages) if message.get("uuid")}
    if len(places) < len(messages) or not any(message.get("parent_message_uuid") for message in messages):
        return messages
    here = places.get(str(leaf), len(messages) - 1)
    way: dict[int, Mapping[str, Any]] = {}
    while here >= 0 and here not in way:
        way[here] = messages[here]
        parent = messages[here].get("parent_message_uuid")
        if parent == _ROOT:
            break
        here = places.get(str(parent), here - 1)
    return list(reversed(way.values()))


# ---------------------------------------------------------------- projects and memories


Document = tuple[str, str]
"""A markdown file made from a project or from memories: its path below the import's folder, and its text."""


def project(item: object, place: int, known: dict[str, str]) -> Iterator[Document | Skipped]:
    """Yields the instructions and documents of a project. `known` maps projects' ids to folders and is added to."""
    if not isinstance(item, Mapping) or not (item.get("uuid") or item.get("name")):
        yield Skipped(f"project {place}", "not an object with `uuid` and `name`")
        return
    name = one_line(item.get("name"), "Project")
    if item.get("is_starter_project"):
        yield Skipped(name, "project that claude.ai made as an example")
        return
    folder = slugify(name) or "project"
    if folder in known.values():
        folder = f"{folder}-{slugify(str(item.get('uuid')))[:8] or place}"
    known[str(item.get("uuid"))] = folder
    described, told = (as_text(item.get(key)).strip() for key in ("description", "prompt_template"))
    parts = [f"# {name}", described, f"## Instructions\n\n{told}" if told else ""]
    yield f"projects/{folder}/project.md", "\n\n".join(part for part in parts if part) + "\n"
    taken = {"project"}
    docs = item.get("docs")
    for doc in docs if isinstance(docs, list) else ():
        title = one_line(as_mapping(doc).get("filename"), "document")
        text = as_text(as_mapping(doc).get("content")).strip()
        if not text:
            yield Skipped(f"{name}: {title}", "document of a project without text")
            continue
        stem = unused(slugify(title.removesuffix(".md")) or "document", taken)
        taken.add(stem)
        yield f"projects/{folder}/{stem}.md", (text if text.startswith("#") else f"# {title}\n\n{text}") + "\n"
    for key, value in item.items():
        if key != "docs" and isinstance(value, list):
            yield from [Skipped(name, f"{key} of a project")] * len(value)


def memories(item: object, place: int, known: Mapping[str, str]) -> Iterator[Document | Skipped]:
    """Yields claude.ai's memories of all conversations and of each project. `known` as in `project`."""
    if not isinstance(item, Mapping):
        yield Skipped(f"memories {place}", "not an object with `conversations_memory`")
        return
    number = "" if place == 1 else f"-{place}"
    if text := as_text(item.get("conversations_memory")).strip():
        yield f"memories/conversations{number}.md", f"# What claude.ai remembers\n\n{text}\n"
    for given, said in as_mapping(item.get("project_memories")).items():
        folder = known.get(str(given)) or slugify(str(given)) or "project"
        if text := as_text(said).strip():
            title = f"# What claude.ai remembers of the project {folder}"
            yield f"memories/projects/{folder}.md", f"{title}\n\n{text}\n"
        else:
            yield Skipped(folder, "memory of a project without text")
    for key, value in item.items():
        if key not in ("conversations_memory", "project_memories", "account_uuid", "uuid") and value:
            yield Skipped(f"memories {place}", f"{str(key)[:40]} of the memories")
