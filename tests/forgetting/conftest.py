"""A memory that has one fact in every place where text can be. It is made once, and tests copy it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.memory import Memory
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.forgetting.vault import filled


@pytest.fixture(scope="session")
def filled_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("filled") / "memory"

    async def fill() -> None:
        async with open_memory(made, KEYWORDS_ONLY, clock=Clock()) as memory:
            await filled(memory)

    anyio.run(fill)
    return made


@pytest.fixture
def new_workspace(new_workspace: Path, request: pytest.FixtureRequest) -> Path:
    """The workspace that `memory` copies: a new one, or the one of `full`."""
    made: Path = request.getfixturevalue("filled_workspace") if "full" in request.fixturenames else new_workspace
    return made


@pytest.fixture
async def full(memory: Memory, engine: str) -> None:
    """Fills `memory`."""
    if engine == "postgres":
        await filled(memory)
