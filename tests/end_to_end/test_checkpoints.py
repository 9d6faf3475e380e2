"""A conversation is wound back to a checkpoint and forward again: over stdio, with `kill -9` in the middle, without git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_server.actions import checkpoints, clarity
from mcp_server.actions.live_set import live_set
from mcp_server.actions.restore import finish
from mcp_server.actions.stored_inputs import verify
from mcp_server.app import open_memory
from mcp_server.memory import Memory
from tests.conftest import KEYWORDS_ONLY
from tests.end_to_end.killed import Killed
from tests.end_to_end.servers import Served, command, eventually, files_below, served, turns

pytestmark = pytest.mark.anyio

EVERY = int(os.environ.get("CM_KILL_EVERY", "5"))
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
        counted = {name: value for name, value in (await clarity.state_of(memory, "s")).items() if name != "lastPersistAt"}
        return State(
            files_below(root / "knowledge"),
            (root / "anchors.yaml").read_text(),
            [
                (chunk.id, chunk.form, chunk.shown, chunk.tokens)
                for chunk in await live_set(memory, "s")
                if chunk.form != "cold"
            ],
            counted,
            await memory.state.get("topics", "s"),
        )


async def holds(root: Path, wanted: State) -> bool:
    return await state(root) == wanted


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True).stdout


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(text.encode())


async def talk(server: Served, first: int, last: int) -> None:
    """Exchanges `first` to `last`, two turns each."""
    for number in range(first, last + 1):
        said = f"Question {number}: what does ClaraCore pay for winter berth {number} in Kotor?"
        await server.call("observe", role="user", content=said, session="s", delivery="replace")
        answer = f"Answer {number}: berth {number} costs {number * 10} euros a month, says the harbour master."
        await server.call("observe", role="agent", content=answer, session="s", tool_calls=[{"name": f"look_{number}"}])


async def begun(root: Path, server: Served, *, committed: bool) -> None:
    """Forty turns, anchors, topics, knowledge that is committed and knowledge that is not."""
    await server.call("status")  # the memory is made after the first answer
    write(root, "knowledge/memory/MEMORY.md", "# Memory\n\n- 2026-02-01: the berth in Kotor costs 300 euros\n")
    write(root, "knowledge/people/ana.md", "# Ana\r\n\r\nAna keeps the berth.\r\n")  # line ends that git would change
    if committed:
        git(root, "add", "knowledge")
        git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "knowledge")
    write(root, "knowledge/people/marko.md", "# Marko\n\nMarko is not committed.\n")
    await talk(server, 1, 20)
    await server.call("anchor", item="ClaraCore", note="it pays")
    async with open_memory(root, KEYWORDS_ONLY) as memory:
        await memory.state.put("topics", "s", TOPIC)


async def gone_on(root: Path, server: Served, *, committed: bool) -> None:
    """Forty turns more, and everything is another."""
    await talk(server, 21, 40)
    await server.call("anchor", item="ClaraCore", on=False)
    await server.call("anchor", item="Kotor")
    write(root, "knowledge/memory/MEMORY.md", "# Memory\n\n- 2026-02-01: the berth in Kotor costs 400 euros\n")
    if committed:
        git(root, "add", "knowledge")
        git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "dearer")
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
        checkpoint = await checkpoints.read(memory, number)
        assert checkpoint.compiled_sha256
        checked = await verify(memory, checkpoint)
        assert (checked.matches, checked.sha256) == (True, checkpoint.compiled_sha256), checked


@pytest.mark.parametrize("with_git", [True, False], ids=["git", "no git"])
async def test_a_conversation_goes_back_to_a_checkpoint_and_forward_again(tmp_path: Path, with_git: bool) -> None:
    root, env = tmp_path / "memory", {} if with_git else NO_GIT
    async with served(root, env=env) as server:
        await begun(root, server, committed=with_git)
        compiled = await server.call("compile_context", session="s")
        then = await state(root)
        number = number_in(await server.call("checkpoint", session="s", note="before the journey"), "checkpoint")
        await gone_on(root, server, committed=with_git)
        later, conversations = await state(root), turns(root)
        shown = await server.call("recover", id=number, knowledge=True)
        for line in (
            "anchors set again: claracore",
            "anchors taken away: kotor",
            "topics active again: harbour",
            "topics no longer active: journey",
            "no longer live: 60 chunks",
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
        assert "Question 40" not in again
        assert "Question 20" in again
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
        await talk(server, 41, 41)
        assert "Question 41" in await server.call("compile_context", session="s")


async def test_after_the_next_message_what_was_wound_back_stays_out_and_can_be_recovered(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    async with served(root) as server:
        await begun(root, server, committed=False)
        number = number_in(await server.call("checkpoint", session="s"), "checkpoint")
        await talk(server, 21, 25)
        await server.call("recover", id=number, dry_run=False)
        await talk(server, 26, 26)
        context = await server.call("compile_context", session="s")
        async with open_memory(root, KEYWORDS_ONLY) as memory:
            chunks = await live_set(memory, "s")
            exchanges = (await clarity.state_of(memory, "s"))["currentTurn"]
        assert {chunk.turn for chunk in chunks if chunk.form == "cold"} == set(range(41, 51))
        assert {chunk.turn for chunk in chunks if chunk.form == "whole"} == {*range(1, 41), 51, 52}
        assert "Question 26" in context
        assert exchanges == 21, "Clarity counts neither those that were wound back"
        cold = next(chunk for chunk in chunks if chunk.turn == 49 and chunk.part == 0)
        assert "Question 25" in await server.call("recover", id=cold.id, dry_run=False)


# ------------------------------------------------------------ kill -9


@pytest.fixture
async def ready(tmp_path: Path) -> tuple[Path, str, State, State]:
    """A conversation that may go back: its folder, the checkpoint, its state then and now."""
    root = tmp_path / "memory"
    async with served(root) as server:
        await begun(root, server, committed=True)
        then = await state(root)
        number = number_in(await server.call("checkpoint", session="s"), "checkpoint")
        await gone_on(root, server, committed=True)
    return root, number, then, await state(root)


async def own_checkpoint(memory: Memory) -> str:
    """The undo of the recovery that was killed: it is listed, whoever did not get the answer."""
    return next(head.id for head in await checkpoints.listed(memory, "s") if head.reason == "recovery")


@pytest.mark.parametrize("with_git", [True, False], ids=["git", "no git"])
async def test_a_recovery_that_is_killed_at_any_of_its_writes_is_finished_by_the_next_start(
    ready: tuple[Path, str, State, State], tmp_path: Path, with_git: bool
) -> None:
    root, number, then, later = ready
    conversations = turns(root)
    outcomes: list[str] = []
    for at in range(1, 1000, EVERY):
        copy, killed = tmp_path / f"at-{at}" / "memory", Killed(tmp_path / f"kill-{at}")
        shutil.copytree(root, copy)
        env = killed.env(at) | ({} if with_git else NO_GIT)
        killed.arm()
        arguments = ("recover", "--checkpoint", number, "--knowledge", "--apply")
        ended = await command(copy, *arguments, env=env)
        if ended.returncode == 0:
            break
        assert ended.returncode == -9, ended.stderr
        async with open_memory(copy, KEYWORDS_ONLY) as memory:
            begun_before = await finish(memory) == 1
            assert await finish(memory) == 0
        now = await state(copy)
        assert now in (then, later), f"killed at write {at}: neither as it was nor as it shall be"
        outcomes.append("then" if now == then else "later")
        assert not begun_before or now == then
        async with open_memory(copy, KEYWORDS_ONLY) as memory:
            undo = await own_checkpoint(memory) if now == then else None
        if undo:
            assert "undone" in (await command(copy, "recover", undo, "--apply")).stdout or await holds(copy, later)
            assert await holds(copy, later), f"killed at write {at}: its undo"
        assert turns(copy) == conversations
        shutil.rmtree(copy.parent)
    else:
        pytest.fail("a recovery of a thousand writes")
    print(f"killed at {len(outcomes)} writes: {outcomes.count('later')} left as it was, {outcomes.count('then')} finished")
    assert {"then", "later"} == set(outcomes)
    assert outcomes == sorted(outcomes, key=lambda one: one == "then"), "once it was begun, it is always finished"


@asynccontextmanager
async def killed_server(root: Path, killed: Killed, at: int) -> AsyncIterator[Served]:
    """A server that may die: the client's end of it is no failure."""
    try:
        async with served(root, env=killed.env(at)) as server:
            yield server
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, ExceptionGroup):
        pass
