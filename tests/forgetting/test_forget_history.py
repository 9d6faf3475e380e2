"""What git's history holds of a fact: told, or rewritten."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mcp_server.checkpoints import checkpoint
from mcp_server.context import briefs
from mcp_server.conversations.closed_sessions import commit_pending
from mcp_server.conversations.imports import record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Refused
from mcp_server.forgetting.cleaning import Place, cleaned
from mcp_server.forgetting.forget import forget, plan_forget, unfinished_sentences
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.extract import extract_pending
from mcp_server.memory import Memory
from mcp_server.status.doctor import examine_secrets
from mcp_server.text.destinations import GENERAL_PAGE
from mcp_server.text.forgotten import Forgotten
from tests.forgetting.vault import CALLER, FACT, PIECES, said
from tests.gitting import git
from tests.holding import holding, in_git, named
from tests.text.secret_samples import BY_CONTEXT, BY_FORM

pytestmark = [pytest.mark.anyio, pytest.mark.folder_only]

LONG = (
    "We take the blue room for the workshop in May. It has a projector and room for twelve people. "
    "Sam Whitfield does the catering from Bristol, and he wants to be paid in advance, half of it in April."
)


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_checkpoints_and_briefs_quote_of_a_turn_goes_too(
    memory: Memory, workspace: Path, at_once: bool
) -> None:
    await record_session(memory, said("Which room do we take?", "The blue or the red one?", LONG, "Noted."))
    await extract_pending(memory)
    made = await checkpoint.make(memory, "old", "asked")
    memory.git.commit_files([f"checkpoints/old/{made.id}.md"], "checkpoint: asked for")
    await commit_pending(memory)
    quoted = f"  - {LONG[:130]}…"
    memory.git.commit_files([GENERAL_PAGE], f"extract: the general page\n\n- {GENERAL_PAGE} +1 -0\n{quoted}\n")
    await briefs.refresh(memory)
    assert "Whitfield" in memory.files.read_text(".local/brief/global.md")
    assert in_git(workspace, "whitfield")
    if not at_once:
        await forget(memory, ForgetTarget(turn="old#3"))
    receipt = await forget(memory, ForgetTarget(turn="old#3"), history=True)

    assert receipt.left == ()
    assert in_git(workspace, "whitfield") == []
    assert holding(workspace, "whitfield") == []


@pytest.mark.usefixtures("full")
async def test_with_history_no_object_of_git_holds_it(memory: Memory, workspace: Path) -> None:
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


@pytest.mark.usefixtures("full")
async def test_a_subject_with_other_line_ends_in_it_keeps_its_place_in_the_reflog(
    memory: Memory, workspace: Path
) -> None:
    git(workspace, "commit", "--quiet", "--allow-empty", "-m", "a\u2028main main odd\x0cone")
    git(workspace, "branch", "odd\u2028one")
    before = git(workspace, "log", "-g", "--format=%gs").count("commit")
    assert (await forget(memory, ForgetTarget(text=FACT), history=True)).left == ()
    assert git(workspace, "log", "-g", "--format=%gs").count("commit") == before + 1
    assert git(workspace, "fsck", "--strict") == ""


@pytest.mark.usefixtures("full")
async def test_the_backup_still_holds_it_and_can_be_read(memory: Memory, workspace: Path, tmp_path: Path) -> None:
    receipt = await forget(memory, ForgetTarget(text=FACT), history=True)
    assert receipt.backup is not None
    bundle = Path(receipt.backup)
    assert bundle.parent == workspace.parent
    assert bundle.stat().st_mode & 0o777 == 0o600
    git(tmp_path, "clone", "--quiet", str(bundle), "restored")
    assert in_git(tmp_path / "restored", "zephyr")


@pytest.mark.usefixtures("full")
async def test_old_transcripts_in_history_can_still_be_read(memory: Memory, workspace: Path) -> None:
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


@pytest.mark.usefixtures("full")
async def test_a_merge_in_progress_is_finished_first(memory: Memory, workspace: Path) -> None:
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


@pytest.mark.usefixtures("full")
async def test_staged_changes_and_a_detached_head_are_rewritten_too(memory: Memory, workspace: Path) -> None:
    (workspace / "knowledge/reference/notes.md").write_text(f"# Staged\n\nOld: {FACT}\n")
    git(workspace, "add", "knowledge/reference/notes.md")
    (workspace / "knowledge/reference/notes.md").write_text("# Staged\n\nNew\n")
    git(workspace, "checkout", "--quiet", "--detach")
    receipt = await forget(memory, ForgetTarget(text=FACT), history=True)
    assert receipt.left == ()
    assert in_git(workspace, "zephyr") == []
    assert "Old: [forgotten]" in git(workspace, "show", ":knowledge/reference/notes.md")
    assert (workspace / "knowledge/reference/notes.md").read_text() == "# Staged\n\nNew\n"


@pytest.mark.usefixtures("full")
async def test_history_that_others_share_is_refused_before_anything_changes(
    memory: Memory, workspace: Path, tmp_path: Path
) -> None:
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
    assert unfinished_sentences(memory) == []


@pytest.mark.usefixtures("full")
async def test_a_remote_is_named(memory: Memory, workspace: Path) -> None:
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


def test_the_places_in_a_long_file_are_told_soon() -> None:
    empty = Forgotten("fgt_1", datetime(2026, 2, 16, tzinfo=UTC), b"salt")
    request = replace(empty, windows=frozenset({empty.window("the code is 4711")}))
    lines = [line for number in range(20_000) for line in (f"line {number}", "")]
    lines[30_000] = lines[10] = "- The code is 4711."
    lines[39_000] = "Ana says: the code is 4711."

    begun = time.process_time()
    found = cleaned("knowledge/reference/long.md", "\n".join(lines).encode(), request)

    assert found.places == (Place(11, "removed"), Place(30_001, "removed"), Place(39_001, "marked"))
    assert time.process_time() - begun < 10


RNG = random.Random(7)
KEY = BY_FORM["notion"](RNG)
COMMAND, PASSWORD = BY_CONTEXT["mysql-p"](RNG)


async def stored_before(memory: Memory, workspace: Path) -> str:
    """Stores a key and a password as an older version did: in a transcript, in knowledge, in a log and in git."""
    await observe(memory, NewTurn("user", "Our key is KEYKEY, and I ran COMMAND.", session="old"), CALLER)
    (path,) = memory.transcripts.find("old")
    file = workspace / path
    file.chmod(0o644)
    file.write_text(file.read_text("utf-8").replace("KEYKEY", KEY).replace("COMMAND", COMMAND), "utf-8")
    memory.files.write_atomic("knowledge/reference/setup.md", f"# Setup\n\n- NOTION={KEY}\n- garden\n")
    memory.files.write_atomic(".local/logs/context/injection.jsonl", f'{{"text": "{KEY}"}}\n')
    git(workspace, "add", "--force", path, "knowledge")
    git(workspace, "commit", "--quiet", "--no-verify", "-m", "before")
    return path


async def test_doctor_names_the_places_of_stored_secrets_and_not_the_secrets(memory: Memory, workspace: Path) -> None:
    assert (await examine_secrets(memory)).ok
    path = await stored_before(memory, workspace)

    check = await examine_secrets(memory)

    assert not check.ok
    for place in (
        f"{path}:",
        "knowledge/reference/setup.md:3 (",
        ".local/logs/context/injection.jsonl:1 (",
        "(password)",
    ):
        assert place in check.detail
    assert KEY not in check.detail
    assert PASSWORD not in check.detail
    assert "forget --secrets" in check.advice


async def test_the_tokens_of_our_own_servers_are_not_reported_as_stored_secrets(memory: Memory) -> None:
    memory.files.write_atomic(".local/http-token", f"{KEY}\n")
    memory.files.write_atomic(".local/webhook-token", f"{KEY}\n")
    assert (await examine_secrets(memory)).ok


async def test_forgetting_secrets_removes_them_from_files_and_git(memory: Memory, workspace: Path) -> None:
    path = await stored_before(memory, workspace)
    planned = await plan_forget(memory, ForgetTarget(secrets=True))
    assert {copy.path for copy in planned.copies} >= {path, "knowledge/reference/setup.md"}
    assert holding(workspace, KEY)

    receipt = await forget(memory, ForgetTarget(secrets=True), history=True)

    assert receipt.left == ()
    for secret in (KEY, PASSWORD):
        assert holding(workspace, secret) == []
        assert in_git(workspace, secret) == []
    assert "garden" in memory.files.read_text("knowledge/reference/setup.md")
    assert "mysql" in "".join(memory.files.read_text(found) for found in memory.transcripts.find("old"))
    assert (await examine_secrets(memory)).ok


async def test_a_secret_only_in_the_history_is_found(memory: Memory, workspace: Path) -> None:
    memory.files.write_atomic("knowledge/reference/setup.md", f"# Setup\n\n{KEY}\n")
    git(workspace, "add", "--force", "knowledge")
    git(workspace, "commit", "--quiet", "--no-verify", "-m", "before")
    memory.files.write_atomic("knowledge/reference/setup.md", "# Setup\n")

    check = await examine_secrets(memory)
    assert "git object" in check.detail

    await forget(memory, ForgetTarget(secrets=True), history=True)
    assert in_git(workspace, KEY) == []
