"""A `sync` that is killed at any of its steps loses nothing, and the next one finishes it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest

from mcp_server.history.committing import commit_changes
from mcp_server.history.sync import sync
from mcp_server.knowledge.approve import waiting
from mcp_server.memory import Memory
from mcp_server.text.markdown import marked_line
from tests.gitting import write
from tests.history.two_copies import CORE, edit, same
from tests.preloaded import python

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]

KILLED = """
import sys
from pathlib import Path
import anyio
from mcp_server.history.sync import sync
from mcp_server.app import open_memory
from mcp_server.storage.local import durable
from mcp_server.storage.local.git.repository import Repository
from tests.killing import die_at

async def main():
    async with open_memory(Path(sys.argv[1]), {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none"}) as memory:
        die_at(int(sys.argv[2]), (Repository, "run"), (durable, "put"))
        await sync(memory)

anyio.run(main)
"""


async def test_a_kill_at_any_step_of_a_sync_loses_nothing_and_the_next_one_finishes(
    two: tuple[Memory, Memory], tmp_path: Path
) -> None:
    one, other = two
    facts: list[str] = []
    done = False
    for step in range(1, 400, 23):
        edit(one, CORE, "## Facts\n", f"## Facts\n\n- one {step}\n")
        write(one.disk.root, f"knowledge/people/one{step}.md", "# One\n")
        write(one.disk.root, f"topics/one{step}.md", "# One\n")
        await sync(one)
        edit(other, CORE, "## Key Decisions\n", f"## Key Decisions\n\n- other {step}\n")
        facts += [f"- one {step}", f"- other {step}"]
        killed = await anyio.run_process(python("-c", KILLED, str(other.disk.root), str(step)), check=False)
        assert killed.returncode in (0, -9), killed.stderr.decode()

        await sync(other)
        await sync(one)

        assert same(one, other)
        assert set(facts) <= set(one.files.read_text(CORE).split("\n"))
        assert one.files.exists(f"knowledge/people/one{step}.md")
        assert not list(other.disk.root.glob("topics/one*")), "what waits for approval is not taken over by a kill"
        assert f"topics/one{step}.md" in {found.proposal.path for found in await waiting(other)}
        assert not marked_line(one.files.read_text(CORE))
        if killed.returncode == 0:
            done = True
            break
    assert done
    leftovers = list((other.disk.root / ".git").glob("context-manager*.index"))
    for leftover in leftovers:
        os.utime(leftover, (1, 1))
    write(other.disk.root, "knowledge/people/last.md", "# Last\n")
    await commit_changes(other)
    assert not any(leftover.exists() for leftover in leftovers)
