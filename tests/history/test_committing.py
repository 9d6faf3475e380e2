"""Changed files are committed at intervals; files that must not be committed are left out and reported."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.closed_sessions import PENDING_COMMITS, commit_pending
from mcp_server.conversations.observe import NewTurn, Observed, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.history import committing
from mcp_server.history.committing import commit_changes, commit_if_due
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.status.status import status
from mcp_server.storage.templates import BEGINNING
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.fake_llm import FakeLlm
from tests.gitting import attempt, git, subjects, write

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
TESTS = Caller(source="tests")
CORE = "knowledge/memory/MEMORY.md"
KEY = "ghp_" + "a1B2" * 9
OFF = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_GIT__AUTO_COMMIT": "false"}


async def said(memory: Memory, text: str, session: str = "s1") -> Observed:
    return await observe(memory, NewTurn("user", text, session), TESTS)


async def test_what_was_remembered_is_committed_with_what_it_says(memory: Memory, workspace: Path) -> None:
    await said(memory, "I moved")
    await remember(memory, NewFact("Ana moved to Basel", session="s1"), TESTS)

    swept = await commit_changes(memory)

    assert len(swept.commits) == 1
    path = (await memory.state.sessions())[0].path
    assert git(workspace, "log", "-1", "--format=%B") == (
        f"memory: MEMORY.md: Ana moved to Basel\n\n- {CORE} +1 -0\n  - Ana moved to Basel\n\nSession: {path}"
    )
    assert git(workspace, "log", "-1", "--format=%cI") == "2026-02-16T18:45:00+00:00"
    assert await memory.state.entries(committing.WRITTEN_IN) == {}
    assert (await commit_changes(memory)).commits == ()


async def test_knowledge_is_committed_every_half_hour_and_not_before(
    memory: Memory, workspace: Path, clock: Clock
) -> None:
    assert await commit_if_due(memory) is None
    write(workspace, "knowledge/people/ana.md", "# Ana\n")
    clock.forward(minutes=29)
    assert await commit_if_due(memory) is None

    clock.forward(minutes=1)
    swept = await commit_if_due(memory)

    assert swept is not None
    assert subjects(workspace)[0] == "memory: people/ana: new"
    assert await commit_if_due(memory) is None


async def test_a_clock_that_was_set_back_does_not_stop_the_cadence(memory: Memory, clock: Clock) -> None:
    await commit_changes(memory)
    clock.forward(days=-3)

    assert await commit_if_due(memory) is not None


async def test_each_kind_of_change_is_a_commit_of_its_own(memory: Memory, workspace: Path) -> None:
    write(workspace, "knowledge/identity/USER.md", "# User\n\nAna, a baker.\n")
    write(workspace, "knowledge/people/bo.md", "# Bo\n\n- plays the cello [src: raw/conversations/x.md#3]\n")
    write(workspace, "archive/journal/2025-01-01.md", "# old\n")
    write(workspace, "topics/email.md", "# Email\n\nSort it.\n")

    await commit_changes(memory)

    assert sorted(subjects(workspace, "-4")) == [
        "extract: people/bo: plays the cello",
        "identity: identity/USER: Ana, a baker.",
        "maintenance: archive/journal/2025-01-01.md: new",
        "memory: topics/email.md: Sort it.",
    ]
    assert "Session: raw/conversations/x.md" in git(workspace, "log", "-1", "--format=%B", "--grep=^extract")


async def test_a_secret_a_conflict_and_too_long_a_memory_are_left_out_and_named(
    memory: Memory, workspace: Path
) -> None:
    write(workspace, "knowledge/reference/keys.md", f"# Keys\n\nthe token is {KEY}\n")
    write(workspace, "topics/x.md", "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> other\n")
    write(workspace, CORE, "# Core\n" + "- x\n" * 220)
    write(workspace, "knowledge/people/ana.md", "# Ana\n")

    swept = await commit_changes(memory)

    assert set(swept.left_out) == {"knowledge/reference/keys.md", "topics/x.md", CORE}
    assert subjects(workspace)[0] == "memory: people/ana: new"
    assert KEY not in git(workspace, "log", "-p")
    problems = "\n".join((await status(memory, "git")).problems)
    assert "keys.md is not committed: line 3 holds a secret (github-token)" in problems
    assert "topics/x.md is not committed: line 2 begins an unresolved conflict" in problems
    assert f"{CORE} is not committed: it has 221 lines" in problems

    write(workspace, CORE, "# Core\n" + "- x\n" * 180)
    write(workspace, "knowledge/reference/keys.md", "# Keys\n\nthe token is in the safe\n")
    (workspace / "topics/x.md").unlink()
    swept = await commit_changes(memory)

    assert dict(swept.left_out) == {}
    assert "it has 181 lines" in swept.warned[CORE]
    assert (await status(memory, "git")).problems == ()


async def test_a_secret_that_slips_in_while_the_message_is_worded_stays_out(workspace: Path, clock: Clock) -> None:
    class Slow(FakeLlm):
        async def complete(self, prompt: str, **given: object) -> str:
            write(workspace, "knowledge/people/ana.md", f"# Ana\n\n{KEY}\n")
            return "memory: about Ana"

    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, llm=Slow()) as memory:
        write(workspace, "knowledge/people/ana.md", "# Ana\n\nlikes tea\n")
        swept = await commit_changes(memory)

    assert swept.commits == ()
    assert "secret" in swept.left_out["knowledge/people/ana.md"]
    assert KEY not in git(workspace, "log", "-p")


async def test_staged_work_waits_for_its_owner(memory: Memory, workspace: Path) -> None:
    write(workspace, "knowledge/people/ana.md", "# Ana\n")
    git(workspace, "add", "knowledge/people/ana.md")
    write(workspace, "knowledge/people/ana.md", "# Ana\n\nmore\n")
    write(workspace, "notes.txt", "mine\n")
    before = git(workspace, "status", "--porcelain", "--untracked-files=all")

    swept = await commit_changes(memory)

    assert swept.waiting == ("knowledge/people/ana.md",)
    assert git(workspace, "status", "--porcelain", "--untracked-files=all") == before
    assert (await status(memory, "git")).views["git"]["waiting_for_your_commit"] == ["knowledge/people/ana.md"]


async def test_a_conversation_that_goes_on_is_not_committed_and_one_that_is_over_at_once(
    memory: Memory, workspace: Path
) -> None:
    await said(memory, "hello")
    assert (await commit_changes(memory)).commits == ()

    ended = await end_session(memory, "s1")

    assert subjects(workspace)[0] == "conversation: hello"
    assert git(workspace, "log", "-1", "--format=%b") == f"Session: {ended.path}"


@pytest.mark.parametrize(("waiting", "commits"), [(10, 10), (11, 1)])
async def test_conversations_that_wait_get_a_commit_each_and_many_of_them_one(
    workspace: Path, clock: Clock, waiting: int, commits: int
) -> None:
    async with open_memory(workspace, OFF, clock=clock) as memory:
        for number in range(waiting):
            await said(memory, "hello", f"s{number}")
            await end_session(memory, f"s{number}")
        assert subjects(workspace) == [BEGINNING]

    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock) as memory:
        assert (await commit_pending(memory))[1] == ""
        assert await memory.state.entries(PENDING_COMMITS) == {}

    said_so = ["conversation: 11 that waited"] if commits == 1 else ["conversation: hello"] * 10
    assert subjects(workspace) == [*said_so, BEGINNING]
    held = git(workspace, "ls-tree", "-r", "--name-only", "HEAD").split("\n")
    for folder in ("raw/conversations/", "checkpoints/"):
        assert sum(path.startswith(folder) for path in held) == waiting
    assert git(workspace, "status", "--porcelain") == ""


async def test_a_sealed_conversation_that_was_changed_or_deleted_is_named_and_stays_in_git(
    memory: Memory, workspace: Path
) -> None:
    await said(memory, "hello")
    path = (await end_session(memory, "s1")).path
    (workspace / path).chmod(0o600)
    text = (workspace / path).read_text()
    write(workspace, path, text.replace("hello", "goodbye"))

    changed = await commit_changes(memory)
    (workspace / path).unlink()
    deleted = await commit_changes(memory)

    assert "changed" in changed.left_out[path]
    assert "deleted" in deleted.left_out[path]
    assert git(workspace, "show", f"HEAD:{path}") == text.rstrip("\n")


async def test_an_llm_words_the_message_and_without_one_rules_do(workspace: Path, clock: Clock) -> None:
    llm = FakeLlm(["memory: Ana moved to Basel", LlmUnavailable("no money"), "what?"])
    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, llm=llm) as memory:
        for fact in ("Ana moved to Basel", "The oven needs a door", "Marko builds boats"):
            await remember(memory, NewFact(fact), TESTS)
            await commit_changes(memory)

    assert subjects(workspace, "-3") == [
        "memory: MEMORY.md: Marko builds boats",
        "memory: MEMORY.md: The oven needs a door",
        "memory: Ana moved to Basel",
    ]
    assert [purpose for purpose, _ in llm.asked] == ["commit message"] * 3
    assert "+- 2026-02-16: Ana moved to Basel" in llm.asked[0][1]


async def test_in_the_middle_of_a_merge_and_off_any_branch_it_waits_and_says_so(
    memory: Memory, workspace: Path
) -> None:
    write(workspace, CORE, "# Core\n\n- one\n")
    await commit_changes(memory)
    git(workspace, "checkout", "--quiet", "-b", "other")
    write(workspace, CORE, "# Core\n\n- two\n")
    git(workspace, "commit", "--quiet", "--all", "--message", "memory: two")
    git(workspace, "checkout", "--quiet", "main")
    write(workspace, CORE, "# Core\n\n- three\n")
    await commit_changes(memory)
    assert attempt(workspace, "merge", "other").returncode == 1
    write(workspace, "knowledge/people/ana.md", "# Ana\n")
    await said(memory, "hello")
    await end_session(memory, "s1")

    merging = await commit_changes(memory)

    assert "in the middle of a merge" in merging.note
    assert any("in the middle of a merge" in problem for problem in (await status(memory, "git")).problems)
    git(workspace, "merge", "--abort")
    git(workspace, "checkout", "--quiet", "--detach")
    assert "on no branch" in (await commit_changes(memory)).note
    git(workspace, "checkout", "--quiet", "main")
    assert len((await commit_changes(memory)).commits) == 2
    assert git(workspace, "status", "--porcelain") == ""


async def test_a_repository_that_was_deleted_begins_anew(memory: Memory, workspace: Path) -> None:
    write(workspace, "knowledge/people/ana.md", "# Ana\n")
    shutil.rmtree(workspace / ".git")

    await remember(memory, NewFact("Ana moved"), TESTS)
    await end_session(memory, (await said(memory, "hello")).session)
    await commit_changes(memory)

    assert "knowledge/people/ana.md" in git(workspace, "ls-files")
    assert git(workspace, "status", "--porcelain") == ""


async def test_with_auto_commit_off_nothing_is_committed(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, OFF) as memory:
        write(workspace, "knowledge/people/ana.md", "# Ana\n")

        assert (await commit_changes(memory)).note == "git.auto_commit is off"
        assert (await status(memory, "git")).problems == ()
    assert len(subjects(workspace)) == 1


async def test_a_file_that_git_cannot_take_in_does_not_stop_the_others(memory: Memory, workspace: Path) -> None:
    git(workspace, "config", "filter.lfs.clean", "no-such-command")
    git(workspace, "config", "filter.lfs.required", "true")
    write(workspace, "attachments/a.png", "picture")
    for number in range(5):
        write(workspace, f"knowledge/people/p{number}.md", "# P\n")

    swept = await commit_changes(memory)

    assert "git could not add it" in swept.left_out["attachments/a.png"]
    assert len(git(workspace, "ls-files", "knowledge/people").split("\n")) == 6


async def test_no_message_goes_out_without_the_fields_of_the_report(memory: Memory, workspace: Path) -> None:
    write(workspace, CORE, "- x\n" * 300)
    swept = await commit_changes(memory)

    assert dataclasses.asdict(await committing.report(memory)) == dataclasses.asdict(swept)


async def test_the_setting_takes_our_hooks_away_and_brings_them_back(workspace: Path) -> None:
    hook = workspace / ".git" / "hooks" / "pre-commit"
    async with open_memory(workspace, KEYWORDS_ONLY):
        assert hook.exists()
    async with open_memory(workspace, {**KEYWORDS_ONLY, "CONTEXT_MANAGER_GIT__HOOKS": "false"}) as memory:
        assert not hook.exists()
        assert "switched off" in (await status(memory, "git")).views["git"]["hooks"]
    async with open_memory(workspace, KEYWORDS_ONLY):
        assert hook.exists()
