"""Changed files are committed at intervals; files that must not be committed are left out and reported."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations import closed_sessions
from mcp_server.conversations.closed_sessions import PENDING_COMMITS, commit_pending
from mcp_server.conversations.observe import NewTurn, Observed, observe
from mcp_server.conversations.read import read
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Conflict, Invalid, Refused, Unavailable
from mcp_server.history import committing
from mcp_server.history.commit_rules import is_sealed, refusal, warning
from mcp_server.history.committing import commit_changes, commit_if_due, tag, tag_days, tags
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.status.status import status
from mcp_server.storage.files import BEGINNING
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.fake_llm import FakeLlm
from tests.gitting import git, subjects, write
from tests.history.two_copies import CORE, KEY, TESTS, learned

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

ANA = "knowledge/people/ana.md"
TRANSCRIPT = "raw/conversations/2026/02/16/1845-a-b.md"
SEALED = "---\nsession_id: a\nended: 2026-02-16T19:00:00Z\n---\n# T\n"
OPEN = SEALED.replace("2026-02-16T19:00:00Z", "null")
MARKED = "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> other\n"
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
    write(workspace, ANA, "# Ana\n")
    clock.forward(minutes=29)
    assert await commit_if_due(memory) is None

    clock.forward(minutes=1)
    swept = await commit_if_due(memory)

    assert swept is not None
    assert subjects(workspace)[0] == "memory: people/ana: new"
    assert await commit_if_due(memory) is None
    clock.forward(days=-3)
    assert await commit_if_due(memory) is not None, "the clock was set back"


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
    write(workspace, "topics/x.md", MARKED)
    write(workspace, CORE, "# Core\n" + "- x\n" * 220)
    write(workspace, ANA, "# Ana\n")

    swept = await commit_changes(memory)

    assert set(swept.left_out) == {"knowledge/reference/keys.md", "topics/x.md", CORE}
    assert dataclasses.asdict(await committing.report(memory)) == dataclasses.asdict(swept)
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
            write(workspace, ANA, f"# Ana\n\n{KEY}\n")
            return "memory: about Ana"

    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock, llm=Slow()) as memory:
        write(workspace, ANA, "# Ana\n\nlikes tea\n")
        swept = await commit_changes(memory)

    assert swept.commits == ()
    assert "secret" in swept.left_out[ANA]
    assert KEY not in git(workspace, "log", "-p")


async def test_staged_work_waits_for_its_owner(memory: Memory, workspace: Path) -> None:
    write(workspace, ANA, "# Ana\n")
    git(workspace, "add", ANA)
    write(workspace, ANA, "# Ana\n\nmore\n")
    write(workspace, "notes.txt", "mine\n")
    before = git(workspace, "status", "--porcelain", "--untracked-files=all")

    swept = await commit_changes(memory)

    assert swept.waiting == (ANA,)
    assert git(workspace, "status", "--porcelain", "--untracked-files=all") == before
    assert (await status(memory, "git")).views["git"]["waiting_for_your_commit"] == [ANA]


async def test_a_conversation_that_goes_on_is_not_committed_and_one_that_is_over_at_once(
    memory: Memory, workspace: Path
) -> None:
    await said(memory, "hello")
    assert (await commit_changes(memory)).commits == ()

    ended = await end_session(memory, "s1")

    assert subjects(workspace)[0] == "conversation: hello"
    assert git(workspace, "log", "-1", "--format=%b") == f"Session: {ended.path}"


@pytest.mark.parametrize(("waiting", "commits"), [(2, 2), (3, 1)])
async def test_conversations_that_wait_get_a_commit_each_and_many_of_them_one(
    workspace: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, waiting: int, commits: int
) -> None:
    monkeypatch.setattr(closed_sessions, "MOST_ALONE", 2)
    async with open_memory(workspace, OFF, clock=clock) as memory:
        for number in range(waiting):
            await said(memory, "hello", f"s{number}")
            await end_session(memory, f"s{number}")
        assert subjects(workspace) == [BEGINNING]

    async with open_memory(workspace, KEYWORDS_ONLY, clock=clock) as memory:
        assert (await commit_pending(memory))[1] == ""
        assert await memory.state.entries(PENDING_COMMITS) == {}

    said_so = ["conversation: 3 that waited"] if commits == 1 else ["conversation: hello"] * 2
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


async def test_a_repository_that_was_deleted_begins_anew(memory: Memory, workspace: Path) -> None:
    write(workspace, ANA, "# Ana\n")
    shutil.rmtree(workspace / ".git")

    await remember(memory, NewFact("Ana moved"), TESTS)
    await end_session(memory, (await said(memory, "hello")).session)
    await commit_changes(memory)

    assert ANA in git(workspace, "ls-files")
    assert git(workspace, "status", "--porcelain") == ""


async def test_with_auto_commit_off_nothing_is_committed(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, OFF) as memory:
        write(workspace, ANA, "# Ana\n")

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


async def test_the_setting_takes_our_hooks_away_and_brings_them_back(workspace: Path) -> None:
    hook = workspace / ".git" / "hooks" / "pre-commit"
    async with open_memory(workspace, KEYWORDS_ONLY):
        assert hook.exists()
    async with open_memory(workspace, {**KEYWORDS_ONLY, "CONTEXT_MANAGER_GIT__HOOKS": "false"}) as memory:
        assert not hook.exists()
        assert "switched off" in (await status(memory, "git")).views["git"]["hooks"]
    async with open_memory(workspace, KEYWORDS_ONLY):
        assert hook.exists()


async def test_every_day_and_week_that_is_over_has_a_tag_if_something_changed(memory: Memory, clock: Clock) -> None:
    await learned(memory, ANA, "monday morning")  # 2026-02-16
    clock.forward(hours=1)
    monday = await learned(memory, ANA, "monday evening")
    assert await tag_days(memory) == []
    clock.forward(days=6)
    sunday = await learned(memory, ANA, "sunday")

    assert await tag_days(memory) == ["memory/daily/2026-02-16"]
    assert await tag_days(memory) == []
    clock.forward(days=1)
    assert await tag_days(memory) == ["memory/daily/2026-02-22", "memory/weekly/2026-W08"]

    assert {one.name: one.commit for one in await tags(memory)} == {
        "memory/daily/2026-02-16": monday,
        "memory/daily/2026-02-22": sunday,
        "memory/weekly/2026-W08": sunday,
    }


async def test_days_that_were_missed_are_caught_up_and_lost_state_tags_nothing_twice(
    memory: Memory, clock: Clock
) -> None:
    for number in range(3):
        await learned(memory, ANA, str(number))
        clock.forward(days=1)
    clock.forward(days=20)

    made = await tag_days(memory)
    await memory.state.remove("git", "tagged")

    assert [name for name in made if "daily" in name] == [f"memory/daily/2026-02-{day}" for day in (16, 17, 18)]
    assert await tag_days(memory) == []


async def test_days_are_those_of_the_user(workspace: Path, clock: Clock) -> None:
    zone = {"CONTEXT_MANAGER_WORKSPACE__TIMEZONE": "Pacific/Auckland"}
    async with open_memory(workspace, {**KEYWORDS_ONLY, **zone}, clock=clock) as memory:
        await learned(memory, ANA, "x")  # 18:45 UTC is the next morning there
        clock.forward(days=1)
        off = {"CONTEXT_MANAGER_GIT__AUTO_TAG_DAILY": "false"}
        async with open_memory(workspace, {**KEYWORDS_ONLY, **off}, clock=clock) as without:
            assert await tag_days(without) == []
        assert "memory/daily/2026-02-17" in await tag_days(memory)


async def test_a_milestone_holds_also_what_was_not_committed_yet(memory: Memory, workspace: Path) -> None:
    write(workspace, ANA, "# Ana\n\n- lives in Basel\n")

    made = await tag(memory, "milestone", "first year", "a year with Ana")
    write(workspace, ANA, "# Ana\n")
    await commit_changes(memory)

    assert (made.name, made.message) == ("memory/milestone/first-year", "a year with Ana")
    assert git(workspace, "cat-file", "-t", made.name) == "tag"
    assert "Basel" in (await read(memory, ANA, at=made.name)).text
    with pytest.raises(Conflict, match="names another state"):
        await tag(memory, "milestone", "first year")
    before = await tag(memory, "before", "move")
    assert await tag(memory, "before", "move") == before
    for name in ("", "-x", "a..b", "a b~c", "../x", "x.lock"):
        with pytest.raises(Invalid):
            await tag(memory, "milestone", name)
    git(workspace, "checkout", "--quiet", "--detach")
    with pytest.raises(Unavailable, match="on no branch"):
        await tag(memory, "before", "other")


async def test_a_secret_becomes_no_tag(memory: Memory) -> None:
    await learned(memory, ANA, "something")
    for name, note in ((KEY, ""), ("release", f"with {KEY}")):
        with pytest.raises(Refused, match="secret"):
            await tag(memory, "milestone", name, note)
    assert "ghp_" not in git(memory.disk.root, "for-each-ref", "--format=%(refname) %(contents)")


async def test_commits_of_impossible_times_are_listed_and_named(memory: Memory) -> None:
    await learned(memory, ANA, "something")
    root = memory.disk.root
    tree = git(root, "rev-parse", "HEAD^{tree}")
    for number, at in enumerate(("999999999999999", "0")):
        who = f"T <t@t> {at} +1400"
        head = f"tree {tree}\nparent {git(root, 'rev-parse', 'HEAD')}\nauthor {who}\ncommitter {who}\n"
        place = root / ".local" / "commit"
        place.write_text(f"{head}\n\x01odd\x02 {number}\n")
        git(root, "update-ref", "HEAD", git(root, "hash-object", "-t", "commit", "-w", str(place)))
    found = await tag(memory, "milestone", "odd")
    assert found.commit == git(root, "rev-parse", "HEAD")
    assert [one.name for one in await tags(memory)] == ["memory/milestone/odd"]
    assert memory.git.past.commit("HEAD").subject == "\x01odd\x02 1"
    assert memory.git.past.commit("HEAD~1").at.year > 9000
    assert set(memory.git.past.commits([git(root, "rev-parse", "HEAD"), git(root, "rev-parse", "HEAD~1")]))


def refused(path: str, after: str | None, before: str | None = None, **rules: bool) -> str:
    return refusal(path, after, before, **rules) or ""


def test_core_memory_has_a_cap() -> None:
    texts = {lines: "- x\n" * lines for lines in (180, 181, 220, 221)}
    assert [lines for lines, text in texts.items() if warning(CORE, text)] == [181, 220, 221]
    assert [lines for lines, text in texts.items() if refused(CORE, text)] == [221]
    assert refused(CORE, texts[221].removesuffix("\n")), "a last line without an end counts"
    assert not refused("knowledge/people/a.md", texts[221])


def test_a_new_secret_stays_out_and_its_line_is_named() -> None:
    assert "line 2 holds a secret (github-token)" in refused("topics/a.md", f"a\n{KEY}\n", "a\n")
    assert not refused("topics/a.md", f"a\n{KEY}\nb\n", f"{KEY}\n")  # its owner has put it there
    assert not refused("topics/a.md", f"a\n{KEY}\n", None, redacted=True)


def test_an_unresolved_conflict_stays_out_but_a_conversation_may_quote_one() -> None:
    assert "line 2 begins an unresolved conflict" in refused(CORE, MARKED)
    assert not refused(TRANSCRIPT, OPEN + MARKED)
    assert not refused(CORE, "<<<<<<< HEAD\nno middle\n>>>>>>> x\n")
    assert not refused(CORE, MARKED.replace("\n", "\n  "))


def test_a_conversation_that_is_over_changes_only_to_be_forgotten() -> None:
    assert "changed" in refused(TRANSCRIPT, SEALED + "x", SEALED)
    assert "deleted" in refused(TRANSCRIPT, None, SEALED)
    assert not refused(TRANSCRIPT, SEALED + "x", SEALED, forgetting=True)
    assert not refused(TRANSCRIPT, SEALED, OPEN)
    assert not refused(TRANSCRIPT, SEALED, None)
    assert not refused(CORE, None, "x")


def test_only_a_transcript_with_an_end_is_sealed() -> None:
    assert is_sealed(TRANSCRIPT, SEALED)
    for path, text in ((TRANSCRIPT, OPEN), (TRANSCRIPT, "ended: 1"), (TRANSCRIPT, None), ("knowledge/a.md", SEALED)):
        assert not is_sealed(path, text)
    assert not is_sealed(TRANSCRIPT, OPEN + "\nended: 2026\n")


def test_a_name_that_is_a_secret_is_not_committed() -> None:
    path = f"knowledge/reference/{KEY}.md"
    assert "name" in (refusal(path, "x\n", None) or "")
    assert refusal(path, "y\n", "x\n") is None, "git has it already"
