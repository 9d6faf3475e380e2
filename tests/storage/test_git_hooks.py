"""Hooks: plain `git commit` is looked at, other people's hooks go on working, and without our command nothing is in
the way."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from random import Random

import pytest

from mcp_server.errors import Unavailable
from mcp_server.storage.local.git.git import Git
from mcp_server.text.redaction import secrets
from tests.gitting import WHO, attempt, git, subjects, write
from tests.text.secret_samples import BY_FORM

CORE = "knowledge/memory/MEMORY.md"
TRANSCRIPT = "raw/conversations/2026/02/16/1845-s1-oven.md"
SEALED = "---\nsession_id: s1\nended: 2026-02-16T19:00:00Z\n---\n\n# Oven\n\n## 18:45 — user\nhello\n"
RECORDER = "#!/bin/sh\necho \"$0 $@\" >> '{}'\nexit {}\n"


@pytest.fixture
def root(tmp_path: Path, home: Path) -> Path:
    root = tmp_path / "my memory"
    root.mkdir()
    repository = Git(root)
    repository.init()
    repository.hooks.ensure()
    write(root, TRANSCRIPT, SEALED)
    write(root, CORE, "# Core\n")
    assert commit(root) == ""
    return root


def commit(root: Path, message: str = "by hand") -> str:
    """Commits everything as a user does; what the hooks said, with `refused` before it if they stopped it."""
    git(root, "add", "--all")
    done = attempt(root, "commit", "--quiet", "--message", message)
    return ("refused: " if done.returncode else "") + done.stderr.decode().strip()


def hook(folder: Path, name: str, log: Path, code: int = 0) -> None:
    """Somebody else's hook, which writes down that it ran."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(RECORDER.format(log, code))
    (folder / name).chmod(0o755)


def test_core_memory_is_warned_about_and_refused_as_it_is_staged(root: Path) -> None:
    for lines, said in ((180, ""), (181, "181 lines; over 220"), (221, "refused: ")):
        write(root, CORE, "- x\n" * lines)

        told = commit(root)

        assert said in told
        assert told.startswith("refused") is (lines > 220)


def test_the_staged_file_counts_and_not_the_one_on_disk(root: Path) -> None:
    write(root, CORE, "- x\n" * 10)
    git(root, "add", "--all")
    write(root, CORE, "- x\n" * 300)

    assert attempt(root, "commit", "--quiet", "--message", "m").returncode == 0


SAMPLES = [BY_FORM[form](Random(1)) for form in ("aws-key-id", "github-classic", "slack-webhook", "anthropic", "jwt")]


def test_keys_of_forms_that_redaction_knows_are_refused(root: Path) -> None:
    files = {f"knowledge/reference/a b č {number}.md": sample for number, sample in enumerate(SAMPLES)}
    for path, sample in files.items():
        assert secrets(f"it is {sample}\n")
        write(root, path, f"# Keys\nit is {sample}\n")

    told = commit(root)

    assert told.startswith("refused")
    for path, sample in files.items():
        assert f"{path}: what is added holds a secret" in told
        assert sample not in told
    assert attempt(root, "commit", "--quiet", "--no-verify", "--message", "m").returncode == 0
    for path, sample in files.items():
        write(root, path, f"# Keys\n\nit is {sample}\n")
    assert commit(root) == ""  # they stood there before


def test_a_sealed_conversation_changes_only_with_the_trailer(root: Path) -> None:
    write(root, TRANSCRIPT, SEALED.replace("hello", "bye"))
    assert "is a conversation that is over" in commit(root)
    assert commit(root, "m\n\nForget: fgt_1") == ""

    (root / TRANSCRIPT).unlink()
    assert commit(root).startswith("refused")
    git(root, "reset", "--quiet", "--hard")
    git(root, "mv", TRANSCRIPT, "raw/conversations/other.md")
    assert commit(root).startswith("refused")


def test_an_open_conversation_may_grow_and_what_is_none_is_refused(root: Path) -> None:
    write(root, "raw/conversations/open.md", SEALED.replace("2026-02-16T19:00:00Z", "null"))
    assert commit(root) == ""
    write(root, "raw/conversations/open.md", SEALED)
    assert commit(root) == ""
    write(root, "raw/conversations/junk.md", "no front matter\n")
    assert "has no front matter" in commit(root)


def test_a_commit_by_hand_leaves_a_mark_once(root: Path) -> None:
    repository = Git(root)
    assert repository.hooks.take_mark() == repository.head()
    assert repository.hooks.take_mark() is None


@pytest.mark.skipif(os.name != "posix", reason="needs pipes with a name")
@pytest.mark.parametrize(("said", "ends"), [("by hand", 0), ("", 1)])
def test_a_commit_whose_editor_is_open_is_waited_for(root: Path, tmp_path: Path, said: str, ends: int) -> None:
    opened, written = tmp_path / "opened", tmp_path / "written"
    for pipe in (opened, written):
        os.mkfifo(pipe)
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\necho >'{opened}'\ncat '{written}' >\"$1\"\n")
    editor.chmod(0o755)
    write(root, "theirs.md", "theirs\n")
    write(root, "knowledge/ours.md", "ours\n")
    git(root, "add", "theirs.md")
    with subprocess.Popen(
        ["git", "-C", str(root), "commit", "--quiet"],
        env={**os.environ, **WHO, "GIT_EDITOR": str(editor)},
        stderr=subprocess.DEVNULL,
    ) as theirs:
        opened.read_text()

        try:
            with pytest.raises(Unavailable, match="in the middle of a commit; finish or abort it"):
                Git(root).commit_files(["knowledge/ours.md"], "memory: ours")
        finally:
            written.write_text(said)
        assert theirs.wait() == ends
    assert Git(root).commit_files(["knowledge/ours.md"], "memory: ours").commit is not None
    assert subjects(root) == ["memory: ours", *(["by hand"] if said else []), "by hand"]


def test_without_our_command_the_hooks_do_nothing(root: Path) -> None:
    for place in (root / ".git" / "hooks").glob("p*-commit"):
        place.write_text(place.read_text().replace("ours=", "ours=/nowhere"))
    (root / ".git/hooks/commit-msg").unlink()
    (root / ".git/context-manager-commit").unlink(missing_ok=True)
    write(root, CORE, "- x\n" * 300 + "ghp_" + "a1B2" * 9)

    git(root, "add", "--all")
    done = attempt(root, "commit", "--quiet", "--message", "m", PATH="/usr/bin:/bin")

    assert (done.returncode, done.stderr) == (0, b"")
    assert Git(root).hooks.take_mark() is None


def test_hooks_that_were_there_run_too_and_come_back(tmp_path: Path, home: Path) -> None:
    root, log = tmp_path / "memory", tmp_path / "log"
    root.mkdir()
    repository = Git(root)
    repository.init()
    for name in ("pre-commit", "post-commit"):
        hook(root / ".git/hooks", name, log)
    theirs = (root / ".git/hooks/pre-commit").read_bytes()

    repository.hooks.ensure()
    repository.hooks.ensure()
    write(root, CORE, "# Core\n")

    assert commit(root) == ""
    names = [Path(line.split(" ")[0]).name for line in log.read_text().splitlines()]
    assert names == ["pre-commit.chained", "post-commit.chained"]
    hook(root / ".git/hooks", "pre-commit.chained", log, 1)
    write(root, CORE, "# Core\n\n- more\n")
    assert commit(root).startswith("refused")
    (root / ".git/hooks/pre-commit.chained").write_bytes(theirs)
    repository.hooks.remove()
    assert (root / ".git/hooks/pre-commit").read_bytes() == theirs
    assert not list((root / ".git/hooks").glob("*.chained"))
    assert not (root / ".git/hooks/commit-msg").exists()


@pytest.mark.parametrize("scope", ["--global", "--local"])
def test_a_hooks_folder_of_the_users_goes_on_working_and_is_not_written_to(
    tmp_path: Path, home: Path, scope: str
) -> None:
    root, theirs, log = tmp_path / "memory", tmp_path / "their hooks", tmp_path / "log"
    root.mkdir()
    for name in ("pre-commit", "post-checkout", "commit-msg"):
        hook(theirs, name, log)
    repository = Git(root)
    repository.init()
    git(root, "config", scope, "core.hooksPath", str(theirs))

    repository.hooks.ensure()
    repository.hooks.ensure()
    assert repository.hooks.in_place()
    write(root, CORE, "- x\n" * 221)
    assert commit(root).startswith("refused")
    write(root, CORE, "# Core\n")
    assert commit(root) == ""
    git(root, "checkout", "--quiet", "-b", "other")

    names = [line.split("hooks/")[1].split(" ")[0] for line in log.read_text().splitlines()]
    assert names == ["pre-commit", "commit-msg", "post-checkout"]
    assert sorted(place.name for place in theirs.iterdir()) == ["commit-msg", "post-checkout", "pre-commit"]
    repository.hooks.remove()
    assert git(root, "config", "core.hooksPath") == str(theirs)
    assert not (root / ".git/context-manager-hooks").exists()
    repository.hooks.ensure()
    git(root, "config", scope, "--unset", "contextmanager.hooksPath" if scope == "--local" else "core.hooksPath")
    repository.hooks.ensure()  # the user has given it up
    assert repository.hooks.state() == "in .git/hooks"
    assert subjects(root) == ["by hand"]


def test_local_files_are_hidden_in_a_repository_whose_gitignore_is_not_ours(root: Path) -> None:
    write(root, ".local/state.db", "x")

    assert git(root, "status", "--porcelain") == ""


def test_hooks_also_look_at_commits_in_a_linked_worktree(root: Path, tmp_path: Path) -> None:
    git(root, "worktree", "add", "--quiet", "-b", "other", str(tmp_path / "tree"))
    write(tmp_path / "tree", CORE, "- x\n" * 221)

    assert commit(tmp_path / "tree").startswith("refused")
    assert Git(tmp_path / "tree").hooks.state() != ""


def test_hooks_of_a_workspace_whose_git_folder_lies_elsewhere_are_seen_to_be_in_place(
    tmp_path: Path, home: Path
) -> None:
    root, tree = tmp_path / "memory", tmp_path / "tree"
    git(tmp_path, "init", "--quiet", "--separate-git-dir", str(tmp_path / "elsewhere"), str(root))
    write(root, CORE, "# Core\n")
    assert commit(root) == ""
    git(root, "worktree", "add", "--quiet", "-b", "other", str(tree))

    for place in (root, tree):
        Git(place).hooks.ensure()
        assert Git(place).hooks.in_place()
    write(tree, CORE, "# Core\n\n- more\n")
    commit(tree)

    assert Git(tree).hooks.take_mark() == git(tree, "rev-parse", "HEAD")
    assert Git(root).hooks.take_mark() is None


def test_a_topic_that_nothing_sets_off_is_warned_about(root: Path) -> None:
    write(root, "topics/email.md", "---\ntype: topic\n---\n# Email\n")
    write(root, "topics/deploy.md", "---\ntriggers:\n  - {type: pattern, match: deploy}\n---\n# Deploy\n")

    told = commit(root)

    assert told == "context-manager: topics/email.md has no triggers: every message is compared with it"
