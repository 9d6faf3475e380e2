"""Locks hold among tasks and processes, in one order, and end with their process."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from mcp_server.errors import Conflict, Unavailable
from mcp_server.storage.local import durable
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.locks import Locks
from tests.killing import killed_at_each_step
from tests.preloaded import python

COUNTER = """
import sys, anyio
from pathlib import Path
from mcp_server.storage.local.locks import Locks
async def main():
    locks = Locks(Path(sys.argv[1]))
    counter = Path(sys.argv[2])
    async def add():
        for _ in range(20):
            async with locks.transcript("ses_1"):
                value = int(counter.read_text())
                await anyio.sleep(0)
                counter.write_text(str(value + 1))
    async with anyio.create_task_group() as group:
        group.start_soon(add)
        group.start_soon(add)
anyio.run(main)
"""

HOLDER = """
import os, sys
from pathlib import Path
from mcp_server.storage.local.locks import Locks
held = Locks(Path(sys.argv[1])).try_maintainer()
print(os.getpid() if held else "not", flush=True)
sys.stdin.read()
"""


def test_processes_and_tasks_take_turns(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    started = [subprocess.Popen(python("-c", COUNTER, str(tmp_path / "local"), str(counter))) for _ in range(3)]

    assert [process.wait() for process in started] == [0, 0, 0]
    assert counter.read_text() == "120"


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    locks = Locks(tmp_path)
    with subprocess.Popen(
        python("-c", HOLDER, str(tmp_path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        held_by = int(holder.stdout.readline())
        assert locks.try_maintainer() is None
        os.kill(held_by, signal.SIGKILL)

    held = locks.try_maintainer()
    assert held is not None
    held.release()
    held.release()


@pytest.mark.anyio
async def test_a_cancelled_wait_leaves_nothing_locked(tmp_path: Path) -> None:
    locks, others = Locks(tmp_path), Locks(tmp_path)
    async with others.files():
        with anyio.move_on_after(0.02) as scope:
            async with locks.files():
                raise AssertionError("two hold it")
        assert scope.cancelled_caught
    async with locks.files(), others.git():
        pass


@pytest.mark.anyio
async def test_a_lock_held_too_long_is_told(tmp_path: Path) -> None:
    async with Locks(tmp_path).files():
        with pytest.raises(Unavailable, match="'files'"):
            async with Locks(tmp_path, wait_seconds=0).files():
                pass


def test_files_and_folders_are_for_the_user_alone(files: WorkspaceFiles) -> None:
    files.write_atomic("knowledge/a/b.md", "x")

    assert (files.root / "knowledge/a/b.md").stat().st_mode & 0o777 == 0o600
    assert (files.root / "knowledge/a").stat().st_mode & 0o777 == 0o700


def test_a_file_keeps_the_mode_that_its_owner_gave_it(files: WorkspaceFiles) -> None:
    files.write_atomic("a.md", "x")
    (files.root / "a.md").chmod(0o640)

    files.write_atomic("a.md", "y")

    assert (files.root / "a.md").stat().st_mode & 0o777 == 0o640


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
    with pytest.raises(Conflict):
        files.write_atomic("t.md", "other", expected="two\n")

    assert files.read_text("t.md") == "one\n"
    assert [name.name for name in files.root.iterdir()] == ["t.md"]


KILLED = """
import os, sys
from pathlib import Path
from mcp_server.storage.local.files import WorkspaceFiles
from tests.killing import die_at
root, path, step = sys.argv[1:]
files = WorkspaceFiles(Path(root))
calls = [(os, name) for name in ("open", "write", "fsync", "close", "link", "fchmod")]
die_at(int(step), *calls, (Path, "replace"), (Path, "unlink"))
files.write_atomic(path, "new" * 10)
print("acknowledged", flush=True)
"""


@pytest.mark.parametrize("path", ["old.md", "fresh/new.md"])
def test_a_kill_at_any_step_of_a_write_leaves_the_old_file_or_the_new_one(
    files: WorkspaceFiles, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_before(step: int) -> None:
        (files.root / path).unlink(missing_ok=True)
        files.write_atomic("old.md", "old")

    for done in killed_at_each_step(KILLED, str(files.root), path, before=as_before):
        found = files.text_or_none(path)
        if "acknowledged" in done.stdout:
            assert found == "new" * 10
        else:
            assert found in ("old" if path == "old.md" else None, "new" * 10)
    monkeypatch.setattr(durable, "NEW_SECONDS", 0)
    files.remove_leftovers()
    assert not [name for _, _, names in os.walk(files.root) for name in names if name.endswith(".tmp")]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows renames no locked file")
def test_a_temporary_file_is_deleted_once_its_writer_is_dead_and_not_before(
    files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "NEW_SECONDS", 0)
    real = durable.replace

    def replaced(temporary: Path, place: Path) -> None:
        files.remove_leftovers()  # as another process does at this moment
        assert temporary.exists()
        real(temporary, place)

    monkeypatch.setattr(durable, "replace", replaced)
    files.write_atomic("a.md", "alive")
    assert files.read_text("a.md") == "alive"
    left = files.root / f".cm-{'0' * 16}.tmp"
    left.touch()
    files.remove_leftovers()
    assert not left.exists()
