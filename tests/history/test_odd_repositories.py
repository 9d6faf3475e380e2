"""The memory's repository may be in any state, and the user may have any git configuration: the user's changes are
kept, and a commit that must wait says why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Unavailable
from mcp_server.history import explore, history
from mcp_server.history.committing import commit_changes, tag
from mcp_server.history.history import revert
from mcp_server.history.sync import sync
from mcp_server.knowledge.reconstruct import reconstruct
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.status.doctor import Check, examine, repair
from mcp_server.status.status import status
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.gitting import attempt, git, subjects, write
from tests.history.two_copies import TESTS

pytestmark = pytest.mark.anyio
ANA = "knowledge/people/ana.md"


async def works(memory: Memory, name: str = "idea") -> None:
    """Every operation that writes into the repository, once."""
    root = memory.disk.root
    await observe(memory, NewTurn("user", f"hello {name}", name), TESTS)
    assert (await end_session(memory, name)).committed
    await remember(memory, NewFact(f"{name} was here"), TESTS)
    swept = await commit_changes(memory)
    assert (swept.note, dict(swept.left_out)) == ("", {})
    await tag(memory, "milestone", name, "with a note")
    made = await explore.create(memory, name)
    write(Path(made.place or ""), f"knowledge/people/{name}.md", f"# {name}\n")
    joined = await explore.merge(memory, name)
    assert joined is not None
    assert (root / f"knowledge/people/{name}.md").exists()
    assert (await revert(memory, joined.commit, TESTS, apply=True)).commit is not None
    assert not (root / f"knowledge/people/{name}.md").exists()
    assert (await history.when(memory, f"{name} was here"))[0].commit == swept.commits[-1]


def diverged(root: Path) -> None:
    """A branch `other` that conflicts with `main`."""
    write(root, ANA, "# Ana\n\n- one\n")
    git(root, "add", ANA)
    git(root, "commit", "--quiet", "--message", "one")
    git(root, "checkout", "--quiet", "-b", "other")
    write(root, ANA, "# Ana\n\n- two\n")
    git(root, "commit", "--quiet", "--all", "--message", "two")
    git(root, "checkout", "--quiet", "main")
    write(root, ANA, "# Ana\n\n- three\n")
    git(root, "commit", "--quiet", "--all", "--message", "three")


MIDDLE = {
    "rebase": (["rebase", "other"], ["rebase", "--abort"]),
    "cherry-pick": (["cherry-pick", "other"], ["cherry-pick", "--abort"]),
    "revert": (["revert", "--no-edit", "HEAD~1"], ["revert", "--abort"]),
    "bisect": (["bisect", "start"], ["bisect", "reset"]),
    "on no branch": (["checkout", "--quiet", "--detach"], ["checkout", "--quiet", "main"]),
    "merge": (["merge", "other"], ["merge", "--abort"]),
}


async def test_in_the_middle_of_something_everything_waits_and_says_for_what(memory: Memory, workspace: Path) -> None:
    await commit_changes(memory)
    diverged(workspace)
    for state, (begin, end) in MIDDLE.items():
        attempt(workspace, *begin)
        write(workspace, "knowledge/people/bo.md", "# Bo\n")
        with pytest.raises(Unavailable, match=state):
            await tag(memory, "milestone", "now")
        assert state in (await commit_changes(memory)).note
        if state == "merge":
            break
        git(workspace, *end)
    before = git(workspace, "status", "--porcelain"), git(workspace, "rev-parse", "HEAD")
    acts: list[Callable[[], Awaitable[Any]]] = [
        lambda: explore.create(memory, "idea"),
        lambda: reconstruct(memory, "again"),
        lambda: sync(memory),
        lambda: revert(memory, "HEAD", TESTS, apply=True),
    ]

    for act in acts:
        with pytest.raises(Unavailable, match=state):
            await act()
    assert (git(workspace, "status", "--porcelain"), git(workspace, "rev-parse", "HEAD")) == before
    await observe(memory, NewTurn("user", "hello", "s1"), TESTS)
    assert state in (await end_session(memory, "s1")).note
    await remember(memory, NewFact("Marko builds boats"), TESTS)
    assert state in (await commit_changes(memory)).note
    assert any(state in problem for problem in (await status(memory)).problems)
    assert git(workspace, "rev-parse", "HEAD") == before[1]

    git(workspace, *end)
    assert len((await commit_changes(memory)).commits) == 2
    assert git(workspace, "status", "--porcelain") == ""


def signing(root: Path) -> None:
    for key in ("commit.gpgSign", "tag.gpgSign", "push.gpgSign"):
        git(root, "config", key, "true")
    git(root, "config", "gpg.program", "false")


def line_ends(root: Path) -> None:
    git(root, "config", "core.autocrlf", "true")
    git(root, "config", "core.safecrlf", "true")
    (root / "knowledge/reference").mkdir(parents=True, exist_ok=True)
    (root / "knowledge/reference/windows.md").write_bytes(b"# From Windows\r\n\r\n- a line\r\n")
    (root / "knowledge/reference/windows.txt").write_bytes(b"a line\r\nanother\r\n")


def failing_hooks(root: Path) -> None:
    for name in ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout", "pre-merge-commit"):
        place = root / ".git" / "hooks" / (f"{name}.chained" if name in ("pre-commit", "commit-msg") else name)
        place.write_text("#!/bin/sh\nexit 1\n")
        place.chmod(0o755)


def bare(root: Path) -> None:
    git(root, "config", "core.bare", "true")


def nested(root: Path) -> None:
    git(root.parent, "init", "--quiet")
    write(root.parent, "outer.txt", "outer\n")
    git(root.parent, "add", "outer.txt")


def with_worktree(root: Path) -> None:
    git(root, "worktree", "add", "--quiet", "-b", "mine", str(root.parent / "mine"))


def strange_settings(root: Path) -> None:
    for key, value in {
        "core.quotePath": "true",
        "core.fileMode": "false",
        "core.logAllRefUpdates": "false",
        "diff.noprefix": "true",
        "diff.renames": "copies",
        "merge.conflictStyle": "diff3",
        "status.showUntrackedFiles": "no",
        "log.showSignature": "true",
        "color.ui": "always",
        "core.pager": "false",
        "push.default": "nothing",
        "i18n.commitEncoding": "ISO-8859-1",
        "user.useConfigOnly": "true",
        "fetch.prune": "true",
        "gc.auto": "1",
    }.items():
        git(root, "config", key, value)


@pytest.mark.parametrize(
    "set_ups",
    [(signing, line_ends, strange_settings, failing_hooks), (bare,), (nested, with_worktree)],
    ids=lambda functions: functions[0].__name__,
)
async def test_everything_works_whatever_the_user_has_set(
    memory: Memory, workspace: Path, tmp_path: Path, set_ups: Sequence[Callable[[Path], None]]
) -> None:
    await commit_changes(memory)
    for set_up in set_ups:
        set_up(workspace)
    await works(memory)
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "hub.git")
    git(workspace, "remote", "add", "origin", str(tmp_path / "hub.git"))

    assert (await sync(memory)).pushed

    assert git(tmp_path / "hub.git", "rev-parse", "main") == git(workspace, "rev-parse", "HEAD")
    git(workspace, "config", "core.bare", "false")
    assert git(workspace, "status", "--porcelain", "--untracked-files=all") == ""
    assert git(workspace, "fsck", "--connectivity-only", "--no-dangling") == ""
    if nested in set_ups:
        assert git(workspace.parent, "status", "--porcelain", "outer.txt") == "A  outer.txt"
        assert attempt(workspace.parent, "rev-parse", "--verify", "HEAD").returncode != 0
        assert (tmp_path / "mine" / "memory-config.yaml").exists()
    if line_ends in set_ups:
        windows = workspace / "knowledge/reference/windows.md"
        assert windows.read_bytes() == b"# From Windows\r\n\r\n- a line\r\n", "a work tree's bytes never change"
        assert git(workspace, "show", "HEAD:knowledge/reference/windows.md") == "# From Windows\n\n- a line"


async def test_a_hook_of_the_users_that_fails_stops_their_commits_and_pushes_and_no_commit_of_ours(
    memory: Memory, workspace: Path, tmp_path: Path
) -> None:
    await commit_changes(memory)
    failing_hooks(workspace)
    (workspace / ".git/hooks/pre-push").write_text("#!/bin/sh\necho 'not on a Sunday' >&2\nexit 1\n")
    (workspace / ".git/hooks/pre-push").chmod(0o755)
    write(workspace, ANA, "# Ana\n")

    assert attempt(workspace, "commit", "--all", "--message", "by hand").returncode != 0
    assert len((await commit_changes(memory)).commits) == 1

    git(tmp_path, "init", "--quiet", "--bare", "hub.git")
    git(workspace, "remote", "add", "origin", str(tmp_path / "hub.git"))
    with pytest.raises(Unavailable, match="not on a Sunday"):
        await sync(memory)
    assert git(workspace, "status", "--porcelain") == ""


async def test_what_the_user_has_git_ignore_stays_out_of_it_and_is_named(memory: Memory, workspace: Path) -> None:
    write(workspace, "knowledge/people/known.md", "# Known\n")
    await commit_changes(memory)
    ignored = (workspace / ".gitignore").read_text()
    write(workspace, ".gitignore", f"{ignored}\nraw/\nknowledge/people/\n")

    await observe(memory, NewTurn("user", "hello", "s1"), TESTS)
    closed = await end_session(memory, "s1")
    write(workspace, ANA, "# Ana\n")
    write(workspace, "knowledge/people/known.md", "# Known\n\n- more\n")
    swept = await commit_changes(memory)

    held = git(workspace, "ls-tree", "-r", "--name-only", "HEAD").split("\n")
    assert closed.path not in held
    assert "git ignores it (.gitignore:" in closed.note
    assert (workspace / closed.path).exists()
    assert ANA not in held
    assert dict(swept.left_out) == {}
    assert "more" in git(workspace, "show", "HEAD:knowledge/people/known.md"), "what git holds it goes on holding"
    problems = (await status(memory)).problems
    assert any(one.startswith("raw/conversations/ is ignored by git (.gitignore:") for one in problems)
    write(workspace, ".gitignore", ignored)
    assert not any("is ignored by git" in one for one in (await status(memory)).problems)
    assert ANA in git(workspace, "ls-files", "--others", "--exclude-standard")


async def test_a_memory_that_lies_in_a_worktree_of_another_repository_works(tmp_path: Path, clock: Clock) -> None:
    main, place = tmp_path / "main", tmp_path / "memory"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(main))
    write(main, "README", "x\n")
    git(main, "add", "README")
    git(main, "commit", "--quiet", "--message", "first")
    git(main, "worktree", "add", "--quiet", "-b", "memory", str(place))
    async with open_memory(place, KEYWORDS_ONLY, clock=clock, if_missing="adopt") as memory:
        await commit_changes(memory)
        await works(memory)
        assert "in .git/hooks" in (await status(memory, "git")).views["git"]["hooks"]

    assert git(main, "branch", "--show-current") == "main"
    assert subjects(main, "main") == ["first"]
    assert git(main, "status", "--porcelain") == ""
    assert git(place, "status", "--porcelain") == ""


async def test_a_submodule_in_the_memory_is_left_to_its_owner(memory: Memory, workspace: Path, tmp_path: Path) -> None:
    team = tmp_path / "team"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(team))
    write(team, "deploy.md", "# Deploy\n")
    git(team, "add", "--all")
    git(team, "commit", "--quiet", "--message", "deploy")
    await commit_changes(memory)
    git(workspace, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(team), "knowledge/shared")
    git(workspace, "commit", "--quiet", "--message", "the team's knowledge")
    write(workspace, "knowledge/shared/deploy.md", "# Deploy\n\n- edited here\n")

    await works(memory)
    await reconstruct(memory, "again")

    assert (workspace / "knowledge/shared/deploy.md").read_text() == "# Deploy\n\n- edited here\n"
    assert git(workspace / "knowledge/shared", "status", "--porcelain") == " M deploy.md"
    assert git(workspace, "rev-parse", "HEAD:knowledge/shared") == git(team, "rev-parse", "HEAD")


def loose(root: Path, name: str) -> Path:
    """The file of an object."""
    number = git(root, "rev-parse", name)
    return root / ".git" / "objects" / number[:2] / number[2:]


def delete(root: Path, name: str) -> None:
    loose(root, name).unlink()


def empty(root: Path, name: str) -> None:
    """Empties an object's file, as a loss of power may."""
    place = loose(root, name)
    place.chmod(0o600)
    place.write_bytes(b"")


def scribble(root: Path, name: str) -> None:
    (root / ".git" / name).write_bytes(b"\0\x9c garbage \n")


def delete_file(root: Path, name: str) -> None:
    (root / ".git" / name).unlink()


DAMAGES: dict[str, tuple[Callable[[Path, str], None], str, str]] = {
    "no last commit": (delete, "HEAD", "has lost its last commit"),
    "an empty last commit": (empty, "HEAD", "has lost its last commit"),
    "no folder": (delete, "HEAD:knowledge/people", "the last commit"),
    "garbage HEAD": (scribble, "HEAD", "HEAD is damaged"),
    "no HEAD": (delete_file, "HEAD", "HEAD is damaged"),
    "a garbage branch": (scribble, "refs/heads/main", "has lost its last commit"),
    "no branch": (delete_file, "refs/heads/main", "has lost its last commit"),
}
SEEN_BY_DOCTOR = {
    "no file": (delete, f"HEAD:{ANA}", "lost 1 file version"),
    "an empty file": (empty, f"HEAD:{ANA}", "damaged"),
    "no older commit": (delete, "HEAD~1", "lost 1 commit"),
}


@pytest.fixture(scope="module")
def grown_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three commits of a person."""
    made = tmp_path_factory.mktemp("grown") / "memory"

    async def grow() -> None:
        async with open_memory(made, KEYWORDS_ONLY, clock=Clock()) as memory:
            for number in range(3):
                write(made, ANA, f"# Ana\n\n- {number}\n")
                assert (await commit_changes(memory)).commits

    anyio.run(grow)
    return made


@pytest.fixture
def new_workspace(new_workspace: Path, request: pytest.FixtureRequest) -> Path:
    """The workspace that `memory` copies: a new one, or the grown one."""
    made: Path = request.getfixturevalue("grown_workspace") if "grown" in request.fixturenames else new_workspace
    return made


@pytest.fixture
def grown(memory: Memory, workspace: Path) -> Path:
    return workspace


async def git_check(memory: Memory) -> Check:
    return next(check for check in await examine(memory) if check.name == "git")


@pytest.mark.parametrize("name", [*DAMAGES, *SEEN_BY_DOCTOR])
async def test_a_damage_is_named_with_its_remedy_and_a_repair_keeps_every_file(
    memory: Memory, grown: Path, name: str
) -> None:
    damage, what, words = (DAMAGES | SEEN_BY_DOCTOR)[name]
    damage(grown, what)
    check = await git_check(memory)
    assert not check.ok
    assert words in check.detail
    assert "doctor --repair" in check.advice
    if name in DAMAGES:
        problems = (await status(memory)).problems
        assert any(words in one and "doctor --repair" in one for one in problems), problems
    assert (await observe(memory, NewTurn("user", "still heard", "s1"), TESTS)).recorded
    if name == "no older commit":
        return  # only another copy has it
    write(grown, "knowledge/people/bo.md", "# Bo, not committed yet\n")

    assert await repair(memory)
    await commit_changes(memory)

    check = await git_check(memory)
    assert check.ok, check.detail
    assert (grown / ANA).read_text() == "# Ana\n\n- 2\n"
    assert git(grown, "show", f"HEAD:{ANA}") == "# Ana\n\n- 2"
    assert "not committed yet" in git(grown, "show", "HEAD:knowledge/people/bo.md")
    assert git(grown, "show", f"HEAD~2:{ANA}")
    assert git(grown, "status", "--porcelain", "--", "knowledge") == ""
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
