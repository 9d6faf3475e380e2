"""Listing."""

from __future__ import annotations

import os

from mcp_server.store.files import WorkspaceFiles


def test_listing_leaves_out_what_is_hidden(files: WorkspaceFiles) -> None:
    for path in ("b.md", "a/z.md", "a/.hidden.md", ".local/state.db", "a/b/c.md"):
        files.write_atomic(path, "x")
    (files.root / os.fsdecode(b"bad\xff.md")).write_text("x")

    assert [found.path for found in files.walk()] == ["a/b/c.md", "a/z.md", "b.md"]
    assert [found.path for found in files.walk("a/")] == ["a/b/c.md", "a/z.md"]
    assert list(files.walk("missing")) == []
    assert next(files.walk("a/b")).size == 1
