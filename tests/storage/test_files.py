"""Files: what is written is read, and what cannot be says why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import Conflict, Invalid, NotFound, Refused
from mcp_server.storage.local.files import WorkspaceFiles


@given(text=st.text())
def test_what_is_written_is_read(files: WorkspaceFiles, text: str) -> None:
    files.write_atomic("knowledge/a/b.md", text.replace("\0", ""))

    assert files.read_text("knowledge/a/b.md") == text.replace("\0", "")


def test_a_missing_file_is_named_with_the_nearest_one(files: WorkspaceFiles) -> None:
    files.write_atomic("knowledge/people/ana-kovac.md", "x")

    with pytest.raises(NotFound, match=r"did you mean 'knowledge/people/ana-kovac\.md'"):
        files.read_text("knowledge/people/ana-kovač.md")
    with pytest.raises(NotFound, match=r"did you mean 'knowledge/people/ana-kovac\.md'"):
        files.stat("ana-kovac.md")


def test_what_is_no_text_says_so(files: WorkspaceFiles) -> None:
    files.write_bytes_atomic("a.bin", b"a\0b")
    files.write_bytes_atomic("b.md", b"one\ntwo \xff")

    with pytest.raises(Invalid, match="binary"):
        files.read_text("a.bin")
    with pytest.raises(Invalid, match=r"b\.md: line 2: not UTF-8"):
        files.read_text("b.md")
    with pytest.raises(Invalid, match="folder"):
        files.read_text(".")
    with pytest.raises(Invalid, match="surrogate"):
        files.write_atomic("c.md", "\ud800")
    with pytest.raises(Invalid, match="part of this path is a file"):
        files.write_atomic("b.md/c.md", "x")


def test_moving_and_removing(files: WorkspaceFiles) -> None:
    files.write_atomic("knowledge/a.md", "a")
    files.write_atomic("archive/b.md", "b")

    with pytest.raises(Conflict):
        files.move("knowledge/a.md", "archive/b.md")
    files.move("knowledge/a.md", "archive/2026/a.md")
    files.remove("archive/b.md")

    assert [found.path for found in files.walk()] == ["archive/2026/a.md"]
    with pytest.raises(NotFound):
        files.move("knowledge/a.md", "x.md")


def test_leftovers_are_removed_where_local_lies_elsewhere_too(tmp_path: Path) -> None:
    files = WorkspaceFiles(tmp_path / "workspace", tmp_path / "local")
    for folder in (files.root, files.local):
        folder.mkdir()
        (folder / f".cm-{'0' * 16}.tmp").touch()
        os.utime(folder / f".cm-{'0' * 16}.tmp", (0, 0))
    assert files.remove_leftovers() == 2


def test_the_contents_of_a_folder_are_what_its_files_hold_one_by_one(tmp_path: Path) -> None:
    files = WorkspaceFiles(tmp_path / "workspace", tmp_path / "local")
    for path in ("x/b.jsonl", "x/a/deep.jsonl", "x/.cm-hidden.tmp", "y/c.jsonl"):
        files.write_atomic(f".local/{path}", f"in {path}")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "local" / "x" / "link.jsonl").symlink_to(tmp_path / "secret")

    found = dict(files.contents(".local/x"))
    assert found == {path: files.read_bytes(path) for path in (".local/x/a/deep.jsonl", ".local/x/b.jsonl")}
    assert dict(files.contents(".local/nothing/")) == {}
    with pytest.raises(Refused):
        dict(files.contents("../secret"))
