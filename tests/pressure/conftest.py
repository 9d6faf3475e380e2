"""Workspaces with a long conversation. Making one takes seconds, so each is made once and copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.understanding import encoder
from tests.conftest import Clock
from tests.pressing import hold, limited, talk


@pytest.fixture(autouse=True)
def fast_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The notes of checkpoints come from the linear models alone: no test here looks at them, and the network, which
    reads every message, takes a third of the time."""
    monkeypatch.setattr(encoder, "read", lambda messages: None)


@pytest.fixture(scope="session")
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
def grown(made_workspace: None, workspace: Path, clock: Clock, grown_workspace: Path) -> None:
    """A workspace whose session "s" has 30 turns, most of them in cold storage. It was limited to 1,500 tokens."""
    shutil.rmtree(workspace)
    shutil.copytree(grown_workspace, workspace)
    clock.forward(minutes=90)
