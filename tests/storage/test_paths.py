"""Every path stays inside."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import ContextManagerError, Refused
from mcp_server.storage.local.files import WorkspaceFiles

WAYS_OUT = [
    "", " ", "..", "../x", "a/../../x", "knowledge/..", "/etc/passwd", "~/x", "a\0b", "a\\b", "C:/x", "c:x", "nul",
    "a/CON.md",
    "lpt1.txt/x", "a./x", "x ", ".git/config", "knowledge/.GIT/hooks/x", "a\nb", "\x1b", "half\ud800", "a" * 300,
]  # fmt: skip


@pytest.mark.parametrize("path", WAYS_OUT)
def test_a_path_that_leaves_or_could_leave_is_refused_everywhere(files: WorkspaceFiles, path: str) -> None:
    calls = (files.resolve, files.relative, files.exists, files.stat, files.read_text, files.remove, files.make_folder)
    for call in calls:
        with pytest.raises(Refused):
            call(path)
    with pytest.raises(Refused):
        files.write_atomic(path, "x")
    with pytest.raises(Refused):
        files.append_durable(path, b"x", 0)
    with pytest.raises(Refused):
        files.move("a.md", path)


@given(path=st.text(st.characters(), max_size=30) | st.text(alphabet="./a\\~:\0 ", max_size=15))
def test_no_path_ever_leaves(files: WorkspaceFiles, path: str) -> None:
    with contextlib.suppress(Refused):
        assert files.resolve(path).is_relative_to(files.root)


def test_symbolic_links_may_lead_inside_but_not_out(files: WorkspaceFiles, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text("secret")
    files.write_atomic("knowledge/real.md", "real")
    (files.root / "out").symlink_to(tmp_path / "outside")
    (files.root / "out.md").symlink_to(tmp_path / "outside" / "secret.md")
    (files.root / "in.md").symlink_to("knowledge/real.md")
    (files.root / "loop").symlink_to("loop")
    (files.root / ".git").mkdir()
    (files.root / "to-git").symlink_to(".git")

    for path in ("out/secret.md", "out.md", "out/new.md", "to-git/config"):
        with pytest.raises(Refused):
            files.read_text(path)
        with pytest.raises(Refused):
            files.write_atomic(path, "x")
    with pytest.raises(ContextManagerError):
        files.read_text("loop")
    assert files.read_text("in.md") == "real"
    assert files.relative("in.md") == "knowledge/real.md"
    assert [found.path for found in files.walk()] == ["knowledge/real.md"]


def test_local_files_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    files = WorkspaceFiles(tmp_path / "memory", tmp_path / "elsewhere")

    files.write_atomic(".local/brief/x.md", "brief")

    assert (tmp_path / "elsewhere" / "brief" / "x.md").read_text() == "brief"
    assert files.relative("./.local//brief/x.md") == ".local/brief/x.md"
    with pytest.raises(Refused):
        files.resolve(".local/../x")
