"""A disk that cannot be written, and one that is full: what is there is served, refusals say why, nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from tests.end_to_end.servers import (
    Served,
    assert_clear,
    command,
    done,
    eventually,
    facts,
    failed,
    files_below,
    mounting,
    served,
    turns,
)

pytestmark = pytest.mark.anyio

READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"'
SMALL = 'mount -t tmpfs -o size=6m none "$1"'
FULL = f'{SMALL}; cp -R "$2/." "$1"; cat /dev/zero > "$1/filler" 2> /dev/null || true'
REFUSED = "read-only"


async def a_memory(root: Path) -> None:
    """A workspace with something in it, and no process that has it open."""
    await done(root, "observe", "The blue boat lies in Senj.", "--session", "s")
    await done(root, "remember", "Ana sails too.")
    await done(root, "reset", "--index", "--apply")


async def test_a_read_only_workspace_is_served_and_says_what_it_cannot_do(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    await a_memory(root)
    before = files_below(root)
    prefix = mounting(READ_ONLY, root)
    async with served(root, prefix=prefix) as server:
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        assert "Ana" in await server.call("read", path="knowledge/memory/MEMORY.md")
        assert "Senj" in await server.call("compile_context", message="Where does the blue boat lie?")
        assert "Ana" in await server.call("compile_context", session="s")
        assert "cannot be written" in await server.problems()
        for _ in range(2):
            assert REFUSED in await server.refused("observe", role="agent", content="A fine harbour.", session="s")
            assert REFUSED in await server.refused("observe", role="user", content="Something else.")
            assert REFUSED in await server.refused("remember", content="Ivo sails too.", project="global")
            assert REFUSED in await server.refused("remember", content="Ivo sails too.", session="s")
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        assert "Traceback" not in server.stderr()
    assert REFUSED in await failed(root, "observe", "No.", prefix=prefix)
    assert REFUSED in await failed(root, "session", "end", "s", prefix=prefix)
    assert "Senj" in await done(root, "search", "blue boat", prefix=prefix)
    assert_clear((await command(root, "doctor", prefix=prefix)).stdout)
    assert files_below(root) == before
    async with served(root) as server:
        assert "turn 2 recorded" in await server.call("observe", role="agent", content="A fine harbour.", session="s")


async def test_a_folder_that_cannot_hold_a_workspace_is_named_and_tried_again(tmp_path: Path) -> None:
    root = tmp_path / "disk" / "memory"
    root.parent.mkdir()
    async with served(root, prefix=mounting(READ_ONLY, root.parent), beside=tmp_path / "processes") as server:
        for _ in range(2):
            assert REFUSED in await server.refused("observe", role="user", content="Hello.")
            assert REFUSED in await server.refused("status")
        assert len((await server.client.list_tools()).tools) == 10
    assert not root.exists()


async def fill(server: Served, disk: Path) -> Path:
    """Leaves not one block free on the server's disk; returns the file that took them."""
    filler = server.inside(disk) / "filler"
    size = 1 << 20
    with filler.open("ab", buffering=0) as stream:
        while size:
            try:
                stream.write(b"\0" * size)
            except OSError:
                size //= 2
    return filler


async def test_on_a_full_disk_what_is_there_is_served_and_room_is_used_again(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    root.mkdir()
    said: list[str] = []
    known: list[str] = []
    async with served(root, prefix=mounting(SMALL, root)) as server:
        await server.call("remember", content="Ana sails too.", project="global")
        for number in range(3):
            await server.call("observe", role="user", content=f"number {number}", session="s", turn_id=f"t{number}")
            said.append(f"number {number}")
        await eventually(lambda: server.finds("number"))
        filler = await fill(server, root)
        before = (server.inside(root) / "knowledge" / "memory" / "MEMORY.md").read_bytes()
        refusals: list[str] = []

        async def one(number: int) -> None:
            arguments = {"role": "user", "content": f"number {number} " + "x" * 9000, "session": "s"}
            refusals.append(await server.refused("observe", **arguments, turn_id=f"t{number}"))
            refusals.append(await server.refused("remember", content=f"fact {number} " + "y" * 9000, project="global"))

        async with anyio.create_task_group() as tasks:
            for number in range(3, 9):
                tasks.start_soon(one, number)
        assert {("disk is full" in refusal) for refusal in refusals} == {True}, refusals
        assert turns(server.inside(root)) == {"s": [(n + 1, content) for n, content in enumerate(said)]}
        assert (server.inside(root) / "knowledge" / "memory" / "MEMORY.md").read_bytes() == before
        assert await server.hits("number")
        assert "Ana" in await server.call("read", path="knowledge/memory/MEMORY.md")
        assert "Ana" in await server.call("compile_context", message="Who sails?")
        await server.call("status")
        filler.unlink()
        for number in range(3, 9):
            said.append(f"number {number} " + "x" * 9000)
            await server.call("observe", role="user", content=said[-1], session="s", turn_id=f"t{number}")
            known.append(f"fact {number} " + "y" * 9000)
            await server.call("remember", content=known[-1], project="global")
        assert turns(server.inside(root)) == {"s": [(n + 1, content) for n, content in enumerate(said)]}
        assert facts(server.inside(root)) == dict.fromkeys(["Ana sails too.", *known], 1)
        assert await server.hits("number")
        assert not [path for path in files_below(server.inside(root)) if path.endswith(".tmp")]
        assert "Traceback" not in server.stderr()


async def test_a_start_on_a_full_disk_serves_what_is_there(tmp_path: Path) -> None:
    root, kept = tmp_path / "memory", tmp_path / "kept"
    await a_memory(root)
    shutil.copytree(root, kept)
    async with served(root, prefix=mounting(FULL, root, kept)) as server:
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        assert "Ana" in await server.call("read", path="knowledge/memory/MEMORY.md")
        assert "Ana" in await server.call("compile_context", message="Who sails?")
        await server.refused("observe", role="agent", content="A fine harbour. " * 1000, session="s")
        assert turns(server.inside(root)) == {"s": [(1, "The blue boat lies in Senj.")]}
        assert await server.problems()
        (server.inside(root) / "filler").unlink()
        assert "turn 2 recorded" in await server.call("observe", role="agent", content="A fine harbour.", session="s")
        assert "Traceback" not in server.stderr()
