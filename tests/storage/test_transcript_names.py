"""Files are found by name, also those that were added a moment ago."""

from __future__ import annotations

import os
from pathlib import Path

from mcp_server.storage.local.files import WorkspaceFiles

LONG_AGO = (1_000_000_000, 1_000_000_000)


def made(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def test_files_are_found_in_all_folders(tmp_path: Path) -> None:
    made(
        tmp_path,
        "2026/02/16/1800-a-x.md",
        "2026/02/17/0900-a-y.md",
        "2026/02/17/0900-b-y.md",
        "2026/a-.txt",
        ".x-a-.md",
    )
    (tmp_path / "2026" / "link-a-.md").symlink_to(tmp_path / ".x-a-.md")
    assert sorted(WorkspaceFiles(tmp_path).names("2026", "-a-")) == ["2026/02/16/1800-a-x.md", "2026/02/17/0900-a-y.md"]


def test_what_comes_and_goes_is_seen(tmp_path: Path) -> None:
    files = WorkspaceFiles(tmp_path)
    assert files.names("raw", "-a-") == []
    made(tmp_path, "raw/2026/one-a-.md")
    assert files.names("raw", "-a-") == ["raw/2026/one-a-.md"]
    os.utime(tmp_path / "raw" / "2026", LONG_AGO)
    assert files.names("raw", "-a-") == ["raw/2026/one-a-.md"]
    made(tmp_path, "raw/2026/two-a-.md")
    assert sorted(files.names("raw", "-a-")) == ["raw/2026/one-a-.md", "raw/2026/two-a-.md"]
    (tmp_path / "raw" / "2026" / "one-a-.md").unlink()
    assert files.names("raw", "-a-") == ["raw/2026/two-a-.md"]


def test_a_folder_that_did_not_change_is_not_listed_again(tmp_path: Path) -> None:
    made(tmp_path, "2026/one-a-.md")
    os.utime(tmp_path / "2026", LONG_AGO)
    files = WorkspaceFiles(tmp_path)
    assert files.names("2026", "-a-") == ["2026/one-a-.md"]
    made(tmp_path, "2026/two-a-.md")
    os.utime(tmp_path / "2026", LONG_AGO)  # as if nothing had happened
    assert files.names("2026", "-a-") == ["2026/one-a-.md"]
