"""One repository, seen through two worktrees, a subfolder and a symlink, by servers and commands: one project."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.servers import done, eventually, served, transcripts

pytestmark = pytest.mark.anyio


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Ana", "-c", "user.email=ana@example.com"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


async def test_two_worktrees_a_subfolder_and_a_symlink_are_one_project(tmp_path: Path) -> None:
    root, main, other, link = (tmp_path / name for name in ("memory", "engine", "other", "link"))
    (main / "deep").mkdir(parents=True)
    git(main, "init", "--quiet")
    git(main, "commit", "--quiet", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "--quiet", str(other), "-b", "other")
    link.symlink_to(main)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git(elsewhere, "init", "--quiet")
    git(elsewhere, "commit", "--quiet", "--allow-empty", "-m", "another first")

    async with served(root, cwd=main) as server:
        await server.call("observe", role="user", content="The pump of the engine leaks.", session="from-main")
        await server.call("remember", content="The pump is made in Rijeka.", kind="project")
    async with served(root, cwd=other) as server:
        await server.call("observe", role="user", content="The pump was mended.", session="from-other")
    await done(root, "observe", "The pump runs.", "--session", "from-link", cwd=link)
    await done(root, "observe", "The pump hums.", "--session", "from-deep", cwd=main / "deep")

    (project,) = json.loads(await done(root, "project", "list", "--json"))
    assert project["sessions"] == 4
    keys = {
        line for written in transcripts(root).values() for line in written.splitlines() if line.startswith("project:")
    }
    assert len(keys) == 1
    async with served(root, env={"CLAUDE_PROJECT_DIR": str(link)}) as server:
        everything = {"from-main", "from-other", "from-link", "from-deep"}

        async def found() -> bool:
            return {hit.get("session") for hit in await server.hits("pump", scope="project")} >= everything

        await eventually(found)
        assert "Rijeka" in await server.call("compile_context", message="Where is the pump made?")
    async with served(root, cwd=elsewhere) as server:
        assert await server.hits("pump", scope="project") == []
        assert await server.hits("pump", scope="all")

    await done(root, "project", "rename", project["slug"], "motor", "--apply")
    git(main, "remote", "add", "origin", "git@example.com:Ana/Engine.git")
    async with served(root, cwd=other) as server:
        await server.call("observe", role="user", content="The pump has an origin now.", session="with-origin")
    (project,) = json.loads(await done(root, "project", "list", "--json"))
    assert (project["slug"], project["sessions"]) == ("motor", 5)
    assert sorted(key.split(":")[0] for key in project["keys"]) == ["git", "root"]
