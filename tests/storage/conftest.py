"""The ports of each engine, a workspace's files in an empty folder, a user without settings of git, and a database."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_server.storage.local.files import WorkspaceFiles
from tests.postgres import server
from tests.storage.engines import Opened, Ports, local, postgres


@pytest.fixture(params=["local", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    return local(tmp_path / "memory") if request.param == "local" else postgres()


@pytest.fixture
async def ports(opened: Opened) -> AsyncIterator[Ports]:
    async with opened() as ports:
        yield ports


@pytest.fixture
def files(tmp_path: Path) -> WorkspaceFiles:
    root = tmp_path / "memory"
    root.mkdir()
    return WorkspaceFiles(root)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user whose git knows no identity and no settings."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in [name for name in os.environ if name.startswith(("GIT_AUTHOR", "GIT_COMMITTER", "EMAIL"))]:
        monkeypatch.delenv(name)
    return home


@pytest.fixture
def address() -> str:
    """The address of a memory in a new database."""
    return server().new_database()
