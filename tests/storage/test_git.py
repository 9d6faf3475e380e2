"""Git: the user's own work is never touched, whatever state their repository is in."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mcp_server.errors import Invalid, NotFound, Refused, Unavailable
from mcp_server.storage.git_process import GitFailed, ask_git, plain_environment, run_git
from mcp_server.storage.local.git import commits
from mcp_server.storage.local.git.git import Git
from tests.gitting import git as run
from tests.gitting import write
from tests.killing import killed_at_each_step

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir()
    return tmp_path / "memory"


@pytest.fixture
def git(root: Path) -> Git:
    """A repository with one commit, of `a.md`."""
    git = Git(root)
    write(root, "a.md", "one\n")
    git.commit_files(["a.md"], "memory: a")
    return git


def test_the_first_commit_makes_the_repository_and_has_an_author_of_ours(root: Path) -> None:
    git = Git(root)
    assert git.head() is None
    write(root, "raw/a.md", "one\n")

    commit = git.commit_files(["raw/a.md"], "conversation: čaj\n\nSession: raw/a.md").commit

    assert commit == git.head() == run(root, "rev-parse", "HEAD")
    assert (
        run(root, "log", "--format=%an <%ae>%n%B")
        == "context-manager <context-manager@localhost>\nconversation: čaj\n\nSession: raw/a.md"
    )
    assert run(root, "status", "--porcelain") == ""
    assert run(root, "branch", "--show-current") == "main"
    assert git.init() is False


def test_a_hook_that_started_us_does_not_mislead_us(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run(other, "init", "--quiet", ".")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git" / "objects"))
    write(root, "a.md", "one\n")

    Git(root).commit_files(["a.md"], "memory: a")
    said = ask_git(root, "rev-parse", "--show-toplevel")

    monkeypatch.undo()
    assert said == str(root)
    assert run(root, "ls-tree", "--name-only", "HEAD") == "a.md"
    assert run(other, "rev-list", "--count", "--all") == "0"


def test_the_users_identity_is_used(root: Path) -> None:
    git = Git(root)
    git.init()
    run(root, "config", "user.name", "Ana")
    run(root, "config", "user.email", "ana@example.org")
    write(root, "a.md", "one\n")
    git.commit_files(["a.md"], "memory: a")

    assert run(root, "log", "-1", "--format=%an %ae %cn") == "Ana ana@example.org Ana"


def test_a_file_is_read_as_it_was(root: Path) -> None:
    git = Git(root)
    with pytest.raises(NotFound, match="nothing was committed yet"):
        git.show("a.md", "HEAD")
    write(root, "a.md", "one\r\ndva č\n")
    first = git.commit_files(["a.md"], "memory: a").commit
    assert first is not None
    write(root, "a.md", "two\n")
    (root / "b.bin").write_bytes(b"\0\xff")
    git.commit_files(["a.md", "b.bin"], "memory: b")
    run(root, "tag", "memory/milestone/x", first)
    old = run(root, "commit-tree", f"{first}^{{tree}}", "-m", "old", GIT_COMMITTER_DATE="2020-05-01T12:00:00")
    tree = "HEAD^{tree}"
    newer = run(root, "commit-tree", tree, "-p", old, "-m", "new", GIT_COMMITTER_DATE="2020-05-03T12:00:00")
    run(root, "update-ref", "refs/heads/main", newer)

    for at in (first, first[:8], "memory/milestone/x", "2020-05-01", "2020-05-02", "HEAD~1"):
        assert (root / "a.md", git.show("a.md", at)) == (root / "a.md", "one\r\ndva č\n")
    assert git.show("a.md", "2020-05-03") == "two\n"
    for at in ("2020-04-30", "nothing", "--help", "HEAD:a.md", "a b", ""):
        with pytest.raises(NotFound):
            git.show("a.md", at)
    with pytest.raises(NotFound, match="did not exist"):
        git.show("c.md", "HEAD")
    with pytest.raises(Invalid, match="binary"):
        git.show("b.bin", "HEAD")
    for path in ("../x", "/etc/passwd", "a\0b", ""):
        with pytest.raises(Refused):
            git.show(path, "HEAD")


@pytest.mark.usefixtures("git")
def test_another_commit_in_between_is_not_lost(root: Path) -> None:
    write(root, "theirs.md", "theirs\n")
    done: list[str] = []

    def meanwhile() -> datetime:
        """A commit is dated when it is about to be put in place."""
        if not done:
            done.append(run(root, "add", "theirs.md"))
            run(root, "commit", "--quiet", "-m", "theirs")
        return datetime.now(UTC)

    write(root, "a.md", "two\n")
    Git(root, meanwhile).commit_files(["a.md"], "memory: ours")

    assert run(root, "log", "--format=%s").split("\n") == ["memory: ours", "theirs", "memory: a"]
    assert run(root, "ls-tree", "--name-only", "HEAD").split() == ["a.md", "theirs.md"]
    assert run(root, "status", "--porcelain") == ""


def test_an_index_that_somebody_holds_is_brought_up_later(
    git: Git, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_TRIES", 2)
    (root / ".git" / "index.lock").touch()
    write(root, "a.md", "two\n")

    assert git.commit_files(["a.md"], "memory: b").commit is not None
    (root / ".git" / "index.lock").unlink()
    assert run(root, "status", "--porcelain") != ""
    write(root, "b.md", "three\n")
    git.commit_files(["b.md"], "memory: c")

    assert run(root, "status", "--porcelain") == ""


def test_locks_of_a_killed_git_are_removed_when_they_are_old(
    git: Git, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "_TRIES", 2)
    lock = root / ".git" / "refs" / "heads" / "main.lock"
    lock.touch()
    write(root, "a.md", "two\n")
    with pytest.raises(Unavailable, match="nothing is lost"):
        git.commit_files(["a.md"], "memory: b")
    os.utime(lock, (1, 1))

    assert git.commit_files(["a.md"], "memory: b").commit is not None
    assert not list((root / ".git").glob("context-manager*"))


KILLED = """
import sys
from pathlib import Path
from mcp_server.storage.local.git.git import Git
from mcp_server.storage.local.git.repository import Repository
from tests.killing import die_at
git = Git(Path(sys.argv[1]))
writing = {"read-tree", "update-index", "write-tree", "commit-tree", "update-ref"}
die_at(int(sys.argv[2]), (Repository, "run"), having=writing)
print(git.commit_files(["a.md"], "memory: killed").commit, flush=True)
"""


def test_a_kill_before_any_write_of_a_commit_is_mended_by_the_next(git: Git, root: Path) -> None:
    for _ in killed_at_each_step(KILLED, str(root), before=lambda step: write(root, "a.md", f"{step}\n")):
        git.commit_files(["a.md"], "memory: after")
        assert run(root, "show", "HEAD:a.md") == (root / "a.md").read_text().strip()
        assert run(root, "status", "--porcelain") == ""


def test_many_files_are_one_commit(root: Path) -> None:
    paths = [f"raw/{number:04d}.md" for number in range(250)]  # more than fit on one command line (`_MANY`)
    for path in paths:
        write(root, path, path)

    Git(root).commit_files(paths, "conversation: import")

    assert len(run(root, "ls-tree", "-r", "--name-only", "HEAD").split()) == 250
    assert run(root, "status", "--porcelain") == ""


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(GitFailed, match="git wait failed: it did not end within"):
        run_git(tmp_path, "-c", "alias.wait=!sleep 20", "wait", environment=plain_environment(), seconds=0.3)
    assert time.monotonic() - began < 10


def test_without_git_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="install it"):
        run_git(tmp_path, "status", environment=plain_environment())
    assert ask_git(tmp_path, "status") is None
