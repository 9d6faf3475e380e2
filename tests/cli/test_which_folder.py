"""Which folder a command may write to: a memory, or a new folder, and nothing else that is the user's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import KEYWORDS_ONLY, Run
from tests.end_to_end.servers import files_below, served
from tests.gitting import git
from tests.preloaded import COMMAND, python
from tests.running import run

READING = [
    ("search", "x"),
    ("read", "README.md"),
    ("status",),
    ("doctor",),
    ("compile", "x"),
    ("last",),
    ("recover",),
    ("recover", "README.md@HEAD", "--apply"),
    ("session", "list"),
    ("session", "end", "s1"),
    ("project", "list"),
    ("topics", "list"),
    ("topics", "test", "x"),
    ("topics", "activate", "x"),
    ("topics", "log"),
    ("status", "clarity"),
    ("anchor",),
    ("anchor", "x", "--off"),
    ("checkpoint", "list"),
    ("checkpoint", "create"),
    ("status", "gauges"),
    ("status", "costs"),
    ("status", "logs"),
    ("prune",),
    ("prune", "--strategy", "compact", "--apply"),
    ("extract",),
    ("condense", "daily"),
    ("jobs", "run", "--due"),
    ("prune", "x.md"),
    ("config", "get"),
    ("config", "set", "hooks.inject", "false"),
    ("export", "memory.zip"),
    ("history", "today"),
    ("history", "tags"),
    ("explore", "list"),
    ("reconstruct", "list"),
    ("sync",),
    ("forget", "x"),
    ("approve",),
    ("reset", "--index"),
    ("reset", "--apply"),
    ("pause",),
    ("pause", "--end"),
    ("page", "--no-browser"),
    ("uninstall", "--all", "--purge", "--apply"),
]
WRITING = [("observe", "hello"), ("remember", "Ana lives in Basel."), ("anchor", "ClaraCore"), ("init",)]


@pytest.fixture
def code(tmp_path: Path, workspace: Path) -> Path:
    """A clone of a repository with code in it, which `--workspace` names."""
    git(tmp_path, "init", "--quiet", "--initial-branch=master", "origin")
    (tmp_path / "origin" / "README.md").write_text("# A program\n")
    (tmp_path / "origin" / "knowledge").mkdir()
    (tmp_path / "origin" / "knowledge" / "notes.md").write_text("# Notes\n")
    git(tmp_path / "origin", "add", "--all")
    git(tmp_path / "origin", "commit", "--quiet", "--message", "first")
    git(tmp_path, "clone", "--quiet", "origin", str(workspace))
    return workspace


def test_a_command_that_needs_a_memory_creates_none(run: Run, workspace: Path) -> None:
    for arguments in READING:
        said = run(*arguments, code=1)
        assert f"there is no memory in {workspace}" in said, arguments
        assert "init" in said
        assert not workspace.exists(), arguments


def test_a_clone_of_another_repository_stays_as_it_was(run: Run, code: Path) -> None:
    before = files_below(code)
    for arguments in [*WRITING, ("search", "x"), ("status",), ("install", "cursor")]:
        said = run(*arguments, code=1)
        assert "is not a memory" in said, arguments
        assert "init --adopt" in said
        assert files_below(code) == before, arguments
    assert git(code, "status", "--porcelain", "--ignored") == ""
    assert git(code, "log", "--format=%s", "--all") == "first"


def test_a_folder_with_other_files_stays_as_it_was(run: Run, workspace: Path) -> None:
    (workspace / "knowledge").mkdir(parents=True)
    (workspace / "knowledge" / "thesis.md").write_text("# Thesis\n")

    for arguments in WRITING:
        assert "it contains other files" in run(*arguments, code=1)
        assert files_below(workspace) == {"knowledge/thesis.md": b"# Thesis\n"}, arguments


@pytest.mark.parametrize("arguments", WRITING, ids=" ".join)
def test_a_command_that_records_something_creates_the_memory(
    run: Run, workspace: Path, arguments: tuple[str, ...]
) -> None:
    workspace.mkdir()
    (workspace / ".DS_Store").touch()

    run(*arguments)

    assert (workspace / "memory-config.yaml").exists()
    assert git(workspace, "log", "--format=%s").endswith("maintenance: a new memory")


def test_init_makes_the_workspace_once(run: Run, workspace: Path) -> None:
    assert "Created" in run("init")
    assert (workspace / "knowledge/identity/USER.md").exists()
    assert "nothing was changed" in run("init")
    assert json.loads(run("init", "--json"))["created"] is False


def test_adopting_a_folder_on_purpose_keeps_its_files_and_commits_none_of_them(run: Run, code: Path) -> None:
    assert json.loads(run("init", "--adopt", "--json"))["created"] is True

    run("observe", "hello", "--session", "s1")
    run("session", "end", "s1")

    assert (code / "README.md").read_text() == "# A program\n"
    assert "first" in git(code, "log", "--format=%s", "--", "README.md")
    assert ".local" not in git(code, "status", "--porcelain", "--untracked-files=all")
    assert "hello" in run("search", "hello")


def test_a_creation_that_was_killed_is_finished(run: Run, workspace: Path, new_workspace: Path) -> None:
    shutil.copytree(new_workspace, workspace, ignore=shutil.ignore_patterns(".git", "memory-config.yaml", "TOOLS.md"))
    (workspace / ".cm-0123456789abcdef.tmp").touch()

    run("observe", "hello")

    assert (workspace / "knowledge/identity/TOOLS.md").exists()


def test_a_memory_that_lost_its_settings_file_is_still_one(run: Run, workspace: Path, new_workspace: Path) -> None:
    shutil.copytree(new_workspace, workspace)
    (workspace / "memory-config.yaml").unlink()

    assert "Nothing" in run("search", "hello")

    assert (workspace / "memory-config.yaml").exists()


def test_clients_are_listed_and_left_without_a_memory(
    run: Run, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    entry = {"mcpServers": {"memory": {"command": "/gone/context-manager-mcp", "args": []}}}
    (tmp_path / "home" / ".cursor").mkdir(parents=True)
    (tmp_path / "home" / ".cursor" / "mcp.json").write_text(json.dumps(entry))

    assert "cursor" in run("install")
    assert "Cursor" in run("uninstall", "cursor")

    assert not workspace.exists()
    assert "context-manager-mcp" not in (tmp_path / "home" / ".cursor" / "mcp.json").read_text()


@pytest.mark.anyio
async def test_a_server_answers_what_to_do_and_leaves_another_repository_alone(code: Path) -> None:
    before = files_below(code)

    async with served(code, env=KEYWORDS_ONLY) as server:
        said = await server.refused("observe", role="user", content="a private chat")

    assert "is not a memory" in said
    assert files_below(code) == before


def test_a_server_over_http_writes_no_token_into_another_repository(code: Path) -> None:
    before = files_below(code)
    command = python("-m", "mcp_server", "--workspace", str(code), "--http", "--port", "0")

    done = run(command)

    assert done.returncode == 1
    assert "is not a memory" in done.stderr
    assert files_below(code) == before


def test_a_hook_queues_nothing_in_another_repository(code: Path) -> None:
    before = files_below(code)
    said = {"hook_event_name": "Stop", "session_id": "s1", "transcript_path": "/tmp/s1.jsonl", "cwd": "/"}
    command = [sys.executable, "-c", COMMAND, "hook", "Stop", "--workspace", str(code)]

    subprocess.run(command, input=json.dumps(said).encode(), timeout=60, check=True, env=dict(os.environ))

    assert files_below(code) == before
