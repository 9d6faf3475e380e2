"""Workspaces with a long conversation. Making one takes seconds, so each is made once and copied."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.memory import Memory
from tests.conftest import Clock
from tests.pressing import hold, limited, talk


@pytest.fixture(scope="module", autouse=True)
def notes_without_network(fast_notes: None) -> None:
    """No test here looks at the notes of checkpoints."""


@pytest.fixture(scope="module")
def grown_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("grown") / "memory"
    clock = Clock()

    async def grow() -> None:
        async with open_memory(made, limited(1500), clock=clock) as memory:
            for turn in talk(30):
                await hold(memory, [turn])
                clock.forward(minutes=3)

    anyio.run(grow)
    return made


@pytest.fixture(autouse=True)
def made_workspace(empty_memory: None) -> None:
    """Copies a new workspace, so that opening it does not make one."""


@pytest.fixture
async def small(
    request: pytest.FixtureRequest, workspace: Path, clock: Clock, new_id: Callable[[], str]
) -> AsyncIterator[Memory]:
    """A memory whose context holds as many tokens as the LIMIT of the test's file."""
    async with open_memory(workspace, limited(request.module.LIMIT), clock=clock, new_id=new_id) as opened:
        yield opened


@pytest.fixture
def grown(made_workspace: None, workspace: Path, clock: Clock, grown_workspace: Path) -> None:
    """A workspace whose session "s" has 30 turns, most of them in cold storage. It was limited to 1,500 tokens."""
    shutil.rmtree(workspace)
    shutil.copytree(grown_workspace, workspace)
    clock.forward(minutes=90)
