"""Exports are read from inside their zip, item by item, and nothing in one can hurt."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.importers import exports
from mcp_server.clients.importers.exports import Part, conversations
from mcp_server.clients.importers.run import detect, import_path
from mcp_server.conversations.sessions import list_sessions
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from tests.clients.importers import test_chatgpt, test_claude_ai

pytestmark = pytest.mark.anyio


def json_items(path: Path, on_bytes: Callable[[int], None] = lambda _: None) -> Iterator[Any]:
    return conversations(Part(str(path), 0, lambda: path.open("rb")), on_bytes)


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
    assert "would unpack to" in report.markdown


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


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(values, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]), st.booleans())
def test_any_list_comes_out_as_it_went_in_at_every_chunk_size(
    tmp_path: Path, items: list[Any], chunk: int, indent: int | None, escaped: bool
) -> None:
    path = tmp_path / "items.json"
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=escaped), encoding="utf-8", errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exports, "CHUNK", chunk)
        assert list(json_items(path)) == items


def test_a_file_with_one_object_is_one_item(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('\ufeff {"a": [1, 2]} ', encoding="utf-8")
    assert list(json_items(tmp_path / "one.json")) == [{"a": [1, 2]}]


@pytest.mark.parametrize("text", ['[{"a": 1}, {"a": ', '[{"a": 1}, {"b" 2}]' + " " * 100, '[{"a": 1}'])
def test_what_stands_before_a_broken_place_is_read_and_the_place_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    items = json_items(path)
    assert next(items) == {"a": 1}
    with pytest.raises(Invalid, match=r"broken\.json"):
        list(items)


@pytest.mark.parametrize("broken", ['{"a" 1}', '"a \\q"'])
def test_a_broken_file_is_refused_without_reading_it_to_its_end(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(f"[{broken}, " + '{"b": 2}, ' * 100_000 + "1]")
    read: list[int] = []
    with pytest.raises(Invalid, match="line 1"):
        list(json_items(path, read.append))
    assert read == [exports.CHUNK]


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "latin.json").write_bytes('["é"]'.encode("latin-1"))
    with pytest.raises(Invalid, match="not UTF-8"):
        list(json_items(tmp_path / "latin.json"))
    with pytest.raises(NotFound, match=r"nowhere\.json"):
        list(json_items(tmp_path / "nowhere.json"))
