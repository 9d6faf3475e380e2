"""Reconstructing while a server works on the same memory, and being killed in the middle of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.imports import record_session
from mcp_server.history.committing import commit_changes
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.reconstruct import reconstruct, reconstructions
from tests.end_to_end.servers import DATABASE_TROUBLE, Served, done, eventually, facts, served
from tests.gitting import git, subjects
from tests.knowledge.test_extract import ANA, talk
from tests.knowledge.test_reconstruct import OWN, head, tree
from tests.preloaded import python
from tests.serving import PLAIN

pytestmark = pytest.mark.anyio
CORE = "knowledge/memory/MEMORY.md"
SAYS = ("I adopted two kittens yesterday.", "I moved to Zagreb last week.", "I love hiking in the Alps.")


async def filled(workspace: Path) -> None:
    """Conversations, what extractors made of them, and a line of the user's own that is not committed yet."""
    async with open_memory(workspace, PLAIN) as memory:
        for number, said in enumerate(SAYS * 4):
            await record_session(memory, talk(said, "Great!", session=f"talk-{number}", days=number))
        await extract(memory)
        await commit_changes(memory)
    place = workspace / ANA
    place.write_text(f"{place.read_text()}\n## Ours\n{OWN}\n")


class Busy:
    """Somebody who talks to a server all the time; what was acknowledged, and how often."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self.remembered: list[str] = []
        self.rounds = 0
        self._stop = False

    @asynccontextmanager
    async def talking(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._talk)
            yield
            self._stop = True

    async def _talk(self) -> None:
        while not self._stop:
            said = f"berth number {self.rounds} of the harbour is free"
            await self._server.call("observe", role="user", content=said, session="live")
            await self._server.call("remember", content=said, project="global")
            self.remembered.append(said)
            await self._server.call("compile_context", message="Which berth is free?", session="live")
            self.rounds += 1
            await anyio.sleep(0.1)  # a second round in between proves no more


async def test_while_a_server_works_its_memory_is_untouched_until_a_variant_is_merged(workspace: Path) -> None:
    await filled(workspace)
    async with served(workspace) as server:
        busy = Busy(server)
        await server.call("observe", role="user", content="hello", session="live")
        before, commit = tree(workspace), head(workspace)
        async with busy.talking():
            rounds = busy.rounds
            lean = await json_of(workspace, "reconstruct", "create", "lean", "--only", "journal")
            whole = await json_of(workspace, "reconstruct", "create", "whole")
            found = await json_of(workspace, "reconstruct", "compare", "lean", "whole")
            assert head(workspace) == commit
            during, since = busy.rounds - rounds, found["deltas"]["whole"]["own_since"]
        after = tree(workspace)

        assert during > 0, "the server answers meanwhile"
        assert since > 0, "what is written meanwhile is not taken for lost"
        assert (lean["conversations"], whole["conversations"]) == (12, 12)
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        own = ("raw/conversations/", "checkpoints/", "archive/memory/")  # the last for what the memory is too full for
        assert {path for path in changed if not path.startswith(own)} == {CORE}
        assert git(workspace, "branch", "--show-current") == "main"

        lines = {one["name"]: one["lines"] for one in found["versions"]}
        assert lines["lean"] < lines["whole"] == lines["memory"]
        assert [found["deltas"][name]["own_lost"] for name in ("lean", "whole")] == [[], []]

        again = Busy(server)
        async with again.talking():
            merged = await json_of(workspace, "reconstruct", "merge", "lean", "--apply")
            await done(workspace, "reconstruct", "drop", "whole", "--apply")

        assert (merged["tag"], merged["contested"]) == ("memory/extract/lean", [])
        text = (workspace / ANA).read_text()
        assert OWN in text
        assert "kittens" not in text
        assert all(facts(workspace)[said] == 1 for said in {*busy.remembered, *again.remembered})
        assert "extract: merge reconstruction lean" in subjects(workspace)

        async def searched() -> bool:
            return not any(hit["path"] == ANA and "kittens" in hit["snippet"] for hit in await server.hits("kittens"))

        await eventually(searched)
        assert await server.finds("met at school")
        assert await server.problems() == ""
        assert not DATABASE_TROUBLE.search(server.stderr())
    assert not list((workspace / ".local/extract").iterdir())


async def json_of(workspace: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await done(workspace, *arguments, "--json"))
    return found


KILLED = """
import sys
from pathlib import Path
import anyio
from mcp_server.knowledge.reconstruct import reconstruct
from mcp_server.app import open_memory
from mcp_server.storage.local import durable
from mcp_server.storage.local.git.repository import Repository
from mcp_server.storage.local.git.refs import Worktrees
from tests.killing import die_at
from tests.serving import PLAIN

async def main():
    async with open_memory(Path(sys.argv[1]), PLAIN) as memory:
        places = ((Repository, "run"), (Worktrees, "_git"), (durable, "put"))
        die_at(int(sys.argv[3]), *places, having=sys.argv[2:3])
        await reconstruct(memory, "again")

anyio.run(main)
"""


KILLS = {
    ("prune", 1): "make",  # before its branch is made
    ("update-ref", 1): "list",  # before what was not committed yet is on the branch
    ("update-ref", 2): "list",  # before the pages are on the branch
    ("knowledge/journal/2023-05-18.md", 2): "serve",  # when most of the pages are written
}
"""Calls of git, and writes of files, before which a reconstruction is killed: an argument of the call, and its number
among the calls with this argument. The value says what the next process does."""


async def test_a_kill_in_the_middle_leaves_nothing_that_the_next_run_does_not_clear_away(workspace: Path) -> None:
    await filled(workspace)
    before, commit = tree(workspace), head(workspace)
    extracting = workspace / ".local/extract"

    def clean() -> bool:
        return not extracting.exists() or not list(extracting.iterdir())

    for (word, step), way in KILLS.items():
        killed = await anyio.run_process(python("-c", KILLED, str(workspace), word, str(step)), check=False)
        assert killed.returncode == -9, (word, step, killed.stderr.decode())
        assert (extracting / "again").exists() == (word != "prune")

        if way == "serve":
            async with served(workspace):
                await eventually(clean)
            assert not any(subject.startswith("extract: what") for subject in subjects(workspace))
            commit = head(workspace)  # a server that ends commits what is not committed yet
        async with open_memory(workspace, PLAIN) as memory:
            if way == "make":
                await reconstruct(memory, "other", ["journal"])
                assert [one.name for one in await reconstructions(memory)] == ["other"]
                git(workspace, "worktree", "remove", "--force", str(extracting / "other"))
                git(workspace, "branch", "--quiet", "-D", "extract/other")
            assert await reconstructions(memory) == []

        assert clean()
        assert git(workspace, "branch", "--list") == "* main"
        assert len(git(workspace, "worktree", "list").split("\n")) == 1
        assert (tree(workspace), head(workspace)) == (before, commit)
    async with open_memory(workspace, PLAIN) as memory:
        await reconstruct(memory, "again")
        assert [one.name for one in await reconstructions(memory)] == ["again"]
