"""Every git operation in a repository with thousands of commits and a user's half-staged work, which stays as it is.

`CONTEXT_MANAGER_REPOSITORY=/path/to/a/clone` does the same on a copy of a real repository.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.checkpoints.checkpoint import make
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.read import read
from mcp_server.conversations.sessions import end_session
from mcp_server.forgetting.forget import plan_forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.history import explore, history
from mcp_server.history.committing import commit_changes, tag
from mcp_server.history.history import revert
from mcp_server.history.sync import sync
from mcp_server.knowledge.reconstruct import compare, merge, reconstruct
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.model import Caller
from mcp_server.recovery.recover import recover
from tests.gitting import attempt, git, subjects, write
from tests.serving import PLAIN

pytestmark = pytest.mark.anyio
CALLER = Caller(source="cli")
COMMITS = 1_200
CORE = "knowledge/memory/MEMORY.md"
GARDEN = "knowledge/reference/garden.md"


def made_up(folder: Path) -> None:
    """A repository with thousands of commits: a garden's notes in `knowledge/`, and a program beside it."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    lines = [f"- row {number}: empty" for number in range(40)]
    script: list[str] = []
    for number in range(COMMITS):
        lines[number % 40] = f"- row {number % 40}: planted with sort{number}"
        at = 1_500_000_000 + number * 3600
        script += [
            "commit refs/heads/main",
            f"committer Bo <bo@example.org> {at} +0000",
            data(f"memory: sort{number}"),
            f"M 100644 inline {GARDEN}",
            data("# Garden\n\n" + "\n".join(lines) + "\n"),
            f"M 100644 inline src/part{number % 200}.c",
            data(f"int version = {number};\n" * 20),
        ]
    git(folder, "fast-import", "--quiet", stdin="\n".join([*script, "done", ""]).encode())
    git(folder, "reset", "--quiet", "--hard", "main")


def data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large") / "repository"
    real = os.environ.get("CONTEXT_MANAGER_REPOSITORY")
    if real is None:
        made_up(folder)
    else:
        git(folder.parent, "clone", "--quiet", "--no-hardlinks", real, str(folder))
        git(folder, "checkout", "--quiet", "-B", "main")
    git(folder, "config", "user.name", "Ana")
    git(folder, "config", "user.email", "ana@example.org")
    return folder


def half_staged(folder: Path) -> dict[str, str]:
    """A user's work in the middle of it; what git says of it."""
    ours = ("knowledge/", ".", "memory-config.yaml")
    tracked = [name for name in git(folder, "ls-files").split("\n") if not name.startswith(ours)]
    first, second, third, fourth = tracked[:4]
    write(folder, first, "staged\n")
    git(folder, "add", first)
    write(folder, first, "staged\nand edited after that\n")
    write(folder, second, "edited only\n")
    git(folder, "rm", "--quiet", "--cached", third)
    git(folder, "mv", fourth, "renamed by the user")
    write(folder, "new and staged", "x\n")
    git(folder, "add", "new and staged")
    write(folder, "untracked", "y\n")
    write(folder, "knowledge/people/staged.md", "# Staged by the user\n")
    git(folder, "add", "knowledge/people/staged.md")
    return seen(folder)


def seen(folder: Path) -> dict[str, str]:
    """The user's work, as git tells it."""
    return {
        "status": git(folder, "status", "--porcelain", "--untracked-files=all"),
        "staged": git(folder, "diff", "--cached"),
        "edited": git(folder, "diff"),
        "branch": git(folder, "branch", "--show-current"),
        "stash": git(folder, "stash", "list"),
    }


async def test_everything_is_done_beside_half_staged_work(repository: Path, tmp_path: Path) -> None:
    old = int(git(repository, "rev-list", "--count", "HEAD"))
    assert old >= 1_000
    async with open_memory(repository, PLAIN, if_missing="adopt") as memory:
        await commit_changes(memory)  # the files that every memory begins with
    before = half_staged(repository)

    async with open_memory(repository, PLAIN, if_missing="adopt") as memory:
        await observe(memory, NewTurn("user", "Ana moved to Basel", "s1"), CALLER)
        await remember(memory, NewFact("Ana moved to Basel", session="s1"), CALLER)
        closed = await end_session(memory, "s1")
        assert closed.committed == git(repository, "rev-parse", "HEAD")
        swept = await commit_changes(memory)
        assert swept.note == ""
        assert swept.waiting == ()
        assert subjects(repository)[0] == "memory: MEMORY.md: Ana moved to Basel"

        (came,) = await history.when(memory, "ana moved to basel")
        (line,) = await history.where(memory, "Ana moved to Basel")
        assert came.commit == line.commit == swept.commits[-1]
        assert line.sources == (closed.path,)
        assert CORE in [path for path, _, _ in (await history.diff(memory, "today")).files]
        assert [path for path, _, _ in (await history.show(memory, swept.commits[-1])).files] == [CORE]
        await history.diff(memory, "1 year ago")
        await history.blame(memory, CORE)
        milestone = await tag(memory, "milestone", "moved")
        assert milestone.commit == swept.commits[-1]
        assert "Basel" in (await read(memory, CORE, at="memory/milestone/moved")).text

        made = await explore.create(memory, "idea")
        write(Path(made.place or ""), "knowledge/people/bo.md", "# Bo\n")
        joined = await explore.merge(memory, "idea")
        assert joined is not None
        assert (repository / "knowledge/people/bo.md").exists()
        await explore.create(memory, "worse")
        write(repository / ".local/explore/worse", "knowledge/people/cy.md", "# Cy\n")
        assert (await explore.drop(memory, "worse")).tag == "memory/before/drop-worse"
        undone = await revert(memory, joined.commit, CALLER, apply=True)
        assert undone.commit is not None
        assert not (repository / "knowledge/people/bo.md").exists()

        git(tmp_path, "clone", "--quiet", "--bare", str(repository), "hub.git")
        git(repository, "remote", "add", "hub", str(tmp_path / "hub.git"))
        async with open_memory(tmp_path / "other", PLAIN) as other:
            git(other.disk.root, "remote", "add", "hub", str(tmp_path / "hub.git"))
            await remember(other, NewFact("Bo bakes bread"), CALLER)
            await sync(other)
        await sync(memory, "hub")
        assert "Bo bakes bread" in (repository / CORE).read_text()

        kept = await make(memory, "s1", "asked")
        write(repository, "knowledge/people/dan.md", "# Dan\n")
        done = await recover(memory, kept.id, CALLER, apply=True, knowledge=True)
        assert done.applied
        assert not (repository / "knowledge/people/dan.md").exists()
        planned = await plan_forget(memory, ForgetTarget(text="Bo bakes bread"))  # `forget --history`, dry
        assert (planned.done, planned.history.commits > 0) == (False, True)
        assert any(copy.path == CORE for copy in planned.copies)
        assert "Bo bakes bread" in (repository / CORE).read_text()
        made_anew = await reconstruct(memory, "lean", ["journal"])
        assert made_anew.conversations == 1
        assert (await compare(memory, ["lean"])).deltas["lean"].own_lost == ()
        await merge(memory, "lean")
        await commit_changes(memory)  # the checkpoints

    assert seen(repository) == before
    assert git(repository, "fsck", "--connectivity-only", "--no-dangling") == ""
    assert int(git(repository, "rev-list", "--count", "HEAD")) > old


@pytest.mark.skipif("CONTEXT_MANAGER_REPOSITORY" in os.environ, reason="the made-up garden is not in there")
async def test_thousands_of_commits_are_searched_to_the_first_one(repository: Path) -> None:
    async with open_memory(repository, PLAIN, if_missing="adopt") as memory:
        (came, went) = await history.when(memory, "planted with sort7\n")
        lines = await history.blame(memory, GARDEN)
        row = await history.where(memory, "row 7:")

        assert (came.what, came.subject) == ("added to", "memory: sort7")
        assert (went.what, went.subject) == ("removed from", "memory: sort47")
        assert [one.subject for one in lines[2:]] == [f"memory: sort{COMMITS - 40 + n}" for n in range(40)]
        assert row[0].subject == f"memory: sort{COMMITS - 33}"
        assert "sort47" not in (await read(memory, GARDEN, at=came.commit)).text


async def test_hooks_fire_from_plain_commits_and_caps_hold_for_ours(repository: Path) -> None:
    async with open_memory(repository, PLAIN, if_missing="adopt") as memory:
        git(repository, "reset", "--quiet")
        write(repository, CORE, "# Core\n" + "- x\n" * 220)
        write(repository, "knowledge/people/cy.md", "# Cy\n")

        swept = await commit_changes(memory)

        assert "has 221 lines" in swept.left_out[CORE]
        assert "knowledge/people/cy.md" in git(repository, "ls-tree", "-r", "--name-only", "HEAD")
        git(repository, "add", CORE)
        refused = attempt(repository, "commit", "--message", "by hand", "--", CORE)
        assert refused.returncode != 0
        assert b"has 221 lines" in refused.stderr

        git(repository, "reset", "--quiet", "--", CORE)
        write(repository, CORE, "# Core\n" + "- x\n" * 180)
        swept = await commit_changes(memory)
        assert "has 181 lines" in swept.warned[CORE]
        assert git(repository, "show", f"HEAD:{CORE}").count("\n") == 180
        write(repository, CORE, "# Core\n" + "- y\n" * 180)
        warned = attempt(repository, "commit", "--quiet", "--message", "by hand", "--", CORE)
        assert warned.returncode == 0
        assert b"has 181 lines" in warned.stderr

        for hook in (repository / ".git" / "hooks").iterdir():  # as if our command had been uninstalled
            hook.write_text(hook.read_text().replace("\nours=", "\nours=/gone"))
        write(repository, CORE, "# Core\n" + "- z\n" * 300)
        quiet = attempt(repository, "commit", "--quiet", "--message", "by hand", "--", CORE, PATH="/usr/bin:/bin")
        assert (quiet.returncode, quiet.stderr) == (0, b"")
