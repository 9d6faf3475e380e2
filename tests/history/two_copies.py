"""A memory on two machines: what tests do to the copies, and whether they are the same; and names for all tests of the
history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mcp_server.app import open_memory
from mcp_server.history.committing import commit_changes
from mcp_server.history.sync import Synced, sync
from mcp_server.memory import Memory
from mcp_server.model import Caller
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import git, write

TESTS = Caller(source="tests")
CORE = "knowledge/memory/MEMORY.md"
KEY = "ghp_" + "a1B2" * 9
"""A secret, which is not committed."""


@asynccontextmanager
async def copy(place: Path, clock: Clock, **knobs: str) -> AsyncIterator[Memory]:
    """Opens one of the copies."""
    environ = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_WORKSPACE__TIMEZONE": "UTC", **knobs}
    async with open_memory(place, environ, clock=clock) as memory:
        yield memory


def edit(memory: Memory, path: str, old: str, new: str) -> None:
    """An edit as an editor makes it."""
    text = memory.files.read_text(path)
    assert old in text
    write(memory.disk.root, path, text.replace(old, new))


async def learned(memory: Memory, path: str, text: str) -> str:
    """Writes a file as an editor does, and commits it. Returns the commit."""
    write(memory.disk.root, path, text)
    (commit,) = (await commit_changes(memory)).commits
    return commit


async def synced(one: Memory, other: Memory) -> Synced:
    """Syncs one copy, then the other one, and the first one again. Returns the result of the other one."""
    await sync(one)
    done = await sync(other)
    await sync(one)
    assert same(one, other)
    return done


def same(one: Memory, other: Memory) -> bool:
    """Whether two copies hold the same files, and are at the same commit."""
    places = [memory.disk.root for memory in (one, other)]
    trees = [git(place, "rev-parse", "HEAD^{tree}") for place in places]
    clean = [git(place, "status", "--porcelain") for place in places]
    return trees[0] == trees[1] and clean == ["", ""]
