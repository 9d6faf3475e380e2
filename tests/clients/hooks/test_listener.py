"""The door for hook commands: for this user alone, in order, and open again when whoever kept it is gone."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync

from mcp_server.app import open_memory
from mcp_server.clients.hooks import listener, protocol
from mcp_server.memory import Memory
from tests.clients.hooks.asking import SESSION, Told, hook, injecting, listening, queued, responded, said
from tests.end_to_end.servers import eventually, served
from tests.serving import PLAIN

pytestmark = pytest.mark.anyio


def socket_of(memory: Memory) -> Path:
    """Where the door of this memory says that it is."""
    _, _, kind, place = protocol.read_address((memory.disk.local / protocol.ADDRESS).read_bytes())
    assert kind == "unix"
    return Path(os.fsdecode(place))


@pytest.fixture
def long_workspace(tmp_path: Path) -> Path:
    """A folder whose path is far too long for a socket."""
    return tmp_path / ("a rather long name with spaces " * 3) / ("another one " * 8) / "memory"


@pytest.fixture
def short_temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the system's that is this test's alone, and short enough for a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def foreign(temporary: Path, tmp_path: Path) -> Path:
    """The private folder of sockets, as somebody else would lay it out to look at what comes."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    private = temporary / f"context-manager-{os.getuid()}"
    private.symlink_to(elsewhere)
    return private


async def test_only_this_user_can_find_and_open_it(memory: Memory) -> None:
    async with listening(memory, Told()):
        run = memory.disk.local / "run"
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        assert stat.S_IMODE((run / "hooks").stat().st_mode) == 0o600
        place = socket_of(memory)
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700


async def test_without_the_token_nobody_is_answered(memory: Memory) -> None:
    told = Told()
    async with listening(memory, told):
        place = memory.disk.local / protocol.ADDRESS
        place.write_bytes(protocol.address("guessed", os.getpid(), f"unix {socket_of(memory)}"))
        assert await responded(memory.disk.root, "UserPromptSubmit", prompt="x") is None
    assert told.events == []


GARBAGE = (b"\n", b"garbage", b"\0\0\0\0\0{}", b"token\0\xff\0\0\0\0{}", b"\0" * 100, b"", b"[" * 100_000)


async def test_garbage_is_not_answered_and_hurts_nobody(memory: Memory) -> None:
    async with listening(memory, Told()):
        for line in GARBAGE:
            async with await anyio.connect_unix(socket_of(memory)) as stranger:
                if line:
                    await stranger.send(line)
                await stranger.send_eof()
                with anyio.fail_after(60), pytest.raises(anyio.EndOfStream):
                    await stranger.receive()
        assert await responded(memory.disk.root, "Stop") == injecting("Stop", "known at Stop")


async def test_a_request_without_end_is_cut_off(memory: Memory) -> None:
    async with listening(memory, Told()):
        async with await anyio.connect_unix(socket_of(memory)) as stranger:
            with anyio.fail_after(60), pytest.raises(anyio.BrokenResourceError):
                await stranger.send(b"x" * 100_000_000)
        assert await responded(memory.disk.root, "Stop") is not None


async def test_slow_clients_are_let_go_and_keep_nobody_waiting(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "READ_SECONDS", 0.3)
    async with listening(memory, Told()):
        path = socket_of(memory)
        slow = [await anyio.connect_unix(path) for _ in range(listener.AT_ONCE - 1)]
        assert await responded(memory.disk.root, "Stop") is not None
        for client in slow:
            with anyio.fail_after(60), pytest.raises(anyio.EndOfStream):
                await client.receive()
            await client.aclose()


async def test_sessions_are_served_side_by_side_and_one_session_in_order(memory: Memory) -> None:
    order: list[str] = []
    second_came = anyio.Event()

    async def handle(memory: Memory, event: str, given: Any) -> dict[str, object]:
        order.append(f"begin {event}")
        if event == "first":
            with anyio.fail_after(60):
                await second_came.wait()
        if given["session_id"] == "other":
            second_came.set()
        order.append(f"end {event}")
        return {"done": event}

    async def ask(event: str, session: str) -> None:
        await responded(memory.disk.root, event, session_id=session)

    async with listening(memory, handle), anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "first", "one")
        await eventually(lambda: order)
        tasks.start_soon(ask, "second", "one")
        tasks.start_soon(ask, "third", "other")
    assert order.index("end third") < order.index("end first") < order.index("begin second")


async def test_a_handler_that_fails_answers_nothing_and_the_next_is_served(memory: Memory) -> None:
    async def fails(event: str) -> dict[str, object]:
        raise RuntimeError("a bug") if event == "PreCompact" else ValueError(event)

    async with listening(memory, Told(fails)):
        assert await responded(memory.disk.root, "PreCompact") is None
        assert await responded(memory.disk.root, "UserPromptSubmit") is None
    assert queued(memory.disk.local) == [f"{SESSION}-PreCompact.json"]


async def test_what_a_dead_process_left_is_replaced(memory: Memory) -> None:
    path = listener.socket_path(memory.disk.local)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.exists()
    for _ in range(2):
        async with listening(memory, Told()):
            await eventually(lambda: _answers(memory))
    listener.socket_path(memory.disk.local).write_text("no socket")
    async with listening(memory, Told()):
        await eventually(lambda: _answers(memory))


async def _answers(memory: Memory) -> bool:
    return await responded(memory.disk.root, "UserPromptSubmit") is not None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such sockets here")
async def test_a_path_that_is_too_long_for_a_socket_gets_a_private_folder(long_workspace: Path) -> None:
    async with open_memory(long_workspace, PLAIN) as memory, listening(memory, Told()):
        place = socket_of(memory)
        assert memory.disk.root not in place.parents
        assert len(os.fsencode(place)) <= listener.LONGEST_PATH
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        assert await responded(long_workspace, "UserPromptSubmit") is not None
        done = await run_sync(lambda: hook(long_workspace, "Stop", given=said()))
        assert json.loads(done.stdout)
    assert not place.exists()


async def test_a_folder_of_somebody_elses_is_not_used(
    long_workspace: Path, tmp_path: Path, short_temporary: Path
) -> None:
    private = foreign(short_temporary, tmp_path)
    with pytest.raises(PermissionError, match="not this user's own"):
        listener.socket_path(long_workspace / ".local")
    assert "not this user's own" in listener.obstacle(long_workspace / ".local")
    private.unlink()
    assert listener.obstacle(long_workspace / ".local") == ""
    assert list(private.iterdir()) == []


async def test_a_server_listens_as_soon_as_what_was_in_its_way_is_gone(
    long_workspace: Path,
    tmp_path: Path,
    short_temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(listener, "AGAIN_SECONDS", 0.02)
    private = foreign(short_temporary, tmp_path)
    async with open_memory(long_workspace, PLAIN) as memory, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.attend, memory)
        await eventually(lambda: "cannot reach this server yet" in caplog.text)
        private.unlink()
        await eventually((memory.disk.local / protocol.ADDRESS).exists)
        tasks.cancel_scope.cancel()


async def test_doctors_trials_do_not_disturb_a_server_that_starts(long_workspace: Path, short_temporary: Path) -> None:
    """Each takes its own socket away, and no more: the other may be about to use the folder."""
    local = long_workspace / ".local"
    for _ in range(2):
        path = listener.socket_path(local)
        assert listener.obstacle(local) == ""
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(path))  # its folder is there
            assert listener.obstacle(local) == ""
        assert path.exists()
        path.unlink()


async def test_where_there_are_no_unix_sockets_a_loopback_port_serves(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "UNIX_SOCKETS", False)
    async with listening(memory, Told()):
        assert protocol.read_address((memory.disk.local / protocol.ADDRESS).read_bytes())[2] == "port"
        assert await responded(memory.disk.root, "UserPromptSubmit") is not None
    assert not (memory.disk.local / protocol.ADDRESS).exists()  # a port that is free again may be anybody's


async def test_a_port_that_does_not_take_a_call_is_nobodys(memory: Memory) -> None:
    """Windows tries a port where nobody listens for two seconds; here a full queue of calls does the same."""
    folder = memory.disk.local / protocol.BRIEFS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.json").write_text("{}")
    (folder / "global.md").write_text("Ana keeps bees.")
    run = memory.disk.local / "run"
    run.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as dead, contextlib.ExitStack() as callers:
        for _ in range(4):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                caller.connect(dead.getsockname())
        (run / "hooks").write_bytes(protocol.address("t", 1, f"port {dead.getsockname()[1]}"))
        printed = await responded(memory.disk.root, "SessionStart", source="startup")
    assert printed["hookSpecificOutput"]["additionalContext"] == "Ana keeps bees."


async def test_the_window_of_a_session_is_known_to_every_server(memory: Memory, tmp_path: Path) -> None:
    from mcp_server.context.windows import session_in

    window = tmp_path / "window.sock"
    window.touch()
    of_window = {protocol.WINDOW_VARIABLE: str(window)}
    async with listening(memory, Told()):
        await responded(memory.disk.root, "UserPromptSubmit", of_window)
        assert await session_in(memory, str(window)) == SESSION
        await responded(memory.disk.root, "SessionStart", of_window, session_id="after-clear")
        assert await session_in(memory, str(window)) == "after-clear"
        await responded(memory.disk.root, "Stop", {protocol.WINDOW_VARIABLE: "/gone"})
    async with listening(memory, Told()):  # the next one forgets windows that are closed
        await eventually(lambda: _answers(memory))
    assert await session_in(memory, str(window)) == "after-clear"
    assert await session_in(memory, "/gone") is None


async def test_another_server_takes_over_when_the_one_that_listens_is_killed(workspace: Path) -> None:
    local = workspace / ".local"

    def pid() -> int:
        try:
            return protocol.read_address((local / protocol.ADDRESS).read_bytes())[1]
        except (OSError, ValueError):
            return 0

    async def reaches(server: int) -> bool:
        if pid() != server:
            return False
        await run_sync(lambda: hook(workspace, "Stop", given=said()))
        return queued(local) == []

    async with served(workspace) as one:
        await one.call("status")
        await eventually(lambda: reaches(one.pid))
        async with served(workspace) as two:
            await two.call("status")
            assert await reaches(one.pid)
            one.kill()
            await eventually(lambda: reaches(two.pid))
