"""A folder of notes is read file by file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_server.clients.importers import run
from mcp_server.clients.importers.imported import Skipped


def pieces(path: Path) -> dict[str, bytes | Skipped]:
    return {relative: run.read_one(found, relative) for found, relative in run.listing(path)}


def skipped(path: Path) -> dict[str, str]:
    return {piece.name: piece.why for piece in pieces(path).values() if isinstance(piece, Skipped)}


def read(path: Path) -> dict[str, bytes]:
    return {relative: piece for relative, piece in pieces(path).items() if not isinstance(piece, Skipped)}


def test_relative_paths_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "deep.md").write_text("# Deep")
    (tmp_path / "top.markdown").write_text("# Top")
    assert read(tmp_path) == {"a/b/deep.md": b"# Deep", "top.markdown": b"# Top"}


def test_one_file_is_read_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# Note")
    assert read(tmp_path / "note.md") == {"note.md": b"# Note"}


def test_what_cannot_be_read_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("good")
    (tmp_path / "picture.svg").write_text("<svg/>")
    (tmp_path / "Makefile").write_text("all:")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.md").write_text("not ours")
    reasons = skipped(tmp_path)
    assert list(read(tmp_path)) == ["good.md"]
    assert set(reasons) == {"picture.svg", "Makefile", ".git/"}
    assert ".svg" in reasons["picture.svg"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    (inside / "out.md").symlink_to(outside / "secret.md")
    (inside / "folder").symlink_to(outside)
    (inside / "broken.md").symlink_to(inside / "nowhere.md")
    (inside / "real.md").write_text("real")
    (inside / "near.md").symlink_to(inside / "real.md")
    assert read(inside) == {"real.md": b"real", "near.md": b"real"}
    assert set(skipped(inside)) == {"out.md", "folder/", "broken.md"}


def test_a_file_that_no_person_wrote_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LARGEST", 10)
    (tmp_path / "large.md").write_text("x" * 11)
    assert list(skipped(tmp_path)) == ["large.md"]
