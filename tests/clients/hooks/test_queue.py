"""Events that no server received are queued and processed by the next server; a failing event is moved away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from mcp_server.app import catch_up
from mcp_server.clients.hooks import listener, offline, protocol
from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from tests.clients.hooks.asking import SESSION, Told, queued, responded
from tests.end_to_end.servers import eventually
from tests.preloaded import python
from tests.serving import environment

pytestmark = pytest.mark.anyio


async def nothing(event: str) -> dict[str, object]:
    return {}


def put(memory: Memory, event: str, session: str = SESSION, **fields: object) -> str:
    return offline.enqueue(str(memory.disk.local), event, {"session_id": session, **fields})


async def test_entries_are_worked_on_once_oldest_first_and_then_gone(memory: Memory) -> None:
    for event in ("Stop", "PreCompact", "SessionEnd"):
        put(memory, event, reason="r")
    told = Told(nothing)
    assert len(listener.queued(memory.disk.local)) == 3
    assert await listener.drain(memory, told) == 3
    assert told.names == ["Stop", "PreCompact", "SessionEnd"]
    given = told.events[0][1]
    assert (given["session_id"], given["reason"]) == (SESSION, "r")
    assert isinstance(given["at"], float)
    assert queued(memory.disk.local) == []
    assert await listener.drain(memory, told) == 0


async def test_a_later_event_of_a_session_takes_an_earlier_ones_place(memory: Memory) -> None:
    for number in range(5):
        put(memory, "Stop", transcript_path=str(number))
    put(memory, "Stop", "another/../one")
    told = Told(nothing)
    assert await listener.drain(memory, told) == 2
    assert [given.get("transcript_path") for _, given in told.events] == ["4", None]


async def test_what_comes_while_its_like_is_worked_on_is_not_lost(memory: Memory) -> None:
    put(memory, "Stop", transcript_path="old")

    async def again(event: str) -> dict[str, object]:
        if len(told.events) == 1:
            put(memory, "Stop", transcript_path="new")
        return {}

    told = Told(again)
    assert await listener.drain(memory, told) == 1
    assert await listener.drain(memory, told) == 1
    assert [given["transcript_path"] for _, given in told.events] == ["old", "new"]


async def test_one_that_fails_keeps_nobody_back_and_is_set_aside_after_some_tries(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(event: str) -> dict[str, object]:
        if event == "PreCompact":
            raise Unavailable("the disk is full")
        return {}

    for event in ("PreCompact", "Stop"):
        put(memory, event)
    told = Told(fails)
    assert await listener.drain(memory, told) == 1
    for _ in range(5):
        await listener.drain(memory, told)
    assert told.names == ["PreCompact", "Stop", "PreCompact", "PreCompact"]
    assert queued(memory.disk.local) == []
    assert len(list((memory.disk.local / listener.REJECTED).iterdir())) == 1
    assert "was moved to" in caplog.text
    assert "the disk is full" in caplog.text


async def test_what_is_no_entry_is_set_aside_at_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "KEPT_REJECTED", 3)
    folder = memory.disk.local / protocol.QUEUE
    folder.mkdir(parents=True)
    for number, text in enumerate(
        ["", "{", "[]", '{"event": 1, "given": {}, "at": 1}', '{"event": "Stop"}', "[" * 9999]
    ):
        (folder / f"{number}.json").write_text(text)
    (folder / "huge.json").write_text(" " * (listener.LONGEST_ENTRY + 1))
    (folder / "half.json.123.tmp").write_text("{")  # being written, or left by a command that was killed
    put(memory, "Stop")
    told = Told(nothing)
    assert await listener.drain(memory, told) == 1
    assert queued(memory.disk.local) == ["half.json.123.tmp"]
    assert len(list((memory.disk.local / listener.REJECTED).iterdir())) == 3


async def test_an_entry_that_ends_every_process_is_not_taken_for_ever(memory: Memory) -> None:
    put(memory, "Stop")
    folder = memory.disk.local / protocol.QUEUE
    (entry,) = folder.iterdir()
    entry.rename(folder / f"{entry.name}.taken-{listener.TRIES}")
    told = Told(nothing)
    assert await listener.drain(memory, told) == 0
    assert told.events == []
    assert queued(memory.disk.local) == []


async def test_a_process_that_is_killed_at_work_leaves_the_entry_to_the_next(memory: Memory, workspace: Path) -> None:
    put(memory, "Stop")
    program = f"""
import anyio, os, signal
from pathlib import Path
from mcp_server.app import open_memory
from mcp_server.clients.hooks import listener
async def dies(memory, event, given):
    os.kill(os.getpid(), signal.SIGKILL)
async def run():
    async with open_memory(Path({str(workspace)!r}), os.environ) as memory:
        await listener.drain(memory, dies)
anyio.run(run)
"""
    killed = await anyio.run_process(python("-c", program), env=environment(workspace), check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert queued(memory.disk.local) == [f"{SESSION}-Stop.json.taken-1"]
    put(memory, "Stop", reason="a newer one")
    told = Told(nothing)
    assert await listener.drain(memory, told) == 2
    assert queued(memory.disk.local) == []


async def test_only_one_process_works_on_it_at_a_time(memory: Memory) -> None:
    put(memory, "Stop")
    held = memory.locks.try_exclusive("hook-queue")
    assert held is not None
    told = Told(nothing)
    assert await listener.drain(memory, told) == 0
    held.release()
    assert await listener.drain(memory, told) == 1


async def test_whoever_maintains_works_it_off_when_it_grows(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LOOK_SECONDS", 0.02)
    told = Told(nothing)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.watch, memory, told)
        for number in (1, 2):
            await responded(memory.disk.root, "Stop", session_id=f"s{number}")
            await eventually(lambda wanted=number: len(told.events) >= wanted)  # type: ignore[misc]
        tasks.cancel_scope.cancel()
    assert [given["session_id"] for _, given in told.events] == ["s1", "s2"]


async def test_a_command_works_it_off_where_no_server_runs(memory: Memory) -> None:
    put(memory, "SessionEnd", transcript_path="/nowhere/at/all.jsonl")
    await catch_up(memory)
    assert queued(memory.disk.local) == []


def test_many_commands_at_once_lose_nothing(workspace: Path) -> None:
    local = workspace / ".local"
    program = "import sys; from mcp_server.clients.hooks import offline; "
    program += (
        f"[offline.enqueue({str(local)!r}, 'Stop', {{'session_id': f'{{sys.argv[1]}}-{{n}}'}}) for n in range(50)]"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(number)]) for number in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    names = os.listdir(local / protocol.QUEUE)  # noqa: PTH208
    assert len(names) == 200
    assert all(json.loads((local / protocol.QUEUE / name).read_text())["event"] == "Stop" for name in names)
