"""Disks that are full or read-only, damaged files, a clock that jumps, and a broken git repository."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import session_turns
from mcp_server.jobs.duties import keep_house
from mcp_server.model import Caller
from mcp_server.status.status import status
from tests.conftest import Clock
from tests.end_to_end.servers import (
    READ_ONLY,
    SMALL,
    Served,
    assert_clear,
    command,
    facts,
    files_below,
    mounting,
    served,
    turns,
)
from tests.serving import PLAIN, text
from tests.storage.fingerprint import assert_as_rebuilt
from tests.torture.frame import Case, Trial
from tests.torture.write_steps import KNOWN, SAID, base


async def full_disk(trial: Trial) -> None:
    """Writes until the disk is full, and for a while after; then frees it and writes again."""
    root, chance = trial.root, trial.chance
    root.mkdir()
    said: list[str] = []
    known: list[str] = []
    refused = 0
    async with served(root, prefix=mounting(SMALL, root)) as server:
        filler = server.inside(root) / "filler"
        await server.call("observe", role="user", content="The first.", session="s")
        said.append("The first.")
        free = chance.randrange(0, 400_000)
        with filler.open("wb") as stream:
            try:
                while True:
                    stream.write(b"\0" * 65536)
                    stream.flush()
            except OSError:
                pass
        with filler.open("r+b") as stream:
            stream.truncate(max(0, filler.stat().st_size - free))
        sent: list[dict[str, str]] = []
        for number in range(8 if trial.short else 25):
            size = chance.choice([10, 3_000, 40_000])
            sent.append({"content": f"message {number} " + "x" * size, "turn_id": f"t{number}"})
            refused += not await _tried(server, said, "observe", role="user", session="s", **sent[-1])
            content = f"fact {number} " + "y" * min(size, 9_000)
            refused += not await _tried(server, known, "remember", content=content, project="global")
        acknowledged = list(said)
        filler.unlink()
        for message in sent:  # a client sends again what was refused
            if message["content"] not in acknowledged:
                await server.call("observe", role="user", session="s", **message)
                said.append(message["content"])
        stored = server.inside(root)
        numbered = turns(stored)["s"]
        written = [content for _, content in numbered]
        assert [number for number, _ in numbered] == list(range(1, len(written) + 1))
        assert sorted(written) == sorted(said), f"{[one[:20] for one in written]} is not {[one[:20] for one in said]}"
        in_order = [content for content in written if content in acknowledged]
        assert in_order == acknowledged, f"{[one[:12] for one in in_order]} is not {[one[:12] for one in acknowledged]}"
        assert set(known) <= facts(stored).keys()
        assert "Traceback" not in server.stderr(), server.stderr()[:6000]
    trial.tally.faults += refused
    trial.tally.load += len(said) + len(known)


async def _tried(server: Served, kept: list[str], tool: str, **arguments: str) -> bool:
    """Calls a tool and adds the content to `kept` if it was acknowledged; a refusal must be a clear message."""
    result = await server.client.call_tool(tool, arguments)
    if result.is_error:
        assert_clear(text(result))
        return False
    kept.append(arguments["content"])
    return True


async def read_only_disk(trial: Trial) -> None:
    """Calls every tool on a workspace that cannot be written."""
    root = trial.root
    shutil.copytree(await base(trial.kept.parent), root)
    before = files_below(root)
    async with served(root, prefix=mounting(READ_ONLY, root)) as server:
        for _ in range(3):
            await server.refused("observe", role="user", content="No.", session="s")
            await server.refused("remember", content="No.", project="global")
            await served_as_usual(server)
    assert files_below(root) == before
    trial.tally.faults += 6
    trial.tally.load += 12


async def served_as_usual(server: Served) -> None:
    """Asserts that reading works, and that whatever is refused is refused with a clear message."""
    for tool, arguments in {
        "search": {"query": "blue boat"},
        "compile_context": {"message": "Where is the blue boat?", "session": "s"},
        "status": {},
        "recover": {},
    }.items():
        result = await server.client.call_tool(tool, arguments)
        if result.is_error:
            assert_clear(text(result))
        assert "bug in context-manager" not in text(result)


def flip(data: bytes, chance: random.Random) -> bytes:
    """Returns the bytes with one to eight flipped bits."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def truncate(data: bytes, chance: random.Random) -> bytes:
    """Returns the first part of the bytes."""
    return data[: chance.randrange(len(data))]


def garbage(data: bytes, chance: random.Random) -> bytes:
    """Returns other bytes of the same length."""
    return chance.randbytes(len(data))


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (flip, truncate, garbage)


async def damaged_files(trial: Trial) -> None:
    """Damages one to three files, starts a server, and writes and reads."""
    root, chance = trial.root, trial.chance
    shutil.copytree(await base(trial.kept.parent), root)
    candidates = [
        path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size and "locks" not in path.parts
    ]
    chosen = chance.sample(candidates, chance.randint(1, 3))
    damaged = {path.relative_to(root).as_posix() for path in chosen}
    for path in chosen:
        path.chmod(0o600)
        path.write_bytes(chance.choice(DAMAGES)(path.read_bytes(), chance))
    whole = {path: data for path, data in files_below(root / "raw").items() if f"raw/{path}" not in damaged}
    where = f"damaged: {', '.join(sorted(damaged))}"
    async with served(root) as server:
        await served_as_usual(server)
        acknowledged: list[str] = []
        for attempt in range(3):  # a part that is found to be damaged may be replaced first, and says so once
            content = f"After the damage {attempt}."
            if await _tried(server, acknowledged, "observe", content=content, role="user", session="after"):
                break
        assert acknowledged, f"nothing can be recorded any more; {where}"
        await served_as_usual(server)
        assert "Traceback" not in server.stderr(), f"{where}\n{server.stderr()}"
    assert acknowledged[-1] in [content for _, content in turns(root)["after"]], where
    now = files_below(root / "raw")
    assert all(now.get(path) == data for path, data in whole.items()), f"a whole transcript changed; {where}"
    trial.tally.faults += len(chosen)
    trial.tally.load += 9


EARLIEST, LATEST = datetime(1980, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)


async def clock_jumps(trial: Trial) -> None:
    """Sets the clock forward and back by up to forty years between messages."""
    chance, clock = trial.chance, Clock()
    said = []
    async with open_memory(trial.root, PLAIN, clock=clock) as memory:
        for number in range(8 if trial.short else 30):
            jump = timedelta(seconds=chance.choice([-1, 1]) * 10 ** chance.uniform(0, 9))
            clock.now = max(min(clock.now + jump, LATEST), EARLIEST)
            said.append(f"message {number}")
            await observe(memory, NewTurn("user", said[-1], session="s"), Caller())
            if chance.random() < 0.3:
                await keep_house(memory)
        stored = [turn.content for turn in await session_turns(memory, "s")]
        assert stored == said, f"stored {stored}"
        await catch_up(memory)
        await assert_as_rebuilt(memory.index)
        assert_clear((await status(memory)).markdown)
    trial.tally.faults += len(said)
    trial.tally.load += len(said)


GIT_FAULTS: dict[str, Callable[[Path, random.Random], None]] = {
    "no HEAD": lambda git, chance: (git / "HEAD").unlink(),
    "HEAD of garbage": lambda git, chance: garbage_in(git / "HEAD", chance),
    "index of garbage": lambda git, chance: garbage_in(git / "index", chance),
    "a lock left behind": lambda git, chance: (git / "index.lock").touch(),
    "config of garbage": lambda git, chance: garbage_in(git / "config", chance),
    "no refs": lambda git, chance: shutil.rmtree(git / "refs"),
    "no objects": lambda git, chance: shutil.rmtree(git / "objects"),
    "a lost object": lambda git, chance: chance.choice(sorted((git / "objects").glob("??/*"))).unlink(),
    "no repository": lambda git, chance: shutil.rmtree(git),
    "a file in its place": lambda git, chance: file_for_folder(git),
}


def file_for_folder(folder: Path) -> None:
    """Puts a file in the place of a folder."""
    shutil.rmtree(folder)
    folder.write_bytes(b"x")


def garbage_in(path: Path, chance: random.Random) -> None:
    """Overwrites a file with random bytes."""
    path.write_bytes(chance.randbytes(200))


async def broken_git(trial: Trial) -> None:
    """Breaks the repository under a running server or before its start; writing and reading go on."""
    root, chance = trial.root, trial.chance
    shutil.copytree(await base(trial.kept.parent), root)
    name = chance.choice(list(GIT_FAULTS))
    running = chance.random() < 0.5
    if not running:
        GIT_FAULTS[name](root / ".git", chance)
    async with served(root) as server:
        if running:
            await server.call("status")
            GIT_FAULTS[name](root / ".git", chance)
        await server.call("observe", role="user", content="After it broke.", session="after")
        await server.call("remember", content="The red boat lies in Rab.", project="global")
        await served_as_usual(server)
        with anyio.fail_after(120):
            await server.client.call_tool("checkpoint", {"session": "after"})
        assert "Traceback" not in server.stderr(), f"{name}: {server.stderr()}"
    assert turns(root)["after"] == [(1, "After it broke.")], name
    assert turns(root)["s"] == SAID, name
    assert facts(root) == {KNOWN: 1, "The red boat lies in Rab.": 1}, name
    assert_clear((await command(root, "status")).stdout)
    trial.tally.faults += 1
    trial.tally.load += 6


CASES = (
    Case(
        "full disk",
        "what is acknowledged on a full disk is stored; what is refused and sent again is stored once",
        full_disk,
        rounds=0,  # tests/end_to_end/test_broken_parts.py
    ),
    Case("read-only disk", "a read-only workspace is served and not changed", read_only_disk, rounds=0),  # as above
    Case(
        "damaged files",
        "with flipped bits, truncated files or garbage anywhere, the server goes on and changes no whole transcript",
        damaged_files,
    ),
    Case("clock jumps", "turns stay complete and in order while the clock jumps by decades", clock_jumps),
    Case("broken git", "recording and search go on with a broken repository", broken_git),
)
