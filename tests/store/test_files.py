"""Files: every path stays inside, every write is whole and durable, and nobody's change is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused, Unavailable
from mcp_server.store.files import WorkspaceFiles

WAYS_OUT = [
    "", " ", "..", "../x", "a/../../x", "knowledge/..", "/etc/passwd", "~/x", "a\0b", "a\\b", "C:/x", "c:x", "nul",
    "a/CON.md",
    "lpt1.txt/x", "a./x", "x ", ".git/config", "knowledge/.GIT/hooks/x", "a\nb", "\x1b", "half\ud800", "a" * 300,
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> WorkspaceFiles:
    root = tmp_path / "memory"
    root.mkdir()
    return WorkspaceFiles(root)


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


@given(text=st.text())
def test_what_is_written_is_read(files: WorkspaceFiles, text: str) -> None:
    files.write_atomic("knowledge/a/b.md", text.replace("\0", ""))

    assert files.read_text("knowledge/a/b.md") == text.replace("\0", "")


def test_files_and_folders_are_for_the_user_alone(files: WorkspaceFiles) -> None:
    files.write_atomic("knowledge/a/b.md", "x")

    assert (files.root / "knowledge/a/b.md").stat().st_mode & 0o777 == 0o600
    assert (files.root / "knowledge/a").stat().st_mode & 0o777 == 0o700


def test_a_file_keeps_the_mode_that_its_owner_gave_it(files: WorkspaceFiles) -> None:
    files.write_atomic("a.md", "x")
    (files.root / "a.md").chmod(0o640)

    files.write_atomic("a.md", "y")

    assert (files.root / "a.md").stat().st_mode & 0o777 == 0o640


def test_a_change_in_between_is_a_conflict_and_changes_nothing(files: WorkspaceFiles) -> None:
    files.write_atomic("a.md", "mine")
    files.write_atomic("a.md", "theirs")

    with pytest.raises(Conflict, match=r"a\.md was changed"):
        files.write_atomic("a.md", "mine 2", expected="mine")
    with pytest.raises(Conflict, match="exists already"):
        files.write_atomic("a.md", "new", new=True)
    with pytest.raises(Conflict):
        files.write_atomic("gone.md", "x", expected="was here")

    assert files.read_text("a.md") == "theirs"
    assert [name.name for name in files.root.iterdir()] == ["a.md"]


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


def test_an_append_cuts_off_what_was_never_acknowledged(files: WorkspaceFiles) -> None:
    files.write_atomic("t.md", "one\ntorn")

    assert files.append_durable("t.md", b"two\n", 4) == 8
    assert files.read_text("t.md") == "one\ntwo\n"
    with pytest.raises(Conflict, match="somebody cut it"):
        files.append_durable("t.md", b"x", 9)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_disk_that_refuses_is_explained_and_leaves_all_as_it_was(
    files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    files.write_atomic("t.md", "one\n")
    real = os.write

    def refusing(handle: int, data: bytes) -> int:
        real(handle, bytes(data)[:2])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", refusing)
    with pytest.raises(Unavailable, match=r"t\.md"):
        files.append_durable("t.md", b"two\n", 4)
    with pytest.raises(Unavailable, match=r"t\.md"):
        files.write_atomic("t.md", "other")
    monkeypatch.undo()

    assert files.read_text("t.md") == "one\n"
    assert [name.name for name in files.root.iterdir()] == ["t.md"]


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


def test_listing_leaves_out_what_is_hidden(files: WorkspaceFiles) -> None:
    for path in ("b.md", "a/z.md", "a/.hidden.md", ".local/state.db", "a/b/c.md"):
        files.write_atomic(path, "x")
    (files.root / os.fsdecode(b"bad\xff.md")).write_text("x")

    assert [found.path for found in files.walk()] == ["a/b/c.md", "a/z.md", "b.md"]
    assert [found.path for found in files.walk("a/")] == ["a/b/c.md", "a/z.md"]
    assert list(files.walk("missing")) == []
    assert next(files.walk("a/b")).size == 1


KILLED = """
import os, sys, signal
from pathlib import Path
from mcp_server.store import files as module
workspace = module.WorkspaceFiles(Path(sys.argv[1]))
at = int(sys.argv[2])
steps = 0
def counted(real):
    def step(*arguments, **options):
        global steps
        steps += 1
        if steps == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    return step
for name in ("open", "write", "fsync", "close", "link", "fchmod"):
    setattr(os, name, counted(getattr(os, name)))
Path.replace = counted(Path.replace)
Path.unlink = counted(Path.unlink)
workspace.write_atomic(sys.argv[3], "new" * 10)
print("acknowledged", flush=True)
"""


@pytest.mark.parametrize("path", ["old.md", "fresh/new.md"])
def test_a_kill_at_any_step_of_a_write_leaves_the_old_file_or_the_new_one(files: WorkspaceFiles, path: str) -> None:
    for step in range(1, 40):
        files.write_atomic("old.md", "old")
        (files.root / path).unlink(missing_ok=True) if path != "old.md" else None
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(files.root), str(step), path],
            capture_output=True,
            text=True,
            check=False,
        )
        found = files.read_text(path) if files.exists(path) else None
        if "acknowledged" in done.stdout:
            assert found == "new" * 10
            break
        assert done.returncode == -9, done.stderr
        assert found in ("old" if path == "old.md" else None, "new" * 10)
    else:
        raise AssertionError("never finished")
    files.remove_leftovers(2**62)
    assert not [name for _, _, names in os.walk(files.root) for name in names if name.endswith(".tmp")]
