"""Exports are read from inside their zip, and nothing in one can hurt."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from mcp_server.clients.importers import exports
from mcp_server.clients.importers.run import detect, import_path
from mcp_server.conversations.sessions import list_sessions
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from tests.clients.importers import test_chatgpt, test_claude_ai

pytestmark = pytest.mark.anyio


def zipped(path: Path, **entries: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in entries.items():
            archive.writestr(name, text)
    return path


async def test_a_zip_is_read_without_unpacking_it(memory: Memory, tmp_path: Path) -> None:
    chats = json.dumps(test_claude_ai.export())
    path = zipped(tmp_path / "data.zip", **{"users.json": "[]", "data-batch-0000/conversations.json": chats})
    assert detect(path) == "claude-ai"
    assert (await import_path(memory, path)).new_turns == 3
    assert (await import_path(memory, path)).unchanged == 1
    assert sorted(found.name for found in tmp_path.iterdir()) == ["data.zip", "memory"]


async def test_an_export_in_parts_is_one_import(memory: Memory, tmp_path: Path) -> None:
    other = {**test_chatgpt.conversation(), "id": "other", "conversation_id": "other"}
    parts = {
        "conversations-000.json": json.dumps([test_chatgpt.conversation()]),
        "conversations-001.json": json.dumps([other]),
        "shared_conversations.json": "[{}]",
    }
    report = await import_path(memory, zipped(tmp_path / "export.zip", **parts))
    assert (report.format, report.new_sessions) == ("chatgpt", 2)
    folder = tmp_path / "export"
    folder.mkdir()
    for name, text in parts.items():
        (folder / name).write_text(text)
    assert detect(folder) == "chatgpt"
    assert (await import_path(memory, folder)).new_turns == 0


async def test_odd_names_in_a_zip_lead_nowhere(memory: Memory, tmp_path: Path) -> None:
    chats = json.dumps(test_claude_ai.export()[:1])
    names = (
        "../../conversations.json",
        "/etc/conversations.json",
        "a\\..\\conversations.json",
        "x/conversations.json/",
    )
    path = zipped(tmp_path / "odd.zip", **dict.fromkeys(names, chats))
    assert (await import_path(memory, path)).new_sessions == 1
    assert sorted(found.name for found in tmp_path.iterdir()) == ["memory", "odd.zip"]


async def test_a_zip_bomb_is_refused(memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "BOMB_BYTES", 1024**2)
    path = zipped(tmp_path / "bomb.zip", **{"conversations.json": "[" + " " * 8 * 1024**2 + "]"})
    report = await import_path(memory, path, kind="chatgpt")
    assert report.sessions == 0
    assert "would grow to" in report.markdown


def test_one_endless_item_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "LARGEST_ITEM", 1024**2)
    path = zipped(tmp_path / "bomb.zip", **{"conversations.json": '[{"mapping": "' + "a" * 4 * 1024**2 + '"}]'})
    (part,), _ = exports.files(path)
    assert isinstance(part, exports.Part)
    with pytest.raises(Invalid, match="item of more than"):
        list(exports.conversations(part))


async def test_a_broken_zip_says_so(memory: Memory, tmp_path: Path) -> None:
    chats = json.dumps([test_chatgpt.conversation()])
    whole = zipped(tmp_path / "whole.zip", **{"conversations.json": chats}).read_bytes()
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(whole[:60] + bytes(20) + whole[80:])
    with pytest.raises(Invalid, match="unpack"):
        await import_path(memory, damaged, kind="chatgpt")
    cut = tmp_path / "cut.zip"
    cut.write_bytes(whole[:100])
    with pytest.raises(Invalid):
        await import_path(memory, cut)
    with pytest.raises(Invalid, match="no known export"):
        await import_path(memory, zipped(tmp_path / "other.zip", **{"a.txt": "x"}))
    with pytest.raises(NotFound, match=r"conversations\.json"):
        await import_path(memory, zipped(tmp_path / "other.zip", **{"a.txt": "x"}), kind="chatgpt")
    assert await list_sessions(memory) == []


async def test_several_zips_in_a_folder_are_one_import(memory: Memory, tmp_path: Path) -> None:
    """So claude.ai sends it since August 2026: a list, and zips to download one by one."""
    first, *others = test_claude_ai.export()
    folder = tmp_path / "downloads"
    folder.mkdir()
    zipped(folder / "conversations-000.zip", **{"conversations.json": json.dumps([first])})
    zipped(folder / "conversations-001.zip", **{"conversations.json": json.dumps(others)})
    zipped(folder / "projects-000.zip", **{"projects/1.json": "{}"})
    (folder / "conversations-002.zip").write_bytes(b"PK\x03\x04 cut short")
    listed = json.dumps({"files": [{"url": "https://example.org/conversations-000.zip"}]})
    (folder / "manifest-1.json").write_text(listed)
    assert detect(folder) == "claude-ai"
    report = await import_path(memory, folder)
    assert report.new_turns == 3
    assert "conversations-002.zip: a broken zip" in report.markdown
    assert (await import_path(memory, folder / "conversations-000.zip")).new_turns == 0
    with pytest.raises(Invalid, match="only a list of downloads"):
        await import_path(memory, folder / "manifest-1.json")


async def test_zips_inside_of_a_zip_are_named(memory: Memory, tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", **{"conversations.json": json.dumps([test_chatgpt.conversation()])})
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.write(inner, "chats/inner.zip")
    with pytest.raises(Invalid, match="contains other zips: unpack it"):
        await import_path(memory, tmp_path / "outer.zip")
