"""A damaged repository is told in plain words, stops no recording, and is mended without loss."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.history.committing import commit_changes
from mcp_server.memory import Memory
from mcp_server.status.doctor import Check, examine, repair
from mcp_server.status.status import status
from tests.gitting import attempt, git, write
from tests.history.two_copies import TESTS

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
ANA = "knowledge/people/ana.md"


def loose(root: Path, name: str) -> Path:
    """The file of an object."""
    number = git(root, "rev-parse", name)
    return root / ".git" / "objects" / number[:2] / number[2:]


def without(name: str) -> Callable[[Path], None]:
    return lambda root: loose(root, name).unlink()


def emptied(name: str) -> Callable[[Path], None]:
    """Empties an object's file, as a loss of power may."""

    def damage(root: Path) -> None:
        place = loose(root, name)
        place.chmod(0o600)
        place.write_bytes(b"")

    return damage


def scribbled(name: str) -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        place = root / ".git" / name
        place.write_bytes(b"\0\x9c garbage \n")

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no last commit": (without("HEAD"), "has lost its last commit"),
    "an empty last commit": (emptied("HEAD"), "has lost its last commit"),
    "no list of files": (without("HEAD^{tree}"), "the last commit"),
    "no folder": (without("HEAD:knowledge/people"), "the last commit"),
    "garbage HEAD": (scribbled("HEAD"), "HEAD is damaged"),
    "no HEAD": (lambda root: (root / ".git/HEAD").unlink(), "HEAD is damaged"),
    "a garbage branch": (scribbled("refs/heads/main"), "has lost its last commit"),
    "no branch": (lambda root: (root / ".git/refs/heads/main").unlink(), "has lost its last commit"),
}
SEEN_BY_DOCTOR = {
    "no file": (without(f"HEAD:{ANA}"), "lost 1 file version"),
    "an empty file": (emptied(f"HEAD:{ANA}"), "damaged"),
    "no older commit": (without("HEAD~1"), "lost 1 commit"),
}


@pytest.fixture
async def grown(memory: Memory, workspace: Path) -> Path:
    """Three commits of a person."""
    for number in range(3):
        write(workspace, ANA, f"# Ana\n\n- {number}\n")
        assert (await commit_changes(memory)).commits
    return workspace


async def git_check(memory: Memory) -> Check:
    return next(check for check in await examine(memory) if check.name == "git")


@pytest.mark.parametrize("name", DAMAGES)
async def test_status_names_the_damage_and_the_remedy(memory: Memory, grown: Path, name: str) -> None:
    damage, words = DAMAGES[name]
    damage(grown)

    report = await status(memory)
    assert any(words in one and "doctor --repair" in one for one in report.problems), report.problems
    assert "old version" not in report.markdown
    check = await git_check(memory)
    assert not check.ok
    assert words in check.detail
    assert (await observe(memory, NewTurn("user", "still heard", "s1"), TESTS)).recorded


@pytest.mark.parametrize("name", SEEN_BY_DOCTOR)
async def test_doctor_reports_lost_objects_anywhere(memory: Memory, grown: Path, name: str) -> None:
    damage, words = SEEN_BY_DOCTOR[name]
    assert (await git_check(memory)).ok
    damage(grown)

    check = await git_check(memory)

    assert not check.ok
    assert words in check.detail
    assert "doctor --repair" in check.advice


@pytest.mark.parametrize("name", [*DAMAGES, *(name for name in SEEN_BY_DOCTOR if name != "no older commit")])
async def test_a_repair_keeps_every_file_and_commits_work_again(memory: Memory, grown: Path, name: str) -> None:
    damage, _ = (DAMAGES | SEEN_BY_DOCTOR)[name]
    damage(grown)
    write(grown, "knowledge/people/bo.md", "# Bo, not committed yet\n")

    assert await repair(memory)
    await commit_changes(memory)

    check = await git_check(memory)
    assert check.ok, check.detail
    assert (grown / ANA).read_text() == "# Ana\n\n- 2\n"
    assert git(grown, "show", f"HEAD:{ANA}") == "# Ana\n\n- 2"
    assert "not committed yet" in git(grown, "show", "HEAD:knowledge/people/bo.md")
    assert git(grown, "show", f"HEAD~2:{ANA}")
    assert git(grown, "status", "--porcelain") == ""
    assert await repair(memory) == []


async def test_no_second_root_commit_is_made_if_the_branch_was_lost(memory: Memory, grown: Path) -> None:
    (grown / ".git/refs/heads/main").unlink()
    write(grown, ANA, "# Ana\n\n- new\n")

    swept = await commit_changes(memory)

    assert swept.commits == ()
    assert "has lost its last commit" in swept.note
    assert attempt(grown, "rev-parse", "--verify", "HEAD").returncode != 0


async def test_a_lost_file_that_changed_since_is_committed_in_its_current_version(memory: Memory, grown: Path) -> None:
    loose(grown, f"HEAD:{ANA}").unlink()
    write(grown, ANA, "# Ana\n\n- changed since\n")

    await repair(memory)

    assert git(grown, "show", f"HEAD:{ANA}") == "# Ana\n\n- changed since"
    write(grown, ANA, "# Ana\n\n- and again\n")
    assert (await commit_changes(memory)).commits
    assert "lost 1 file version" in (await git_check(memory)).detail


async def test_lost_objects_are_restored_from_a_remote(memory: Memory, grown: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(grown), "hub.git")
    git(grown, "remote", "add", "origin", str(tmp_path / "hub.git"))
    loose(grown, f"HEAD~1:{ANA}").unlink()

    assert "lost objects were restored" in "\n".join(await repair(memory))

    assert (await git_check(memory)).ok
    assert git(grown, "show", f"HEAD~1:{ANA}") == "# Ana\n\n- 1"
