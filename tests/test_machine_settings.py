"""Settings that say where data goes belong to one machine: how they get into its file, and which are not believed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.cli.main import main
from mcp_server.settings import Settings
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import git

pytestmark = pytest.mark.anyio
OLD = "search:\n  bm25_weight: 2\nllm:\n  provider: openai\n  base_url: http://127.0.0.1:9/v1  # at home\n  model: m\n"


async def opened(root: Path, clock: Clock) -> tuple[Settings, tuple[str, ...]]:
    async with open_memory(root, KEYWORDS_ONLY, clock=clock) as memory:
        return memory.settings, memory.problems()


@pytest.fixture
async def used(workspace: Path, new_workspace: Path, clock: Clock) -> Path:
    """A memory that this machine used when one file had all settings."""
    shutil.copytree(new_workspace, workspace)
    await opened(workspace, clock)
    (workspace / ".local" / "settings.yaml").unlink()
    (workspace / "memory-config.yaml").write_text(OLD)
    return workspace


async def test_settings_of_the_old_file_are_moved_once_with_a_message(used: Path, clock: Clock) -> None:
    settings, said = await opened(used, clock)

    assert (settings.llm.provider, settings.llm.base_url) == ("openai", "http://127.0.0.1:9/v1")
    assert settings.search.bm25_weight == 2
    (moved,) = [one for one in said if "moved from memory-config.yaml to .local/settings.yaml" in one]
    assert "llm.provider, llm.base_url, llm.model" in moved
    again, said = await opened(used, clock)
    assert again.llm == settings.llm
    assert not [one for one in said if "memory-config.yaml" in one]


async def test_afterwards_the_memorys_own_file_changes_none_of_them(used: Path, clock: Clock) -> None:
    await opened(used, clock)
    (used / "memory-config.yaml").write_text(OLD.replace("127.0.0.1", "evil.example"))

    settings, said = await opened(used, clock)

    assert settings.llm.base_url == "http://127.0.0.1:9/v1"
    assert any("llm.base_url is ignored" in one and ".local/settings.yaml" in one for one in said)


async def test_a_fresh_clone_moves_none_and_names_them(used: Path, clock: Clock, tmp_path: Path) -> None:
    git(used, "commit", "--quiet", "--all", "--no-verify", "--message", "settings")
    git(tmp_path, "clone", "--quiet", str(used), "clone")

    settings, said = await opened(tmp_path / "clone", clock)

    assert settings.llm == Settings().llm
    assert any("llm.provider, llm.base_url, llm.model are ignored" in one for one in said)


async def test_a_machine_settings_file_from_a_clone_is_ignored(used: Path, clock: Clock, tmp_path: Path) -> None:
    (used / ".local" / "settings.yaml").write_text(OLD)
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


def test_a_command_names_the_moved_settings(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXT_MANAGER_SEARCH__EMBEDDER", "none")
    workspace.mkdir()
    (workspace / "memory-config.yaml").write_text(OLD.replace("openai", "none"))

    assert main(["--workspace", str(workspace), "session", "list"]) == 0

    assert "llm.base_url, llm.model moved from memory-config.yaml" in capsys.readouterr().err
