"""What git's history holds of a fact: told, or rewritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.conversations.closed_sessions import commit_pending
from mcp_server.conversations.imports import record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Refused
from mcp_server.forgetting.forget import forget, plan_forget, unfinished
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.memory import Memory
from tests.forgetting.vault import CALLER, FACT, PIECES, filled, said
from tests.gitting import git
from tests.holding import holding, in_git, named

pytestmark = pytest.mark.anyio


async def test_with_history_no_object_of_git_holds_it(memory: Memory, workspace: Path) -> None:
    await filled(memory)
    git(workspace, "tag", "-a", "before-the-vaults-code-is-47-11-zephyr", "-m", f"Tag: {FACT}")
    git(workspace, "branch", "side")
    (workspace / "knowledge/reference/notes.md").write_text(f"# stashed\n\n{FACT} in the stash\n")
    git(workspace, "stash")
    git(workspace, "update-ref", "refs/memory/checkpoints/c1", git(workspace, "rev-parse", "HEAD^{tree}"))
    git(workspace, "config", "user.name", "Ana")
    hook = workspace / ".git/hooks/post-merge"
    hook.write_text("#!/bin/sh\nexit 0\n")
    before = git(workspace, "log", "--format=%an %at %s")
    receipt = await forget(memory, ForgetTarget(text=FACT), history=True)

    assert receipt.rewritten
    assert receipt.left == ()
    for piece in PIECES:
        assert in_git(workspace, piece) == []
        assert holding(workspace, piece) == []
    assert receipt.history.commits == 0
    git(workspace, "fsck", "--strict")
    assert git(workspace, "status", "--porcelain", "--untracked-files=no") == ""
    after = git(workspace, "log", "--format=%an %at %s").splitlines()
    assert [line.split()[1] for line in after][1:] == [line.split()[1] for line in before.splitlines()]
    assert git(workspace, "stash", "list") != ""
    assert "[forgotten] in the stash" in git(workspace, "stash", "show", "-p")
    assert git(workspace, "for-each-ref", "--format=%(refname)").splitlines() == [
        "refs/heads/main",
        "refs/heads/side",
        "refs/memory/checkpoints/c1",
        "refs/stash",
        "refs/tags/before-forgotten",
    ]
    assert hook.exists()
    assert git(workspace, "config", "user.name") == "Ana"


async def test_a_subject_with_other_line_ends_in_it_keeps_its_place_in_the_reflog(
    memory: Memory, workspace: Path
) -> None:
    await filled(memory)
    git(workspace, "commit", "--quiet", "--allow-empty", "-m", "a\u2028main main odd\x0cone")
    git(workspace, "branch", "odd\u2028one")
    before = git(workspace, "log", "-g", "--format=%gs").count("commit")
    assert (await forget(memory, ForgetTarget(text=FACT), history=True)).left == ()
    assert git(workspace, "log", "-g", "--format=%gs").count("commit") == before + 1
    assert git(workspace, "fsck", "--strict") == ""


async def test_the_backup_still_holds_it_and_can_be_read(memory: Memory, workspace: Path, tmp_path: Path) -> None:
    await filled(memory)
    receipt = await forget(memory, ForgetTarget(text=FACT), history=True)
    assert receipt.backup is not None
    bundle = Path(receipt.backup)
    assert bundle.parent == workspace.parent
    assert bundle.stat().st_mode & 0o777 == 0o600
    git(tmp_path, "clone", "--quiet", str(bundle), "restored")
    assert in_git(tmp_path / "restored", "zephyr")


async def test_old_transcripts_in_history_can_still_be_read(memory: Memory, workspace: Path) -> None:
    await filled(memory)
    await forget(memory, ForgetTarget(text=FACT), history=True)
    commits = git(workspace, "rev-list", "HEAD").splitlines()
    texts = [
        git(workspace, "show", f"{commit}:{path}")
        for commit in commits
        for path in git(workspace, "ls-tree", "-r", "--name-only", commit, "raw/").splitlines()
    ]
    assert texts
    for text in texts:
        memory.files.write_atomic("scratch/then.md", text + "\n")
        assert memory.transcripts.read("scratch/then.md").turns


async def test_a_merge_in_progress_is_finished_first(memory: Memory, workspace: Path) -> None:
    await filled(memory)
    (workspace / ".git/MERGE_HEAD").write_text(git(workspace, "rev-parse", "HEAD"))
    with pytest.raises(Refused, match="finish or abort"):
        await forget(memory, ForgetTarget(text=FACT), history=True)
    assert holding(workspace, "zephyr")


async def test_a_workspace_without_git_says_what_it_could_not_do(
    memory: Memory, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await observe(memory, NewTurn("user", FACT, session="s"), CALLER)
    monkeypatch.setattr(type(memory.git), "available", lambda self: False)
    receipt = await forget(memory, ForgetTarget(text=FACT))
    assert "git is not installed" in receipt.left[0]
    assert holding(workspace, "zephyr") == []


async def test_staged_changes_and_a_detached_head_are_rewritten_too(memory: Memory, workspace: Path) -> None:
    await filled(memory)
    (workspace / "knowledge/reference/notes.md").write_text(f"# Staged\n\nOld: {FACT}\n")
    git(workspace, "add", "knowledge/reference/notes.md")
    (workspace / "knowledge/reference/notes.md").write_text("# Staged\n\nNew\n")
    git(workspace, "checkout", "--quiet", "--detach")
    receipt = await forget(memory, ForgetTarget(text=FACT), history=True)
    assert receipt.left == ()
    assert in_git(workspace, "zephyr") == []
    assert "Old: [forgotten]" in git(workspace, "show", ":knowledge/reference/notes.md")
    assert (workspace / "knowledge/reference/notes.md").read_text() == "# Staged\n\nNew\n"


async def test_history_that_others_share_is_refused_before_anything_changes(
    memory: Memory, workspace: Path, tmp_path: Path
) -> None:
    await filled(memory)
    git(workspace, "worktree", "add", "--quiet", str(tmp_path / "elsewhere"), "-b", "other")
    with pytest.raises(Refused, match="worktree"):
        await forget(memory, ForgetTarget(text=FACT), history=True)
    git(workspace, "worktree", "remove", "--force", str(tmp_path / "elsewhere"))
    (workspace / ".git/shallow").write_text("")
    with pytest.raises(Refused, match="shallow"):
        await forget(memory, ForgetTarget(text=FACT), history=True)
    (workspace / ".git/shallow").unlink()
    (workspace / ".git/objects/info/alternates").write_text("/nowhere\n")
    with pytest.raises(Refused, match="alternates"):
        await forget(memory, ForgetTarget(text=FACT), history=True)
    assert holding(workspace, "zephyr")
    assert unfinished(memory) == []


async def test_a_remote_is_named(memory: Memory, workspace: Path) -> None:
    await filled(memory)
    git(workspace, "remote", "add", "backup", "https://example.org/x.git")
    receipt = await plan_forget(memory, ForgetTarget(text=FACT))
    assert receipt.history.remotes == ("backup",)


async def test_a_title_that_cuts_the_fact_in_the_middle_goes_too(memory: Memory, workspace: Path) -> None:
    fact = "the emerald necklace of grandmother lies behind the third brick"
    await record_session(memory, said(f"You should know {fact} of the wall", "I see"))
    await commit_pending(memory)
    await forget(memory, ForgetTarget(text=fact), history=True)
    for word in ("emerald", "necklace", "grandmother"):
        assert holding(workspace, word) == named(workspace, word) == in_git(workspace, word) == []
