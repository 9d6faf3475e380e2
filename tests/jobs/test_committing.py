"""The maintaining process commits on the cadence, at its end, and tags and pushes what is due."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from mcp_server.app import maintain, open_memory
from mcp_server.history import committing as action
from mcp_server.history.committing import tags
from mcp_server.jobs import duties
from mcp_server.memory import Memory
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.end_to_end.servers import eventually
from tests.gitting import git, subjects, write

pytestmark = pytest.mark.anyio
ANA = "knowledge/people/ana.md"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rhythm, quicker."""
    monkeypatch.setattr(duties, "LOOK_SECONDS", 0.05)


async def test_what_an_editor_wrote_is_committed_when_its_time_has_come(
    memory: Memory, workspace: Path, clock: Clock
) -> None:
    await duties.look(memory)  # from here on the half hour counts
    async with maintain(memory):
        write(workspace, ANA, "# Ana\n\n- lives in Basel\n")
        clock.forward(minutes=31)
        await eventually(lambda: subjects(workspace)[0] == "memory: people/ana: lives in Basel")


async def test_what_is_left_is_committed_when_the_server_ends(memory: Memory, workspace: Path) -> None:
    async with maintain(memory):
        await anyio.lowlevel.checkpoint()
        await duties.look(memory)
        write(workspace, ANA, "# Ana\n\n- lives in Bern\n")
        await eventually(lambda: memory.locks.try_maintainer() is None)

    assert subjects(workspace)[0] == "memory: people/ana: lives in Bern"


async def test_what_a_killed_server_left_is_committed_by_the_next_one(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock) as memory:
        await duties.look(memory)
        write(workspace, ANA, "# Ana\n\n- lives in Bern\n")  # and then it is killed: nothing commits this
    clock.forward(hours=1)

    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock) as memory:
        await duties.look(memory)

    assert subjects(workspace)[0] == "memory: people/ana: lives in Bern"


async def test_a_look_tags_yesterday_and_drops_old_explorations(memory: Memory, workspace: Path, clock: Clock) -> None:
    from mcp_server.history import explore

    write(workspace, ANA, "# Ana\n")
    await explore.create(memory, "idea")
    clock.forward(days=8)

    await duties.look(memory)

    assert {one.name for one in await tags(memory)} == {"memory/daily/2026-02-16", "memory/weekly/2026-W08"}
    assert await explore.explorations(memory) == []


async def test_a_commit_by_hand_lets_go_what_was_left_out(memory: Memory, workspace: Path) -> None:
    write(workspace, ANA, "ghp_" + "a1B2" * 9)
    assert (await action.commit_changes(memory)).left_out
    write(workspace, ANA, "# Ana\n")
    git(workspace, "add", ANA)
    git(workspace, "commit", "--quiet", "--message", "by hand")

    await duties.look(memory)

    assert (await action.report(memory)).left_out == {}


async def test_commits_are_pushed_where_that_is_wanted_and_a_failure_is_told_once(
    workspace: Path, tmp_path: Path, clock: Clock
) -> None:
    hub = tmp_path / "hub.git"
    knobs = {"CONTEXT_MANAGER_GIT__AUTO_PUSH": "true", "CONTEXT_MANAGER_GIT__REMOTE": "hub"}
    async with open_memory(workspace, {**KEYWORDS_ONLY, **knobs}, clock=clock) as memory:
        git(workspace, "remote", "add", "hub", str(hub))
        await duties.look(memory)
        said = await memory.state.get("git", "push")
        assert "could not be pushed" in said["said"]
        hub.mkdir()
        git(hub, "init", "--quiet", "--bare", "--initial-branch=main")
        await duties.look(memory)
        assert git(hub, "branch", "--list") == ""  # not again before its time
        clock.forward(minutes=31)

        await duties.look(memory)

        assert git(hub, "rev-parse", "main") == git(workspace, "rev-parse", "HEAD")
        assert (await memory.state.get("git", "push"))["said"] == ""
