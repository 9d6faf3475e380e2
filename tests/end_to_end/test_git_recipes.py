"""The recipes of docs/git.md, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.read import read
from mcp_server.conversations.sessions import end_session
from mcp_server.history.committing import commit_changes
from mcp_server.history.history import when
from mcp_server.history.sync import sync
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, find
from tests.gitting import WHO, attempt, git, write
from tests.running import printed
from tests.serving import PLAIN

pytestmark = pytest.mark.anyio
DOCS = (Path(__file__).parents[2] / "docs" / "git.md").read_text("utf-8")
TESTS = Caller(source="cli")
LOCAL_URLS = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}


def recipe(name: str) -> list[str]:
    """The lines of a recipe."""
    found = re.search(rf"<!-- recipe: {name} -->\n```sh\n(.*?)\n```", DOCS, re.DOTALL)
    assert found, name
    return found[1].split("\n")


def run(lines: list[str], memory: Path, **variables: str) -> None:
    environ = {**os.environ, **WHO, **LOCAL_URLS, "MEMORY": str(memory), **variables}
    printed(["sh", "-e", "-c", "\n".join(lines)], env=environ)


async def test_old_conversations_can_stay_off_a_small_machine(workspace: Path) -> None:
    old = "raw/conversations/2024/01/02/0900-old-oven.md"
    async with open_memory(workspace, PLAIN) as memory:
        await observe(memory, NewTurn("user", "The winter berth is in Basel", "s1"), TESTS)
        await end_session(memory, "s1")
        text = next((workspace / "raw").rglob("*.md")).read_text()
        write(workspace, old, text.replace("s1", "old"))
        assert len((await commit_changes(memory)).commits) == 1
        set_up, undo = recipe("sparse")[:2], recipe("sparse")[2:]

        run(set_up, workspace)
        write(workspace, "knowledge/people/ana.md", "# Ana\n")
        swept = await commit_changes(memory)
        await memory.index.refresh()

        assert not (workspace / old).exists()
        assert dict(swept.left_out) == {}
        assert old in git(workspace, "ls-tree", "-r", "--name-only", "HEAD")
        assert "winter berth" in (await read(memory, old, at="HEAD")).text
        assert {hit.passage.path for hit in (await find(memory, SearchRequest("winter berth"))).hits} != set()
        run([recipe("sparse")[0], *undo], workspace)
        assert (workspace / old).exists()
        assert git(workspace, "status", "--porcelain") == ""


async def test_a_team_shares_knowledge_as_a_submodule(workspace: Path, tmp_path: Path) -> None:
    team = tmp_path / "team"
    team.mkdir()
    git(team, "init", "--quiet", "--initial-branch=main")
    write(team, "deploy.md", "# Deploy\n\nThe harbour server is restarted on Tuesdays.\n")
    git(team, "add", "--all")
    git(team, "commit", "--quiet", "--message", "deploy")
    async with open_memory(workspace, PLAIN) as memory:
        run(recipe("shared"), workspace, TEAM=str(team))
        git(workspace, "commit", "--quiet", "--message", "memory: the team's knowledge")
        await memory.index.refresh()

        context = await compile_context(memory, CompileRequest("When is the harbour server restarted?"), TESTS)
        assert "Tuesdays" in context.text
        write(team, "deploy.md", "# Deploy\n\nThe harbour server is restarted on Fridays.\n")
        git(team, "commit", "--quiet", "--all", "--message", "Fridays")
        run([recipe("shared")[0], recipe("shared")[2]], workspace, TEAM=str(team))
        write(workspace, "knowledge/people/ana.md", "# Ana\n")
        swept = await commit_changes(memory)

        assert dict(swept.left_out) == {}
        assert git(workspace, "status", "--porcelain") == ""
        assert git(workspace, "rev-parse", "HEAD:knowledge/shared") == git(team, "rev-parse", "HEAD")


@pytest.mark.skipif(shutil.which("git-crypt") is None, reason="git-crypt is not installed")
async def test_private_knowledge_is_encrypted_in_every_commit(workspace: Path, tmp_path: Path) -> None:
    private = "knowledge/private/health.md"
    hub, key = tmp_path / "hub.git", tmp_path / "key"
    hub.mkdir()
    git(hub, "init", "--quiet", "--bare", "--initial-branch=main")
    async with open_memory(workspace, PLAIN) as memory:
        run(recipe("private"), workspace, KEY=str(key))
        write(workspace, private, "# Health\n\n- allergic to hazelnuts\n")
        git(workspace, "remote", "add", "origin", str(hub))
        await sync(memory)

        assert attempt(hub, "show", f"main:{private}").stdout.startswith(b"\0GITCRYPT\0")
        assert "hazelnuts" not in git(hub, "log", "--format=%B", "main")
        assert "hazelnuts" in (await read(memory, private, at="HEAD")).text
        assert [one.path for one in await when(memory, "hazelnuts")] == [private]
        git(tmp_path, "clone", "--quiet", str(hub), "other")
        run(['cd "$MEMORY"', 'git-crypt unlock "$KEY"'], tmp_path / "other", KEY=str(key))
        async with open_memory(tmp_path / "other", PLAIN) as other:
            for copy, word in ((memory, "nuts"), (other, "pollen")):
                text = (copy.disk.root / private).read_text()
                write(copy.disk.root, private, f"{text}- allergic to {word}\n")
            await sync(memory)
            await sync(other)
            await sync(memory)
        assert (
            workspace / private
        ).read_text() == "# Health\n\n- allergic to hazelnuts\n- allergic to pollen\n- allergic to nuts\n"
        assert git(workspace, "status", "--porcelain") == ""
