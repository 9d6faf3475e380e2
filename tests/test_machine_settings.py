"""Settings that say where data goes belong to one machine: which files are not believed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.settings import Settings
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import git

pytestmark = pytest.mark.anyio
MIXED = "search:\n  bm25_weight: 2\nllm:\n  provider: openai\n  base_url: http://127.0.0.1:9/v1\n  model: m\n"


async def opened(root: Path, clock: Clock) -> tuple[Settings, tuple[str, ...]]:
    async with open_memory(root, KEYWORDS_ONLY, clock=clock) as memory:
        return memory.settings, memory.problems()


@pytest.fixture
async def used(workspace: Path, new_workspace: Path, clock: Clock) -> Path:
    """A memory whose own file has settings of a machine."""
    shutil.copytree(new_workspace, workspace)
    await opened(workspace, clock)
    (workspace / ".local" / "settings.yaml").unlink()
    (workspace / "memory-config.yaml").write_text(MIXED)
    return workspace


async def test_the_memorys_own_file_changes_none_of_them(used: Path, clock: Clock, tmp_path: Path) -> None:
    git(used, "commit", "--quiet", "--all", "--no-verify", "--message", "settings")
    git(tmp_path, "clone", "--quiet", str(used), "clone")

    for place in (used, tmp_path / "clone"):
        settings, said = await opened(place, clock)

        assert settings.llm == Settings().llm
        assert settings.search.bm25_weight == 2
        assert any("llm.provider, llm.base_url, llm.model are ignored" in one for one in said)


async def test_a_machine_settings_file_from_a_clone_is_ignored(used: Path, clock: Clock, tmp_path: Path) -> None:
    (used / ".local" / "settings.yaml").write_text(MIXED)
    (used / "memory-config.yaml").write_text("")
    git(used, "add", "--force", ".local/settings.yaml", ".local/state.db", "memory-config.yaml")
    git(used, "commit", "--quiet", "--no-verify", "--message", "settings")
    git(tmp_path, "clone", "--quiet", str(used), "clone")

    settings, said = await opened(tmp_path / "clone", clock)

    assert settings.llm == Settings().llm
    assert any("git tracks .local/settings.yaml" in one for one in said)


async def test_a_new_memory_has_both_files_and_git_has_one(workspace: Path, clock: Clock) -> None:
    assert (await opened(workspace, clock))[1] == ()

    assert "llm:" not in (workspace / "memory-config.yaml").read_text()
    assert "base_url: null" in (workspace / ".local" / "settings.yaml").read_text()
    assert ".local/settings.yaml" not in git(workspace, "ls-files")
