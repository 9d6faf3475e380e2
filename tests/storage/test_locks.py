"""Locks hold among tasks and processes, in one order, and end with their process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from mcp_server.errors import Unavailable
from mcp_server.storage.local.locks import Locks

COUNTER = """
import sys, anyio
from pathlib import Path
from mcp_server.storage.local.locks import Locks
async def main():
    locks = Locks(Path(sys.argv[1]))
    counter = Path(sys.argv[2])
    async def add():
        for _ in range(40):
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
import sys
from pathlib import Path
from mcp_server.storage.local.locks import Locks
held = Locks(Path(sys.argv[1])).try_maintainer()
print("held" if held else "not", flush=True)
sys.stdin.read()
"""


def test_processes_and_tasks_take_turns(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    started = [
        subprocess.Popen([sys.executable, "-c", COUNTER, str(tmp_path / "local"), str(counter)]) for _ in range(3)
    ]

    assert [process.wait() for process in started] == [0, 0, 0]
    assert counter.read_text() == "240"


def test_a_lock_ends_with_the_process_that_held_it(tmp_path: Path) -> None:
    locks = Locks(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert locks.try_maintainer() is None
        holder.kill()

    held = locks.try_maintainer()
    assert held is not None
    held.release()
    held.release()


@pytest.mark.anyio
async def test_locks_are_taken_in_one_order_only(tmp_path: Path) -> None:
    locks = Locks(tmp_path)
    async with locks.transcript("a"), locks.files(), locks.git():
        pass
    async with locks.git():
        with pytest.raises(RuntimeError, match="the order is transcript, files, git"):
            async with locks.files():
                pass
    async with locks.transcript("a"):
        with pytest.raises(RuntimeError):
            async with locks.transcript("b"):
                pass
        async with locks.git():
            pass
    async with locks.files():
        pass


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


@pytest.mark.anyio
async def test_what_is_shared_cannot_be_had_alone(tmp_path: Path) -> None:
    one, other = Locks(tmp_path), Locks(tmp_path)
    first, second = one.share("memory-1.db"), other.share("memory-1.db")
    assert first is not None
    assert second is not None
    first.release()
    assert one.try_exclusive("memory-1.db") is None
    second.release()
    alone = one.try_exclusive("memory-1.db")
    assert alone is not None
    assert other.share("memory-1.db") is None
    alone.release(forget=True)
    assert list((tmp_path / "locks").iterdir()) == []
