"""The history of a team's memory as a git repository."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import psycopg
import pytest

from mcp_server.app import open_memory
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.history.committing import export_history
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from tests.conftest import KEYWORDS_ONLY
from tests.preloaded import python

pytestmark = pytest.mark.anyio
CALLER = Caller(source="library", client="test", explicit_sessions=True)
PEOPLE = "knowledge/people/people.md"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {
        **KEYWORDS_ONLY,
        "CONTEXT_MANAGER_GIT__EXPORT_FOLDER": str(tmp_path / "git"),
        "CONTEXT_MANAGER_GIT__REMOTE": str(tmp_path / "mirror-{workspace}.git"),
    }


@pytest.fixture
async def memory(address: str, settings: dict[str, str], tmp_path: Path) -> AsyncIterator[Memory]:
    git(tmp_path, "init", "--quiet", "--bare", "mirror-main.git")
    async with open_memory(address, settings) as opened:
        yield opened


async def write(memory: Memory, text: str, path: str = PEOPLE) -> None:
    async with memory.locks.files():
        memory.files.write_atomic(path, text)


async def test_versions_become_commits_once_and_are_mirrored(memory: Memory, tmp_path: Path) -> None:
    heard = await observe(memory, NewTurn("user", "The berth costs 40 euros."), CALLER)
    await remember(memory, NewFact("The crane lifts forty tons.", project="global"), CALLER)
    for text in ("# People\n\nAna\n", "# People\n\nAna, Bo\n"):
        await write(memory, text)
    first = await export_history(memory)
    folder = tmp_path / "git" / "main.git"
    assert git(folder, "show", f"main:{PEOPLE}") == "# People\n\nAna, Bo\n"
    assert git(folder, "show", f"main~1:{PEOPLE}") == "# People\n\nAna\n"
    assert "raw/" not in git(folder, "ls-tree", "-r", "--name-only", "main")
    assert await export_history(memory) == first

    await sessions.end_session(memory, heard.session)
    await write(memory, "# People\n\nBo\n")
    async with memory.locks.files():
        memory.files.remove("knowledge/identity/SOUL.md")
    last = await export_history(memory)
    assert (
        git(folder, "log", "--format=%H").split()[-len(git(folder, "log", "--format=%H", str(first)).split())] == first
    )
    names = git(folder, "ls-tree", "-r", "--name-only", "main").splitlines()
    assert [name for name in names if name.startswith("raw/")]
    assert "knowledge/identity/SOUL.md" not in names
    for name in names:
        assert git(folder, "show", f"main:{name}").encode() == memory.files.read_bytes(name)
    assert git(tmp_path / "mirror-main.git", "rev-parse", "main").strip() == last
    assert git(folder, "fsck", "--strict") == ""


KILLED = """
import os, sys
import anyio
from mcp_server.app import open_memory
from mcp_server.history.committing import export_history
from mcp_server.storage.postgres import whole
from tests.killing import die_at
address, name, *argument = sys.argv[1:]

async def main():
    async with open_memory(address, os.environ) as memory:
        die_at(1, (whole, name), having=argument)
        await export_history(memory)

anyio.run(main)
"""
"""It kills itself amid the commits, before they are noted, or at the push."""


async def test_a_killed_export_is_repeated_without_doubling(
    memory: Memory, address: str, settings: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "git" / "main.git"
    for number in range(5):
        await write(memory, f"# People\n\n{number}\n")
    await export_history(memory)
    for call in (("_commit",), ("put_entries",), ("git", "push")):
        await write(memory, f"# People\n\n{call[0]}\n")
        program = python("-c", KILLED, address, *call)
        killed = await anyio.run_process(program, env={**os.environ, **settings}, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DELETE FROM context_manager.lease")  # it would end after 20 seconds
    await export_history(memory)
    said = git(folder, "log", "--format=%h", "--", PEOPLE).splitlines()
    assert len(said) == 8
    assert git(tmp_path / "mirror-main.git", "rev-parse", "main") == git(folder, "rev-parse", "main")


async def test_a_forgotten_text_is_in_no_commit_after_the_next_export(memory: Memory, tmp_path: Path) -> None:
    await write(memory, "# People\n\nThe secret lighthouse\n")
    await write(memory, "# People\n\nAna\n")
    await export_history(memory)
    async with memory.locks.files():  # as `forget` does
        memory.files.erase(PEOPLE)
        memory.files.write_atomic(PEOPLE, "# People\n\nAna\n")
        memory.files.write_atomic("forgotten.jsonl", "{}\n")
    await export_history(memory)
    for folder in (tmp_path / "git" / "main.git", tmp_path / "mirror-main.git"):
        assert "lighthouse" not in git(folder, "log", "--all", "-p", "--format=%B")
    folder = tmp_path / "git" / "main.git"
    assert "lighthouse" not in git(folder, "cat-file", "--batch-all-objects", "--batch")


async def test_a_secret_is_not_committed(memory: Memory, tmp_path: Path) -> None:
    await write(memory, "# People\n\nThe key is sk-ant-api03-" + "aB3" * 30 + "-AA\n")
    await export_history(memory)
    assert "sk-ant" not in git(tmp_path / "git" / "main.git", "log", "-p", "--format=%B")


async def test_a_lost_repository_is_fetched_or_made_again(memory: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "git" / "main.git"
    await write(memory, "# People\n\nAna\n")
    first = await export_history(memory)
    shutil.rmtree(folder)
    assert await export_history(memory) == first
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "mirror-main.git")
    git(tmp_path, "init", "--quiet", "--bare", "mirror-main.git")
    await export_history(memory)
    assert git(folder, "show", f"main:{PEOPLE}") == "# People\n\nAna\n"


async def test_one_process_exports_at_a_time(memory: Memory) -> None:
    held = memory.locks.try_exclusive("git export")
    assert held is not None
    try:
        assert await export_history(memory) is None
    finally:
        held.release()
    assert await export_history(memory) is not None


async def test_a_memory_in_a_folder_has_its_own_repository(tmp_path: Path, settings: dict[str, str]) -> None:
    async with open_memory(tmp_path / "mine", settings) as memory:
        with pytest.raises(Exception, match="is a git repository already"):
            await export_history(replace(memory))


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8", "replace")
