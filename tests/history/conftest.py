"""Two copies of a memory, and the repository through which they meet."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from mcp_server.history.sync import sync
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from tests.conftest import Clock, copied
from tests.gitting import git
from tests.history.two_copies import TESTS, copy


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """The repository through which the copies of `two` meet; without these, an empty one."""
    hub = tmp_path / "hub.git"
    if not hub.exists():
        hub.mkdir()
        git(hub, "init", "--quiet", "--bare", "--initial-branch=main")
    return hub


@pytest.fixture(scope="session")
def met(tmp_path_factory: pytest.TempPathFactory, new_workspace: Path) -> Path:
    """A folder with a memory that knows one fact, its clone, and their hub. Each test gets a copy of the three."""
    folder = tmp_path_factory.mktemp("met")
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", "hub.git")
    copied(new_workspace, folder / "one")

    async def meet() -> None:
        async with copy(folder / "one", Clock()) as one:
            git(one.disk.root, "remote", "add", "origin", str(folder / "hub.git"))
            await remember(one, NewFact("Ana lives in Zurich"), TESTS)
            await sync(one)

    anyio.run(meet)
    git(folder, "clone", "--quiet", str(folder / "hub.git"), "other")
    return folder


@pytest.fixture
async def two(tmp_path: Path, met: Path, clock: Clock) -> AsyncIterator[tuple[Memory, Memory]]:
    """A memory with one fact, and its clone on another machine."""
    shutil.copytree(met / "hub.git", tmp_path / "hub.git", dirs_exist_ok=True)
    for name in ("one", "other"):
        copied(met / name, tmp_path / name)
        git(tmp_path / name, "remote", "set-url", "origin", str(tmp_path / "hub.git"))
    async with copy(tmp_path / "one", clock) as one, copy(tmp_path / "other", clock) as other:
        yield one, other


@pytest.fixture
def one(two: tuple[Memory, Memory]) -> Memory:
    return two[0]


@pytest.fixture
def other(two: tuple[Memory, Memory]) -> Memory:
    return two[1]
