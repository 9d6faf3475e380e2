"""States of the memory have names: days and weeks by themselves, others on request."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.read import read
from mcp_server.errors import Conflict, Invalid, Refused, Unavailable
from mcp_server.history.committing import commit_changes, tag, tag_days, tags
from mcp_server.memory import Memory
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import git, write

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
ANA = "knowledge/people/ana.md"


async def learned(memory: Memory, text: str) -> str:
    write(memory.disk.root, ANA, f"# Ana\n\n- {text}\n")
    (commit,) = (await commit_changes(memory)).commits
    return commit


async def test_every_day_and_week_that_is_over_has_a_tag_if_something_changed(memory: Memory, clock: Clock) -> None:
    monday = await learned(memory, "monday")  # 2026-02-16
    assert await tag_days(memory) == []
    clock.forward(days=6)
    sunday = await learned(memory, "sunday")

    assert await tag_days(memory) == ["memory/daily/2026-02-16"]
    assert await tag_days(memory) == []
    clock.forward(days=1)
    assert await tag_days(memory) == ["memory/daily/2026-02-22", "memory/weekly/2026-W08"]

    assert {one.name: one.commit for one in await tags(memory)} == {
        "memory/daily/2026-02-16": monday,
        "memory/daily/2026-02-22": sunday,
        "memory/weekly/2026-W08": sunday,
    }


async def test_days_that_were_missed_are_caught_up_and_lost_state_tags_nothing_twice(
    memory: Memory, clock: Clock
) -> None:
    for number in range(3):
        await learned(memory, str(number))
        clock.forward(days=1)
    clock.forward(days=20)

    made = await tag_days(memory)
    await memory.state.remove("git", "tagged")

    assert [name for name in made if "daily" in name] == [f"memory/daily/2026-02-{day}" for day in (16, 17, 18)]
    assert await tag_days(memory) == []


async def test_days_are_those_of_the_user(workspace: Path, clock: Clock) -> None:
    zone = {"CONTEXT_MANAGER_WORKSPACE__TIMEZONE": "Pacific/Auckland"}
    async with open_memory(workspace, {**KEYWORDS_ONLY, **zone}, clock=clock) as memory:
        await learned(memory, "x")  # 18:45 UTC is the next morning there
        clock.forward(days=1)
        assert "memory/daily/2026-02-17" in await tag_days(memory)


async def test_without_the_setting_nothing_is_tagged(workspace: Path, clock: Clock) -> None:
    off = {"CONTEXT_MANAGER_GIT__AUTO_TAG_DAILY": "false"}
    async with open_memory(workspace, {**KEYWORDS_ONLY, **off}, clock=clock) as memory:
        await learned(memory, "x")
        clock.forward(days=9)
        assert await tag_days(memory) == []


async def test_a_milestone_holds_also_what_was_not_committed_yet(memory: Memory, workspace: Path) -> None:
    write(workspace, ANA, "# Ana\n\n- lives in Basel\n")

    made = await tag(memory, "milestone", "first year", "a year with Ana")
    write(workspace, ANA, "# Ana\n")
    await commit_changes(memory)

    assert (made.name, made.message) == ("memory/milestone/first-year", "a year with Ana")
    assert git(workspace, "cat-file", "-t", made.name) == "tag"
    assert "Basel" in (await read(memory, ANA, at=made.name)).text
    with pytest.raises(Conflict, match="names another state"):
        await tag(memory, "milestone", "first year")
    before = await tag(memory, "before", "move")
    assert await tag(memory, "before", "move") == before
    for name in ("", "-x", "a..b", "a b~c", "../x", "x.lock"):
        with pytest.raises(Invalid):
            await tag(memory, "milestone", name)
    git(workspace, "checkout", "--quiet", "--detach")
    with pytest.raises(Unavailable, match="on no branch"):
        await tag(memory, "before", "other")


async def test_a_secret_becomes_no_tag(memory: Memory) -> None:
    await learned(memory, "something")
    secret = f"ghp_{'a1B2c3D4' * 4}"
    for name, note in ((secret, ""), ("release", f"with {secret}")):
        with pytest.raises(Refused, match="secret"):
            await tag(memory, "milestone", name, note)
    assert "ghp_" not in git(memory.disk.root, "for-each-ref", "--format=%(refname) %(contents)")


async def test_commits_of_impossible_times_are_listed_and_named(memory: Memory) -> None:
    await learned(memory, "something")
    root = memory.disk.root
    tree = git(root, "rev-parse", "HEAD^{tree}")
    for number, at in enumerate(("999999999999999", "0")):
        who = f"T <t@t> {at} +1400"
        head = f"tree {tree}\nparent {git(root, 'rev-parse', 'HEAD')}\nauthor {who}\ncommitter {who}\n"
        place = root / ".local" / "commit"
        place.write_text(f"{head}\n\x01odd\x02 {number}\n")
        git(root, "update-ref", "HEAD", git(root, "hash-object", "-t", "commit", "-w", str(place)))
    found = await tag(memory, "milestone", "odd")
    assert found.commit == git(root, "rev-parse", "HEAD")
    assert [one.name for one in await tags(memory)] == ["memory/milestone/odd"]
    assert memory.git.past.commit("HEAD").subject == "\x01odd\x02 1"
    assert memory.git.past.commit("HEAD~1").at.year > 9000
    assert set(memory.git.past.commits([git(root, "rev-parse", "HEAD"), git(root, "rev-parse", "HEAD~1")]))
