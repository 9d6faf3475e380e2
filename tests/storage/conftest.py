"""A workspace's files, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.storage.local.files import WorkspaceFiles


@pytest.fixture
def files(tmp_path: Path) -> WorkspaceFiles:
    root = tmp_path / "memory"
    root.mkdir()
    return WorkspaceFiles(root)
