"""claude.ai's export: every conversation a session, every message a turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_server.actions.sessions import list_sessions, session_turns
from mcp_server.clients.importers.run import import_path
from mcp_server.memory import Memory

pytestmark = pytest.mark.anyio
C1, C2 = "5f0e1c9a-0000-4000-8000-000000000001", "5f0e1c9a-0000-4000-8000-000000000002"
ROOT = "00000000-0000-4000-8000-000000000000"


def message(given: str, sender: str, text: str, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": given,
        "sender": sender,
        "text": text,
        "content": [{"type": "text", "text": text}],
        "created_at": "2025-03-01T10:00:00.123456Z",
        "attachments": [],
        "files": [],
        **fields,
    }


def export() -> list[Any]:
    used = [
        {"type": "thinking", "thinking": "SECRET THOUGHTS"},
        {"type": "text", "text": "I looked."},
        {"type": "tool_use", "id": "t", "name": "web_search", "input": {"query": "kayaks"}},
        {"type": "tool_result", "tool_use_id": "t", "name": "web_search", "content": [{"type": "text", "text": "red"}]},
        {"type": "token_budget"},
        {"type": "text", "text": "They are red."},
        {"type": "voice_note", "text": "So I heard."},
    ]
    attachments = [{"file_name": "list.txt", "extracted_content": "oars\nrope"}]
    files = [{"file_uuid": "f1", "file_name": "list.txt"}, {"file_uuid": "f2", "file_name": "boat.png"}]
    return [
        {
            "uuid": C1,
            "name": "Kayaks",
            "created_at": "2025-03-01T09:59:00Z",
            "chat_messages": [
                message("m1", "human", "Which colour?", attachments=attachments, files=files),
                message("m2", "assistant", "old text", content=used),
                message("m3", "human", " "),
                message("m4", "robot", "beep"),
            ],
        },
        {"uuid": C2, "name": "", "created_at": "2023-07-01T09:00:00Z", "chat_messages": []},
        {"uuid": C2, "name": None, "chat_messages": [{"uuid": "n1", "sender": "human", "text": "only text, of 2023"}]},
        ["odd"],
    ]


async def test_conversations_become_sessions(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(export()))
    report = await import_path(memory, path)
    assert (report.format, report.new_sessions, report.new_turns) == ("claude-ai", 2, 3)
    rows = {row.session: row for row in await list_sessions(memory)}
    assert rows[f"claude-ai-{C1}"].title == "Kayaks"
    said = await session_turns(memory, f"claude-ai-{C1}")
    assert said[0].content == "Which colour?\n\n[attached: list.txt]\noars\nrope\n\n[attached: boat.png]"
    assert (said[1].role, said[1].content, said[1].turn_id) == (
        "agent",
        "I looked.\n\nThey are red.\n\nSo I heard.",
        "m2",
    )
    assert (said[1].tool_calls[0].summary, said[1].tool_calls[0].result) == ("kayaks", "red")
    assert [turn.content for turn in await session_turns(memory, f"claude-ai-{C2}")] == ["only text, of 2023"]
    assert report.reasons == {
        "reasoning": 1,
        "block of type token_budget": 1,
        "message without text": 1,
        "sender 'robot'": 1,
        "conversation without a message": 1,
        "not an object with `chat_messages`": 1,
    }


async def test_a_message_of_tools_alone_has_no_words_and_no_reasoning(memory: Memory, tmp_path: Path) -> None:
    """What such a message has as `text` is its reasoning, and a placeholder for each tool (as of 2026)."""
    placeholder = "\n```\nThis block is not supported on your current device yet.\n```\n\n"
    tools = [
        {"type": "thinking", "thinking": "SECRET THOUGHTS"},
        {"type": "tool_use", "id": "t", "name": "web_search", "input": {"query": "kayaks"}},
        {"type": "tool_result", "tool_use_id": "t", "name": "web_search", "content": []},
        {"type": "text", "text": ""},
    ]
    document = export()[:1]
    document[0]["chat_messages"] = [
        message("m1", "human", "Look it up."),
        message("m2", "assistant", f"SECRET THOUGHTS{placeholder}", content=tools),
        message("m3", "assistant", "SECRET THOUGHTS", content=tools[:1]),
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(document))
    report = await import_path(memory, path)
    said = await session_turns(memory, f"claude-ai-{C1}")
    assert [(turn.content, [call.summary for call in turn.tool_calls]) for turn in said[1:]] == [("", ["kayaks"])]
    assert report.reasons == {"reasoning": 2, "message without text": 1}


async def test_an_export_is_known_again_and_grows(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(export()))
    first = await import_path(memory, path)
    again = await import_path(memory, path)
    assert (again.new_turns, again.unchanged, again.turns, again.reasons) == (0, 1, first.turns, first.reasons)
    assert (await import_path(memory, path, anew=True)).new_turns == 0
    document = export()
    document[0]["chat_messages"].append(message("m5", "human", "Thanks."))
    path.write_text(json.dumps(document))
    assert (await import_path(memory, path)).new_turns == 1


async def test_the_branch_that_was_shown_last_is_taken(memory: Memory, tmp_path: Path) -> None:
    document = export()[:1]
    document[0]["chat_messages"] = [
        message("a", "human", "first", parent_message_uuid=ROOT),
        message("b", "assistant", "left", parent_message_uuid="a"),
        message("c", "assistant", "kept", parent_message_uuid="a"),
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(document))
    report = await import_path(memory, path)
    assert [turn.content for turn in await session_turns(memory, f"claude-ai-{C1}")] == ["first", "kept"]
    assert report.reasons == {"message on a branch that was left": 1}


async def test_a_parent_that_is_missing_makes_all_messages_count(memory: Memory, tmp_path: Path) -> None:
    document = export()[:1]
    document[0]["chat_messages"] = [
        message("a", "human", "first", parent_message_uuid="nowhere"),
        message("b", "assistant", "second", parent_message_uuid="gone"),
    ]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(document))
    assert (await import_path(memory, path)).new_turns == 2
