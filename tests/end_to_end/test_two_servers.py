"""Several processes on one workspace: nothing acknowledged is lost or twice. `tests/torture` also kills them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import anyio
import pytest

from tests.conftest import project_folder
from tests.end_to_end.servers import CALLS, DATABASE_TROUBLE, Served, done, eventually, served, transcripts
from tests.gitting import git
from tests.torture.processes import (
    FEW_LINES,
    Said,
    assert_nothing_lost_or_twice,
    assert_the_index_is_as_new,
    rebuild,
    start_calls,
)
from tests.understanding.talks import BERTH, HELLO

pytestmark = pytest.mark.anyio


async def test_two_servers_and_a_rebuilding_third_process_lose_nothing_and_write_nothing_twice(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    said, over, printed = Said(), anyio.Event(), list[str]()
    rebuilt: list[int] = []
    async with served(root, env=FEW_LINES) as first, served(root, env=FEW_LINES) as second:
        await first.call("status")  # makes the memory: the third process would refuse to

        async def third() -> None:
            rebuilt.append(await rebuild(root, over, printed))

        async with anyio.create_task_group() as rebuilding:
            rebuilding.start_soon(third)
            async with anyio.create_task_group() as tasks:
                start_calls(tasks, said, first, "first", random.Random(1))
                start_calls(tasks, said, second, "second", random.Random(2))
            over.set()
        assert said.errors == []
        assert said.acknowledged == 4 * CALLS
        assert_nothing_lost_or_twice(root, said)

        async def both_find_the_last() -> bool:
            return all([await found(server, name) for server in (first, second) for name in ("first", "second")])

        async def found(server: Served, name: str) -> bool:
            last = f"{name}-t{CALLS - 1}"
            hits = await server.hits(f'"{last}"')
            return [last in hit["snippet"] for hit in hits] == [True] and await server.finds(last)

        await eventually(both_find_the_last)
    logs = [first.stderr(), second.stderr(), *printed]
    assert rebuilt[0] >= 1
    assert not [log for log in logs if DATABASE_TROUBLE.search(log)]
    await assert_the_index_is_as_new(root)
    print(f"{said.acknowledged} calls acknowledged, {rebuilt[0]} rebuilds meanwhile, stderr: {''.join(logs)!r}")


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


PAGE = "knowledge/projects/atlas/context.md"


async def test_the_next_window_knows_an_item_also_if_the_first_server_was_killed(tmp_path: Path) -> None:
    root, folder = tmp_path / "memory", project_folder(tmp_path / "atlas", "atlas")
    page = root / PAGE

    async with served(root, cwd=folder) as first, served(root, cwd=folder) as second:
        for number, text in enumerate((*HELLO, BERTH, "OK, I'll keep that in mind.")):
            role = "agent" if number % 2 else "user"
            await first.call("observe", role=role, content=text, session="first")
        await eventually(lambda: page.exists() and BERTH in page.read_text("utf-8"))
        first.kill()
        known = await second.call("compile_context", message="what is left to do?")
        assert BERTH in known
        await second.call("observe", role="user", content="Done: call Ana about the winter berth", session="second")
        await second.call("observe", role="agent", content="Good to hear.", session="second")
        await eventually(lambda: f"{BERTH} (done " in page.read_text("utf-8"))
    await done(root, "session", "end", "first")
    await done(root, "session", "end", "second")
    assert page.read_text("utf-8").count(BERTH) == 1
    assert f"{BERTH} (done " in page.read_text("utf-8")
