"""A conversation goes back to a checkpoint and forward again: over stdio, with `kill -9` in the middle, without git."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from mcp_server.app import open_memory
from mcp_server.checkpoints import stored
from mcp_server.checkpoints.kept import verify
from mcp_server.checkpoints.restore import finish
from mcp_server.relevance import clarity
from mcp_server.relevance.live_set import live_set
from tests.conftest import KEYWORDS_ONLY
from tests.end_to_end.killed import Killed
from tests.end_to_end.servers import Served, command, done, eventually, files_below, served, turns
from tests.gitting import git, write

pytestmark = pytest.mark.anyio

EVERY = int(os.environ.get("CM_KILL_EVERY", "48"))
"""A recovery is killed at every so many of its writes; 1 is each of them."""

NO_GIT = {"PATH": "/nowhere", "GIT_PYTHON_GIT_EXECUTABLE": ""}
TOPIC = {"harbour": {"fired": 3, "by": "pattern", "manual": False}}
LATER_TOPIC = {"journey": {"fired": 39, "by": "keywords", "manual": False}}


@dataclass(frozen=True)
class State:
    """Everything that a recovery restores, as far as it can be compared."""

    knowledge: dict[str, bytes]
    anchors: str
    live: list[tuple[str, str, str | None, int]]
    clarity: dict[str, Any]
    topics: Any


async def state(root: Path) -> State:
    """The state of session `s`, looked at by a process of its own (this one)."""
    async with open_memory(root, KEYWORDS_ONLY) as memory:
        counted = {
            name: value
            for name, value in (await clarity.judged(memory, "s")).counts.as_dict(memory.clock()).items()
            if name != "lastPersistAt"
        }
        knowledge = files_below(root / "knowledge")
        return State(
            # What a write that was cut off leaves is cleared away by housekeeping, in an hour.
            {path: data for path, data in knowledge.items() if not re.search(r"\.cm-[0-9a-f]+\.tmp$", path)},
            (root / "anchors.yaml").read_text(),
            [
                (chunk.id, chunk.form, chunk.shown, chunk.tokens)
                for chunk in await live_set(memory, "s")
                if chunk.form != "cold"
            ],
            counted,
            await memory.state.get("topics", "s"),
        )


async def talk(server: Served, first: int, last: int) -> None:
    """Exchanges `first` to `last`, two turns each."""
    for number in range(first, last + 1):
        said = f"Question {number}: what does ClaraCore pay for winter berth {number} in Kotor?"
        await server.call("observe", role="user", content=said, session="s", delivery="replace")
        answer = f"Answer {number}: I looked at the page of the harbour master about berth {number}."
        await server.call("observe", role="agent", content=answer, session="s", tool_calls=[{"name": f"look_{number}"}])


async def begun(root: Path, server: Served, *, committed: bool, exchanges: int) -> None:
    """Two turns an exchange, anchors, topics, knowledge that is committed and knowledge that is not."""
    await server.call("status")  # the memory is made after the first answer
    write(root, "knowledge/memory/MEMORY.md", "# Memory\n\n- 2026-02-01: the berth in Kotor costs 300 euros\n")
    write(root, "knowledge/people/ana.md", "# Ana\r\n\r\nAna keeps the berth.\r\n")  # line ends that git would change
    if committed:
        git(root, "add", "knowledge")
        git(root, "commit", "-qm", "knowledge")
    write(root, "knowledge/people/marko.md", "# Marko\n\nMarko is not committed.\n")
    await talk(server, 1, exchanges)
    await server.call("anchor", item="ClaraCore", note="it pays")
    async with open_memory(root, KEYWORDS_ONLY) as memory:
        await memory.state.put("topics", "s", TOPIC)


async def gone_on(root: Path, server: Served, *, committed: bool, exchanges: range) -> None:
    """Continues with these exchanges and changes everything else."""
    await talk(server, exchanges.start, exchanges.stop - 1)
    await server.call("anchor", item="ClaraCore", on=False)
    await server.call("anchor", item="Kotor")
    write(root, "knowledge/memory/MEMORY.md", "# Memory\n\n- 2026-02-01: the berth in Kotor costs 400 euros\n")
    if committed:
        git(root, "add", "knowledge")
        git(root, "commit", "-qm", "dearer")
    write(root, "knowledge/people/ana.md", "# Ana\n\nAna has left.\n")
    (root / "knowledge/people/marko.md").unlink()
    write(root, "knowledge/people/vesna.md", "# Vesna\n\nVesna keeps the berth now.\n")
    async with open_memory(root, KEYWORDS_ONLY) as memory:
        await memory.state.put("topics", "s", LATER_TOPIC)


def number_in(answer: str, word: str) -> str:
    found = re.search(rf"{word}:? (?:recover )?(ckp_[0-9a-f]+)", answer)
    assert found, answer
    return found[1]


async def compiles_as_then(root: Path, number: str) -> None:
    """Compiling what is stored gives the stored hash."""
    async with open_memory(root, KEYWORDS_ONLY) as memory:
        checkpoint = await stored.read(memory, number)
        assert checkpoint.compiled_sha256
        checked = await verify(memory, checkpoint)
        assert (checked.matches, checked.sha256) == (True, checkpoint.compiled_sha256), checked


@pytest.mark.parametrize("with_git", [True, False], ids=["git", "no git"])
async def test_a_conversation_goes_back_to_a_checkpoint_and_forward_again(tmp_path: Path, with_git: bool) -> None:
    root, env = tmp_path / "memory", {} if with_git else NO_GIT
    async with served(root, env=env) as server:
        await begun(root, server, committed=with_git, exchanges=6)
        compiled = await server.call("compile_context", session="s")
        then = await state(root)
        number = number_in(await server.call("checkpoint", session="s", note="before the journey"), "checkpoint")
        await gone_on(root, server, committed=with_git, exchanges=range(7, 12))
        later, conversations = await state(root), turns(root)
        shown = await server.call("recover", id=number, knowledge=True)
        for line in (
            "anchors set again: claracore",
            "anchors taken away: kotor",
            "topics active again: harbour",
            "topics no longer active: journey",
            "no longer live: 15 chunks",
            "knowledge/memory/MEMORY.md: changed, +1 −1",
            "knowledge/people/marko.md: added, +3 −0",
            "knowledge/people/vesna.md: removed, +0 −3",
        ):
            assert line in shown
        assert await state(root) == later, "a dry run changes nothing"

        done = await server.call("recover", id=number, knowledge=True, dry_run=False)
        assert await state(root) == then
        assert "compiling its inputs gives the same context as then" in done
        await compiles_as_then(root, number)
        again = await server.call("compile_context", session="s")
        assert "Question 11" not in again
        assert "Question 6:" in again
        assert again == compiled, "seen as of then, with the knowledge of then, it is the very same context"
        undo = number_in(done, "undo")
        if with_git:
            assert git(root, "log", "-1", "--format=%s").startswith(f"recovery: back to checkpoint {number}")
            assert git(root, "rev-parse", f"memory/before/{undo}").strip() == git(root, "rev-parse", "HEAD~1").strip()
            assert git(root, "status", "--porcelain", "knowledge", "anchors.yaml") == ""

        undone = await server.call("recover", id=undo, dry_run=False)
        assert await state(root) == later
        assert number_in(undone, "undo") not in (number, undo)
        assert turns(root) == conversations, "no conversation was touched"
        await talk(server, 12, 12)
        assert "Question 12" in await server.call("compile_context", session="s")


async def test_after_the_next_message_what_was_wound_back_stays_out_and_can_be_recovered(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        await begun(root, server, committed=False, exchanges=6)
        number = number_in(await server.call("checkpoint", session="s"), "checkpoint")
        await talk(server, 7, 11)
        await server.call("recover", id=number, dry_run=False)
        await talk(server, 12, 12)
        context = await server.call("compile_context", session="s")
        async with open_memory(root, KEYWORDS_ONLY) as memory:
            chunks = await live_set(memory, "s")
            exchanges = (await clarity.judged(memory, "s")).counts.as_dict(memory.clock())["currentTurn"]
        assert {chunk.turn for chunk in chunks if chunk.form == "cold"} == set(range(13, 23))
        assert {chunk.turn for chunk in chunks if chunk.form == "whole"} == {*range(1, 13), 23, 24}
        assert "Question 12" in context
        assert exchanges == 7, "Clarity counts neither those that were wound back"
        cold = next(chunk for chunk in chunks if chunk.turn == 21 and chunk.part == 0)
        assert "Question 11" in await server.call("recover", id=cold.id, dry_run=False)


# ------------------------------------------------------------ kill -9


@dataclass(frozen=True)
class Ready:
    """A conversation that may go back: its folder, the checkpoint, its state then and now."""

    root: Path
    number: str
    then: State
    later: State
    env: dict[str, str]


READY: dict[bool, Ready] = {}
"""With git and without: made once a process; each test gets a copy."""


@pytest.fixture(params=[True, False], ids=["git", "no git"])
async def ready(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Ready:
    with_git = bool(request.param)
    if with_git not in READY:
        READY[with_git] = await made_ready(tmp_path_factory.mktemp("ready") / "memory", with_git)
    root = tmp_path / "memory"
    shutil.copytree(READY[with_git].root, root)
    return replace(READY[with_git], root=root)


async def made_ready(root: Path, with_git: bool) -> Ready:
    """Makes a conversation of six exchanges with a checkpoint after the third."""
    env = {} if with_git else NO_GIT
    async with served(root, env=env) as server:
        await begun(root, server, committed=with_git, exchanges=3)
        then = await state(root)
        number = number_in(await server.call("checkpoint", session="s"), "checkpoint")
        await gone_on(root, server, committed=with_git, exchanges=range(4, 7))
    return Ready(root, number, then, await state(root), env)


async def undo_of_what_was_killed(root: Path) -> str:
    """The recovery's own checkpoint: it is listed, also for whoever did not get the answer."""
    async with open_memory(root, KEYWORDS_ONLY) as memory:
        return next(head.id for head in await stored.listed(memory, "s") if head.reason == "recovery")


async def test_a_recovery_that_is_killed_at_any_of_its_writes_is_finished_by_the_next_start(
    ready: Ready, tmp_path: Path
) -> None:
    conversations = turns(ready.root)
    finished: list[bool] = []
    for at in range(1, 1000, EVERY):
        root, killed = tmp_path / f"at-{at}" / "memory", Killed(tmp_path / f"kill-{at}")
        shutil.copytree(ready.root, root)
        killed.arm()
        going_back = ("recover", ready.number, "--knowledge", "--apply")
        ended = await command(root, *going_back, env=killed.env(at) | ready.env)
        if ended.returncode == 0:
            break
        assert ended.returncode == -9, ended.stderr
        async with open_memory(root, KEYWORDS_ONLY) as memory:
            was_begun = await finish(memory) == 1
            assert await finish(memory) == 0
        now = await state(root)
        assert now in (ready.then, ready.later), f"killed at write {at}: neither as it was nor as it shall be"
        assert not was_begun or now == ready.then
        finished.append(now == ready.then)
        if now == ready.then:
            await done(root, "recover", await undo_of_what_was_killed(root), "--apply")
            assert await state(root) == ready.later, f"killed at write {at}: its undo"
        assert turns(root) == conversations
        shutil.rmtree(root.parent)
    else:
        pytest.fail("a recovery of a thousand writes")
    print(f"\nkilled at {len(finished)} of about {at} writes: {finished.count(True)} finished by the next start")
    assert finished == sorted(finished), "once it was begun, it is always finished"
    assert set(finished) == {False, True}


@pytest.mark.parametrize("ready", [True], ids=["git"], indirect=True)
async def test_a_server_that_is_killed_while_it_goes_back_leaves_nothing_half_done(
    ready: Ready, tmp_path: Path
) -> None:
    root, killed, answered = ready.root, Killed(tmp_path / "kill"), False
    async with killed_server(root, killed.env(int(WRITES * 0.6)) | ready.env) as server:
        await server.call("status")
        killed.arm()
        with anyio.move_on_after(20):
            await server.client.call_tool("recover", {"id": ready.number, "knowledge": True, "dry_run": False})
        answered = True
    killed.disarm()
    assert not answered, "it was to be killed"
    async with served(root, env=ready.env) as server:

        async def whole() -> bool:
            return "interrupted" not in await server.problems() and await state(root) in (ready.then, ready.later)

        await eventually(whole)
        if await state(root) == ready.then:
            await server.call("recover", id=await undo_of_what_was_killed(root), dry_run=False)
        assert await state(root) == ready.later
        await server.call("recover", id=ready.number, knowledge=True, dry_run=False)
        assert await state(root) == ready.then


WRITES = 150
"""About how many writes a recovery of this small conversation makes, with git."""


@asynccontextmanager
async def killed_server(root: Path, env: dict[str, str]) -> AsyncIterator[Served]:
    """A server that dies while it is asked: that its client notices is no failure."""
    try:
        async with served(root, env=env) as server:
            yield server
    except (MCPError, OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        return
