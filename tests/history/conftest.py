"""Two copies of a memory, and the repository through which they meet."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_server.history.sync import sync
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from tests.conftest import Clock
from tests.gitting import git
from tests.history.two_copies import TESTS, copy


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    hub = tmp_path / "hub.git"
    hub.mkdir()
    git(hub, "init", "--quiet", "--bare", "--initial-branch=main")
    return hub


@pytest.fixture
async def two(tmp_path: Path, hub: Path, clock: Clock, new_workspace: Path) -> AsyncIterator[tuple[Memory, Memory]]:
    """A memory with one fact, and its clone on another machine."""
    shutil.copytree(new_workspace, tmp_path / "one")
    async with copy(tmp_path / "one", clock) as one:
        git(one.disk.root, "remote", "add", "origin", str(hub))
        await remember(one, NewFact("Ana lives in Zurich"), TESTS)
        await sync(one)
        git(tmp_path, "clone", "--quiet", str(hub), "other")
        async with copy(tmp_path / "other", clock) as other:
            yield one, other
