"""claude.ai's export: every conversation a session, every message a turn."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mcp_server.clients.importers.imported import ImportReport
from mcp_server.clients.importers.run import import_path
from mcp_server.conversations.sessions import list_sessions, session_turns
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


async def imported(memory: Memory, folder: Path, document: object) -> ImportReport:
    """Imports an export with these conversations."""
    path = folder / "conversations.json"
    path.write_text(json.dumps(document))
    return await import_path(memory, path)


async def test_conversations_become_sessions(memory: Memory, tmp_path: Path) -> None:
    report = await imported(memory, tmp_path, export())
    assert (report.format, report.new_sessions, report.new_turns) == ("claude-ai", 2, 3)
    rows = {row.session: row for row in await list_sessions(memory)}
    assert {row.status for row in rows.values()} == {"closed"}
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
        "file whose text is not in the export (.png)": 1,
    }


async def test_a_message_of_tools_alone_has_no_words_and_no_reasoning(memory: Memory, tmp_path: Path) -> None:
    """The `text` of such a message is its reasoning and a placeholder for each tool (as of 2026)."""
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
    report = await imported(memory, tmp_path, document)
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
    grown = await import_path(memory, path)
    assert (grown.new_turns, grown.new_sessions, grown.turns) == (1, 0, first.turns + 1)


async def test_a_message_without_a_parent_does_not_break_the_conversation(memory: Memory, tmp_path: Path) -> None:
    document = export()[:1]
    document[0]["chat_messages"] = [
        message("a", "human", "first", parent_message_uuid=ROOT),
        message("b", "assistant", "left", parent_message_uuid="a"),
        message("c", "assistant", "second", parent_message_uuid="a"),
        message("d", "human", "third"),
        message("e", "assistant", "fourth", parent_message_uuid="gone"),
        message("f", "human", "fifth", parent_message_uuid=None),
    ]
    report = await imported(memory, tmp_path, document)
    said = [turn.content for turn in await session_turns(memory, f"claude-ai-{C1}")]
    assert said == ["first", "second", "third", "fourth", "fifth"]
    assert report.reasons == {"message on a branch that was left": 1}


async def test_artifacts_come_with_their_text(memory: Memory, tmp_path: Path) -> None:
    def used(name: str, **given: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": name, "name": name, "input": given}

    document = export()[:1]
    document[0]["chat_messages"] = [
        message("a", "human", "Write it."),
        message(
            "b",
            "assistant",
            "",
            content=[
                {"type": "text", "text": "Here:"},
                used("artifacts", command="create", id="plan", title="Boat plan", content="# Plan\n\nBuy oars."),
                {"type": "tool_result", "name": "artifacts", "content": "OK"},
                used("artifacts", command="update", id="plan", old_str="oars", new_str="two oars"),
                used("create_file", path="/out/list.txt", file_text="rope"),
                {"type": "text", "text": "Done."},
            ],
        ),
        message("c", "assistant", "", content=[used("artifacts", command="rewrite", id="plan", content="# New plan")]),
    ]
    report = await imported(memory, tmp_path, document)
    said = await session_turns(memory, f"claude-ai-{C1}")
    assert said[1].content == (
        "Here:\n\n[artifact: Boat plan]\n# Plan\n\nBuy oars.\n\n[changed in artifact: plan]\ntwo oars\n\n"
        "[file: /out/list.txt]\nrope\n\nDone."
    )
    assert said[2].content == "[artifact: plan]\n# New plan"
    assert len(said[1].tool_calls) == 3
    assert report.reasons == {}


PROJECTS = [
    {
        "uuid": "p1",
        "name": "River trip",
        "description": "Kayaks in May",
        "prompt_template": "Answer briefly.",
        "docs": [
            {"uuid": "d1", "filename": "Route.md", "content": "# Route\n\nVrbas, from Jajce."},
            {"uuid": "d2", "filename": "route.md", "content": "The other one."},
            {"uuid": "d3", "filename": "empty.txt", "content": " "},
        ],
        "files": [{"file_name": "map.png"}],
    },
    {"uuid": "p2", "name": "How to use Claude", "is_starter_project": True, "docs": []},
    {"uuid": "p3", "name": "River trip", "docs": []},
    "odd",
]
MEMORIES = [
    {
        "conversations_memory": "Ana paddles.",
        "project_memories": {"p1": "The river is the Vrbas.", "p9": " "},
        "account_uuid": "u",
        "dreams": ["one"],
    }
]


async def test_projects_and_memories_become_files_and_the_rest_is_counted_by_name(
    memory: Memory, tmp_path: Path
) -> None:
    path = tmp_path / "data.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps(export()[:1]))
        archive.writestr("projects.json", json.dumps(PROJECTS))
        archive.writestr("memories.json", json.dumps(MEMORIES))
        archive.writestr("users.json", "[]")
        archive.writestr("files/a.png", "x")
        archive.writestr("files/b.png", "x")

    report = await import_path(memory, path, anew=True)

    folder = "knowledge/reference/claude-ai"
    project = memory.files.read_text(f"{folder}/projects/river-trip/project.md")
    assert project == "# River trip\n\nKayaks in May\n\n## Instructions\n\nAnswer briefly.\n"
    assert memory.files.read_text(f"{folder}/projects/river-trip/route.md") == "# Route\n\nVrbas, from Jajce.\n"
    assert "The other one." in memory.files.read_text(f"{folder}/projects/river-trip/route-2.md")
    assert memory.files.read_text(f"{folder}/projects/river-trip-p3/project.md") == "# River trip\n"
    assert "Ana paddles." in memory.files.read_text(f"{folder}/memories/conversations.md")
    assert "the Vrbas" in memory.files.read_text(f"{folder}/memories/projects/river-trip.md")
    assert (report.files, report.new_files) == (6, 6)
    assert "6 files of projects and memories: 6 new" in report.markdown
    for reason, count in {
        "project that claude.ai made as an example": 1,
        "document of a project without text": 1,
        "files of a project": 1,
        "not an object with `uuid` and `name`": 1,
        "memory of a project without text": 1,
        "dreams of the memories": 1,
        "users.json is not imported": 1,
        "file of type .png is not imported": 2,
    }.items():
        assert report.reasons[reason] == count, reason
    again = await import_path(memory, path, anew=True)
    assert (again.files, again.new_files, again.changed_files, again.new_turns) == (6, 0, 0, 0)


async def test_projects_and_memories_can_be_imported_alone(memory: Memory, tmp_path: Path) -> None:
    for name, content in {"projects.json": PROJECTS, "memories.json": MEMORIES}.items():
        path = tmp_path / name
        path.write_text(json.dumps(content))
        assert (await import_path(memory, path)).files > 0
    folder = tmp_path / "downloads"
    folder.mkdir()
    with zipfile.ZipFile(folder / "projects-000.zip", "w") as archive:
        archive.writestr("projects/p1.json", json.dumps(PROJECTS[0]))
    assert (await import_path(memory, folder)).files == 3


async def test_everything_that_is_left_out_of_a_message_is_counted(memory: Memory, tmp_path: Path) -> None:
    blocks = [
        "odd",
        {"type": "image", "source": {}},
        {"type": "text", "text": "Look.", "citations": [{"url": "https://example.org"}, {}]},
    ]
    document = export()[:1]
    document[0]["summary"] = "About a picture."
    document[0]["chat_messages"] = [message("a", "human", "", content=blocks), "odd"]
    assert (await imported(memory, tmp_path, document)).reasons == {
        "message that is not an object": 1,
        "summary of a conversation": 1,
        "block that is not an object": 1,
        "image (its place is marked)": 1,
        "citation": 2,
    }
