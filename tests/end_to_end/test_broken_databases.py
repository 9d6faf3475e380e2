"""The databases of the machine's own folder (index, state) are deleted or broken: they are made anew from the files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest

from tests.end_to_end.servers import DATABASE_TROUBLE, Served, eventually, served, turns
from tests.serving import text

pytestmark = pytest.mark.anyio

GARBAGE = random.Random(7).randbytes(200_000)


async def test_an_index_deleted_under_a_running_server_is_read_around_and_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server, served(root) as other:
        await server.call("observe", role="user", content="The blue boat lies in Senj.", session="s")
        await eventually(lambda: server.finds("blue boat"))
        for _ in range(3):
            shutil.rmtree(root / ".local" / "index")
            for one in (server, other):
                assert [hit.get("session") for hit in await one.hits("blue boat")] == ["s"]
            await server.call("compile_context", message="Where is the blue boat?")
            await eventually(lambda: server.finds("blue boat"))
            await eventually(lambda: other.finds("blue boat"))
        await other.call("observe", role="agent", content="A fine harbour.", session="s")
        await eventually(lambda: server.finds("harbour"))
    assert turns(root) == {"s": [(1, "The blue boat lies in Senj."), (2, "A fine harbour.")]}


async def test_garbage_in_the_index_is_read_around_and_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        await server.call("observe", role="user", content="The blue boat lies in Senj.", session="s")
        await eventually(lambda: server.finds("blue boat"))
        spoil_index(root)
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        await server.call("compile_context", message="Where is the blue boat?")
        await server.call("observe", role="agent", content="A fine harbour.", session="s")
        await eventually(lambda: server.finds("harbour"))
        assert await server.problems() == ""
    spoil_index(root)
    (root / ".local" / "index" / "memory-x.current").write_bytes(GARBAGE)
    async with served(root) as server:
        assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
        await eventually(lambda: server.finds("harbour"))
        assert await server.problems() == ""


def spoil_index(root: Path) -> None:
    """Writes garbage over every database of the index and its write-ahead log."""
    spoil((root / ".local" / "index").glob("*.db*"))


def spoil(databases: Iterable[Path]) -> None:
    """Writes garbage over the given files of SQLite databases.

    The `-shm` files are left alone. A running server maps them into its memory, and the operating system kills
    any process that reads a mapped file at the moment when it is cut to nothing.
    """
    for path in databases:
        if not path.name.endswith("-shm"):
            path.write_bytes(GARBAGE)


async def test_a_pointer_of_the_index_that_says_nothing_is_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        await server.call("observe", role="user", content="The blue boat lies in Senj.", session="s")
        await eventually(lambda: server.finds("blue boat"))
        (pointer,) = (root / ".local" / "index").glob("*.current")
        for nonsense in (GARBAGE, b"", b"999999"):
            pointer.write_bytes(nonsense)
            assert [hit.get("session") for hit in await server.hits("blue boat")] == ["s"]
            await eventually(lambda: server.finds("blue boat"))


async def test_a_state_of_garbage_is_moved_aside_and_read_back_from_the_transcripts(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    turn = {"role": "user", "content": "continue", "session": "s"}
    async with served(root) as server:
        await server.call("observe", **turn, turn_id="t1")
        await server.call("observe", role="agent", content="Done.", session="s")
    state = root / ".local" / "state.db"
    for beside in state.parent.glob("state.db-*"):
        beside.unlink()
    state.write_bytes(GARBAGE)
    async with served(root) as first, served(root) as second, anyio.create_task_group() as tasks:
        for server in (first, second):  # both find it broken at once
            tasks.start_soon(once_more, server, turn)
    async with served(root) as server:
        assert "turn 3 recorded" in await server.call("observe", **turn, turn_id="t2")
        logs = server.stderr()
    assert [said for _, said in turns(root)["s"]] == ["continue", "Done.", "continue"]
    (aside,) = root.glob(".local/state.db.damaged-*")
    assert aside.read_bytes() == GARBAGE
    assert not DATABASE_TROUBLE.search(logs)


async def once_more(server: Served, turn: dict[str, str]) -> None:
    answer = await server.call("observe", **turn, turn_id="t1")
    assert "turn 1 was already recorded" in answer


async def test_a_state_that_turns_to_garbage_under_a_running_server_is_replaced(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server, served(root) as other:
        await server.call("observe", role="user", content="one", session="s", turn_id="t1")
        await server.call("observe", role="user", content="first", session="r", turn_id="t1")
        spoil(root.glob(".local/state.db*"))
        assert "Core Memory" in await server.call("read", path="knowledge/memory/MEMORY.md")
        for one, number in ((server, 2), (other, 3), (server, 4), (other, 5)):
            turn = {"role": "user", "content": f"number {number}", "session": "s", "turn_id": f"t{number}"}
            result = await one.client.call_tool("observe", turn)
            if result.is_error:  # whoever finds it says so once
                assert "damaged and is replaced" in text(result)
                await one.call("observe", **turn)
        assert "turn 1 was already" in await other.call(
            "observe", role="user", content="first", session="r", turn_id="t1"
        )
        assert "damaged" in await server.problems() + await other.problems()
    assert turns(root) == {"s": [(1, "one"), *((n, f"number {n}") for n in (2, 3, 4, 5))], "r": [(1, "first")]}


async def test_the_keys_come_back_after_the_machines_own_folder_was_deleted(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    said = [
        ("user", "continue"),
        ("agent", "Done."),
        ("user", "continue"),
        ("agent", "Again."),
        ("user", "To the harbour."),
    ]
    async with served(root) as server:
        for number, (role, content) in enumerate(said, start=1):
            identity = {"turn_id": f"t{number}"} if number < 4 else {}
            await server.call("observe", role=role, content=content, session="s", **identity)
    shutil.rmtree(root / ".local")
    async with served(root) as server:
        for _ in range(2):
            for number in (1, 2, 3):
                again = {"role": said[number - 1][0], "content": said[number - 1][1], "turn_id": f"t{number}"}
                assert f"turn {number} was already" in await server.call("observe", session="s", **again)
            assert "turn 5 was already" in await server.call(
                "observe", role="user", content="To the harbour.", session="s"
            )
            shutil.rmtree(root / ".local", ignore_errors=True)  # again, under the server, which also takes files away
        assert "turn 6 recorded" in await server.call("observe", role="user", content="continue", session="s")
        await eventually(lambda: server.finds("harbour"))
    assert [content for _, content in turns(root)["s"]] == [content for _, content in [*said, ("user", "continue")]]
