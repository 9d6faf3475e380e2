"""Listing."""

from __future__ import annotations

import os
import sys

import pytest

from mcp_server.errors import Refused, Unavailable
from mcp_server.storage.local.files import WorkspaceFiles


def test_listing_leaves_out_what_is_hidden(files: WorkspaceFiles) -> None:
    for path in ("b.md", "a/z.md", "a/.hidden.md", ".local/state.db", "a/b/c.md"):
        files.write_atomic(path, "x")
    (files.root / os.fsdecode(b"bad\xff.md")).write_text("x")

    assert [found.path for found in files.walk()] == ["a/b/c.md", "a/z.md", "b.md"]
    assert [found.path for found in files.walk("a/")] == ["a/b/c.md", "a/z.md"]
    assert list(files.walk("missing")) == []
    assert next(files.walk("a/b")).size == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
def test_names_that_no_path_may_have_are_left_out_and_listed(files: WorkspaceFiles) -> None:
    for folder in ("k", "k/odd:folder", "k/fine"):
        (files.root / folder).mkdir()
    for name in (
        "a:b.md",
        "new\nline.md",
        "nul.md",
        "dot.",
        "plain.md",
        ".hidden:x",
        "odd:folder/in.md",
        "fine/c\\d.md",
    ):
        (files.root / "k" / name).write_text("x")

    assert [found.path for found in files.walk()] == ["k/plain.md"]
    assert files.read_text("k/plain.md") == "x"
    odd = ["a:b.md", "dot.", "new\nline.md", "nul.md", "odd:folder", "fine/c\\d.md"]
    assert list(files.unusable("k")) == [f"k/{name}" for name in odd]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_a_pipe_or_a_device_is_refused_and_nobody_waits_for_it(files: WorkspaceFiles) -> None:
    os.mkfifo(files.root / "pipe.md")
    (files.root / "zero.md").symlink_to("/dev/zero")
    with pytest.raises(Refused, match="pipe or a device"):
        files.read_text("pipe.md")
    with pytest.raises(Unavailable, match="not a plain file"):
        files.write_atomic("pipe.md", "x", "what was there")
    with pytest.raises(Refused, match="leads out"):
        files.read_text("zero.md")
    assert list(files.walk()) == []
