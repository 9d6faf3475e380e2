"""What if? A branch with a folder of its own, merged or dropped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.errors import Conflict, Invalid, NotFound, Refused
from mcp_server.history import explore
from mcp_server.history.history import show
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import git, subjects, write
from tests.history.two_copies import CORE, KEY, TESTS

pytestmark = pytest.mark.anyio


async def begun(memory: Memory, name: str = "idea") -> Path:
    made = await explore.create(memory, name)
    assert made.place is not None
    return Path(made.place)


async def test_an_exploration_is_a_workspace_of_its_own_and_the_live_one_stays(memory: Memory, workspace: Path) -> None:
    write(workspace, "knowledge/people/ana.md", "# Ana\n")
    place = await begun(memory)
    async with open_memory(place, KEYWORDS_ONLY) as there:
        await remember(there, NewFact("what if we moved"), TESTS)

    assert (place / "knowledge/people/ana.md").exists()
    assert "what if" not in (workspace / CORE).read_text()
    assert git(workspace, "branch", "--show-current") == "main"
    assert git(workspace, "status", "--porcelain") == ""
    (one,) = await explore.explorations(memory)
    assert (one.name, one.commits, one.uncommitted) == ("idea", 0, 1)


async def test_merging_brings_its_work_in_beside_what_happened_meanwhile(memory: Memory, workspace: Path) -> None:
    place = await begun(memory)
    write(place, "knowledge/people/bo.md", "# Bo\n")
    await remember(memory, NewFact("meanwhile"), TESTS)

    joined = await explore.merge(memory, "idea")

    assert joined is not None
    assert joined.paths == ("knowledge/people/bo.md",)
    assert (workspace / "knowledge/people/bo.md").read_text() == "# Bo\n"
    assert "meanwhile" in (workspace / CORE).read_text()
    assert "explore: people/bo: new" in subjects(workspace)
    assert await explore.explorations(memory) == []
    assert not place.exists()
    assert git(workspace, "branch", "--list") == "* main"


async def test_one_without_work_ends_without_a_trace(memory: Memory, workspace: Path) -> None:
    await begun(memory)
    head = git(workspace, "rev-parse", "HEAD")

    assert await explore.merge(memory, "idea") is None
    await begun(memory)
    assert (await explore.drop(memory, "idea")).tag is None

    assert git(workspace, "rev-parse", "HEAD") == head
    assert git(workspace, "tag", "--list") == ""


async def test_dropping_keeps_unmerged_work_under_a_tag(memory: Memory, workspace: Path) -> None:
    for number in range(2):
        place = await begun(memory)
        write(place, "knowledge/people/bo.md", f"# Bo {number}\n")
        dropped = await explore.drop(memory, "idea")
        assert dropped.tag == f"memory/before/drop-idea{'-2' if number else ''}"
        assert f"+# Bo {number}" in (await show(memory, dropped.tag)).diff

    assert not (workspace / "knowledge/people/bo.md").exists()
    assert git(workspace, "branch", "--list") == "* main"


async def test_after_a_week_it_is_dropped_and_its_work_kept(memory: Memory, workspace: Path, clock: Clock) -> None:
    write(await begun(memory, "old"), "knowledge/people/bo.md", "# Bo\n")
    clock.forward(days=6)
    await begun(memory, "young")
    assert await explore.drop_old(memory) == []
    clock.forward(days=1)

    assert [one.name for one in await explore.drop_old(memory)] == ["old"]

    assert git(workspace, "show", "memory/before/drop-old:knowledge/people/bo.md") == "# Bo"
    assert [one.name for one in await explore.explorations(memory)] == ["young"]


async def test_what_cannot_be_done_is_refused_with_the_reason(memory: Memory, workspace: Path) -> None:
    place = await begun(memory)
    with pytest.raises(Conflict, match="already"):
        await explore.create(memory, "idea")
    for name in ("", "A", "a b", "../x", "a..b", "x.lock", "-x", f"glpat-{'a1b2c3d4' * 4}"):
        with pytest.raises(Invalid):
            await explore.create(memory, name)
    with pytest.raises(NotFound, match="there are: idea"):
        await explore.merge(memory, "other")
    write(place, "topics/x.md", KEY)
    with pytest.raises(Conflict, match="secret"):
        await explore.drop(memory, "idea")
    (place / "topics/x.md").unlink()
    write(place, CORE, "# Other\n")
    write(workspace, CORE, "# Mine\n")
    git(workspace, "add", CORE)
    with pytest.raises(Refused, match="staged"):
        await explore.merge(memory, "idea")
    assert (await explore.explorations(memory))[0].commits == 1


async def test_a_folder_that_somebody_deleted_does_not_lose_what_was_committed(memory: Memory, workspace: Path) -> None:
    place = await begun(memory)
    write(place, "knowledge/people/bo.md", "# Bo\n")
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "explore: by hand")
    shutil.rmtree(place)

    (one,) = await explore.explorations(memory)
    assert (one.place, one.commits) == (None, 1)
    await explore.merge(memory, "idea")

    assert (workspace / "knowledge/people/bo.md").exists()


async def test_one_that_cannot_be_dropped_does_not_keep_the_others(memory: Memory, clock: Clock) -> None:
    write(await begun(memory, "bad"), "topics/x.md", KEY)
    await begun(memory, "good")
    clock.forward(days=8)

    assert [one.name for one in await explore.drop_old(memory)] == ["good"]
    assert [one.name for one in await explore.explorations(memory)] == ["bad"]


@pytest.mark.parametrize("halfway", ["nothing", "branch", "locked", "whole"])
async def test_what_a_kill_left_half_made_is_gone_with_the_next_look(
    memory: Memory, workspace: Path, halfway: str
) -> None:
    place = workspace / ".local/explore/idea"
    write(place.parent, "idea.making", "")
    if halfway == "branch":
        git(workspace, "branch", "explore/idea")
    elif halfway != "nothing":
        git(workspace, "worktree", "add", "--quiet", "-b", "explore/idea", str(place))
    if halfway == "locked":
        git(workspace, "worktree", "lock", str(place))
        (place / ".git").unlink()

    assert await explore.explorations(memory) == []

    assert list(place.parent.iterdir()) == []
    assert git(workspace, "branch", "--list") == "* main"
    assert len(git(workspace, "worktree", "list").split("\n")) == 1
    assert (await begun(memory)).exists()


async def test_what_somebody_is_just_making_is_left_alone(memory: Memory, workspace: Path) -> None:
    async with explore.EXPLORATIONS.making(memory, "idea") as place:
        assert await explore.drop_old(memory) == []
        await explore.EXPLORATIONS.clear(memory)
        assert place.exists()
        with pytest.raises(Conflict, match="already"):
            await explore.create(memory, "idea")
    assert [one.name for one in await explore.explorations(memory)] == ["idea"]


async def test_what_git_had_not_checked_out_when_it_was_killed_is_deleted_nowhere(
    memory: Memory, workspace: Path
) -> None:
    """git marks a work tree that it is just making; half of the files are not there yet."""
    write(workspace, "knowledge/people/ana.md", "# Ana\n")
    place = await begun(memory)
    (workspace / ".git/worktrees/idea/locked").write_text("initializing")
    shutil.rmtree(place / "knowledge")

    assert await explore.merge(memory, "idea") is None
    assert (workspace / "knowledge/people/ana.md").exists()
    assert await explore.explorations(memory) == []
    assert not place.exists()
