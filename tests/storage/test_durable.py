"""Every write is whole and durable, and nobody's change is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_server.errors import Conflict, Unavailable
from mcp_server.storage.local import durable
from mcp_server.storage.local.files import WorkspaceFiles
from tests.preloaded import python


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


def test_an_append_cuts_off_what_was_never_acknowledged(files: WorkspaceFiles) -> None:
    files.write_atomic("t.md", "one\ntorn")

    assert files.append_durable("t.md", b"two\n", 4) == 8
    assert files.read_text("t.md") == "one\ntwo\n"
    with pytest.raises(Conflict, match="another program cut it"):
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


KILLED = """
import os, sys, signal
from pathlib import Path
from mcp_server.storage.local import files as module
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
def test_a_kill_at_any_step_of_a_write_leaves_the_old_file_or_the_new_one(
    files: WorkspaceFiles, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 40):
        files.write_atomic("old.md", "old")
        (files.root / path).unlink(missing_ok=True) if path != "old.md" else None
        done = subprocess.run(
            python("-c", KILLED, str(files.root), str(step), path),
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
    monkeypatch.setattr(durable, "NEW_SECONDS", 0)
    files.remove_leftovers()
    assert not [name for _, _, names in os.walk(files.root) for name in names if name.endswith(".tmp")]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows renames no locked file")
def test_a_temporary_file_is_deleted_once_its_writer_is_dead_and_not_before(
    files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "NEW_SECONDS", 0)
    removed: list[int] = []
    real = durable.replace

    def replaced(temporary: Path, place: Path) -> None:
        removed.append(files.remove_leftovers())  # as another process does at this moment
        real(temporary, place)

    monkeypatch.setattr(durable, "replace", replaced)
    files.write_atomic("a.md", "alive")
    assert removed == [0]
    assert files.read_text("a.md") == "alive"
    (files.root / f".cm-{'0' * 16}.tmp").touch()
    assert files.remove_leftovers() == 1
