"""What every test may use: one event loop, a memory in an empty folder, a clock that only moves when it is told to."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from mcp_server.app import open_memory
from mcp_server.memory import Memory

settings.register_profile(
    "house",
    deadline=None,  # these machines are noisy: a slow example is not a failure
    max_examples=int(os.environ.get("CM_EXAMPLES", "50")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("house")

KEYWORDS_ONLY = {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none"}
"""An environment in which nothing has to load embeddings."""


@dataclass
class Clock:
    """The time, as a test sets it."""

    now: datetime = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **duration: float) -> None:
        self.now += timedelta(**duration)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
def new_id() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"ses_{next(numbers):04d}"


@pytest.fixture
async def memory(workspace: Path, clock: Clock, new_id: Callable[[], str]) -> AsyncIterator[Memory]:
    """A real memory, real files, real git, real SQLite; keywords only, so that it opens fast."""
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, new_id=new_id) as opened:
        yield opened
