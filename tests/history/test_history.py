"""When something was learned, where it came from, what changed; and a commit taken back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.read import read
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Invalid, NotFound, Refused
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.history import history
from mcp_server.history.committing import commit_changes, tag
from mcp_server.history.history import revert
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.recovery.recover import recover
from mcp_server.recovery.recoverable import recoverable
from tests.conftest import Clock
from tests.gitting import git, subjects, write

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
TESTS = Caller(source="tests")
USER = Caller(source="cli")
CORE = "knowledge/memory/MEMORY.md"
ANA = "knowledge/people/ana.md"


async def learned(memory: Memory, path: str, text: str) -> str:
    """Writes a file as an editor does, and commits it."""
    write(memory.disk.root, path, text)
    (commit,) = (await commit_changes(memory)).commits
    return commit


async def test_when_a_thing_was_learned_changed_and_forgotten(memory: Memory, clock: Clock) -> None:
    first = await learned(memory, ANA, "# Ana\n\n- lives in Basel\n")
    clock.forward(days=1)
    await learned(memory, ANA, "# Ana\n\n- lives in Basel\n- works in BASEL\n")
    clock.forward(days=1)
    await learned(memory, ANA, "# Ana\n\n- lives in Bern\n")
    write(memory.disk.root, "knowledge/people/bo.md", "- Bo moved to basel\n")

    found = await history.when(memory, "Basel")

    assert [(one.what, one.path, one.at.day if one.at else None) for one in found] == [
        ("came into", ANA, 16),
        ("stands once more in", ANA, 17),
        ("went from", ANA, 18),
        ("came into", "knowledge/people/bo.md", None),
    ]
    assert found[0].commit == first
    assert found[0].subject == "memory: people/ana: lives in Basel"
    assert await history.when(memory, "Paris") == []
    with pytest.raises(Invalid, match="some words"):
        await history.when(memory, "  ")


async def test_where_a_thing_comes_from_names_commit_and_conversation(memory: Memory, clock: Clock) -> None:
    await observe(memory, NewTurn("user", "Ana moved to Basel", "s1"), TESTS)
    await remember(memory, NewFact("Ana moved to Basel", session="s1"), TESTS)
    await commit_changes(memory)
    path = (await end_session(memory, "s1")).path
    write(memory.disk.root, "knowledge/people/bo.md", "# Bo\n\n- plays [src: raw/x.md#7]\n")

    (fact,) = await history.where(memory, "moved  to basel")

    assert (fact.path, fact.text, fact.sources) == (CORE, "- 2026-02-16: Ana moved to Basel", (path,))
    assert fact.subject == "memory: MEMORY.md: Ana moved to Basel"
    await commit_changes(memory)
    (bo,) = await history.where(memory, "knowledge/people/bo.md:3")
    assert bo.sources == ("raw/x.md#7",)
    with pytest.raises(NotFound, match="search"):
        await history.where(memory, "nobody said this")


async def test_of_a_commit_with_many_conversations_each_line_names_only_its_own(memory: Memory) -> None:
    write(
        memory.disk.root,
        "knowledge/people/bo.md",
        "# Bo\n\n- plays chess [src: raw/x.md#7]\n- runs [src: raw/y.md#2]\n",
    )
    await commit_changes(memory)

    (when,) = await history.when(memory, "plays chess")
    (where,) = await history.where(memory, "plays chess")

    assert when.sources == where.sources == ("raw/x.md#7",)
    assert "raw/y.md" not in history.as_text([when]) + history.as_text([where])


async def test_a_line_that_is_not_committed_yet_says_so(memory: Memory) -> None:
    await learned(memory, ANA, "# Ana\n\n- lives in Basel\n")
    write(memory.disk.root, ANA, "# Ana\n\n- lives in Basel\n- likes tea\n")

    found = await history.blame(memory, ANA)

    assert [(one.line, one.subject) for one in found][2:] == [
        (3, "memory: people/ana: lives in Basel"),
        (4, "not committed yet"),
    ]
    assert "not committed yet" in history.as_text(found)
    with pytest.raises(Invalid, match="lines 1 to 4"):
        await history.blame(memory, ANA, 9)
    with pytest.raises(NotFound):
        await history.blame(memory, "knowledge/people/nobody.md")


async def test_what_changed_between_days_and_today_committed_or_not(memory: Memory, clock: Clock) -> None:
    clock.forward(days=1)
    await learned(memory, ANA, "# Ana\n\n- lives in Basel\n")
    clock.forward(days=1)
    await learned(memory, ANA, "# Ana\n\n- lives in Bern\n")
    write(memory.disk.root, "knowledge/people/bo.md", "# Bo\n")

    today = await history.diff(memory, "today")
    both = await history.diff(memory, "2026-02-17", "2026-02-17")
    week = await history.diff(memory, "1 week ago")

    assert today.files == ((ANA, 1, 1), ("knowledge/people/bo.md", 1, 0))
    assert "-- lives in Basel" in today.diff
    assert both.files == ((ANA, 3, 0),)
    assert [path for path, _, _ in week.files] == [ANA, "knowledge/people/bo.md"]  # not what every memory begins with
    assert (await history.diff(memory, "today", path="knowledge/people/bo.md")).files == (
        ("knowledge/people/bo.md", 1, 0),
    )
    assert git(memory.disk.root, "status", "--porcelain") == "?? knowledge/people/bo.md"
    with pytest.raises(NotFound, match="YYYY-MM-DD"):
        await history.diff(memory, "soon")


async def test_a_day_ends_where_the_user_lives(memory: Memory, clock: Clock, workspace: Path) -> None:
    import dataclasses

    zurich = dataclasses.replace(memory, timezone="Pacific/Auckland")
    await learned(memory, ANA, "# Ana\n")  # 18:45 UTC on the 16th is the 17th in Auckland

    assert (await history.diff(zurich, "2026-02-17")).files == ((ANA, 1, 0),)
    assert (await history.diff(memory, "2026-02-17")).files == ()


async def test_a_commit_is_shown_with_its_message(memory: Memory) -> None:
    commit = await learned(memory, ANA, "# Ana\n\n- lives in Basel\n")

    shown = await history.show(memory, commit[:8])

    assert shown.about.startswith(f"{commit[:10]}, 2026-02-16 18:45 UTC, ")
    assert "memory: people/ana: lives in Basel" in shown.markdown
    assert "\n:" not in shown.markdown
    assert "+- lives in Basel" in shown.markdown


async def test_a_file_is_read_as_it_was_at_a_tag_a_day_and_a_commit(memory: Memory, clock: Clock) -> None:
    commit = await learned(memory, ANA, "# Ana\n\n- lives in Basel\n")
    await tag(memory, "milestone", "v 1")
    clock.forward(days=1)
    await learned(memory, ANA, "# Ana\n\n- lives in Bern\n")

    for at in (commit, "memory/milestone/v-1", "2026-02-16", "yesterday", "1 day ago", "2026-02-16 20:00"):
        assert "Basel" in (await read(memory, ANA, at=at)).text
    assert "Bern" in (await read(memory, ANA, at="today")).text


async def test_what_was_forgotten_is_not_shown_by_history(memory: Memory) -> None:
    commit = await learned(memory, ANA, "# Ana\n\n- her code is zebra-4711\n- likes tea\n")
    await forget(memory, ForgetTarget(text="zebra-4711"))

    assert "zebra" not in (await history.show(memory, commit)).markdown
    assert "zebra" not in (await history.diff(memory, "today", commit)).markdown
    assert "zebra" not in history.as_text(await history.when(memory, "her code"))
    assert "zebra" not in (await read(memory, ANA, at=commit)).text


async def test_a_bad_change_is_taken_back_and_what_came_after_stays(memory: Memory, workspace: Path) -> None:
    await learned(memory, ANA, "# Ana\n\n- lives in Basel\n")
    bad = await learned(memory, ANA, "# Ana\n\n- lives in Basel\n- hates tea\n")
    write(workspace, "knowledge/people/bo.md", "# Bo\n")
    write(workspace, ANA, "# Ana\n\n- lives in Basel\n- hates tea\n- plays chess\n")

    shown = await revert(memory, bad, TESTS)
    assert shown.commit is None
    assert "-- hates tea" in shown.diff
    assert "hates tea" in (workspace / ANA).read_text()

    done = await revert(memory, bad, TESTS, apply=True)

    assert (workspace / ANA).read_text() == "# Ana\n\n- lives in Basel\n- plays chess\n"
    assert subjects(workspace)[0] == 'maintenance: revert "memory: people/ana: hates tea"'
    assert git(workspace, "status", "--porcelain") == ""
    assert done.commit is not None
    await revert(memory, done.commit, TESTS, apply=True)
    assert (workspace / ANA).read_text() == "# Ana\n\n- lives in Basel\n- hates tea\n- plays chess\n"
    assert (await revert(memory, done.commit, TESTS)).paths == ()


async def test_a_new_file_is_taken_back_and_comes_back(memory: Memory, workspace: Path) -> None:
    commit = await learned(memory, ANA, "# Ana\n")

    done = await revert(memory, commit, TESTS, apply=True)
    assert not (workspace / ANA).exists()
    assert done.commit is not None
    await revert(memory, done.commit, TESTS, apply=True)

    assert (workspace / ANA).read_text() == "# Ana\n"


async def test_a_revert_refuses_what_it_must_not_do(memory: Memory, workspace: Path) -> None:
    await learned(memory, ANA, "# Ana\n\n- lives in Basel\n")
    identity = await learned(memory, "knowledge/identity/USER.md", "# User\n\nI am Ana\n")
    changed = await learned(memory, ANA, "# Ana\n\n- lives in Bern\n")
    last = await learned(memory, ANA, "# Ana\n\n- lives in Biel\n")

    with pytest.raises(Refused, match="changed since"):
        await revert(memory, changed, TESTS)
    with pytest.raises(Refused, match="own hand"):
        await revert(memory, identity, TESTS)
    assert (await revert(memory, identity, USER)).paths == ("knowledge/identity/USER.md",)
    with pytest.raises(NotFound):
        await revert(memory, "abcdef123", TESTS)
    write(workspace, ANA, "# Ana\n\nstaged\n")
    git(workspace, "add", ANA)
    with pytest.raises(Refused, match="staged"):
        await revert(memory, last, USER, apply=True)


async def test_a_revert_leaves_conversations_alone(memory: Memory, workspace: Path) -> None:
    await observe(memory, NewTurn("user", "hello", "s1"), TESTS)
    ended = await end_session(memory, "s1")
    assert ended.committed is not None

    assert (await revert(memory, ended.committed, USER, apply=True)).paths == ()
    assert (workspace / ended.path).exists()


async def test_a_commit_that_was_taken_back_comes_back_by_recover(memory: Memory, workspace: Path) -> None:
    await remember(memory, NewFact("Ana lives in Basel"), TESTS)
    (commit,) = (await commit_changes(memory)).commits
    with pytest.raises(NotFound, match="was not taken back"):
        await recover(memory, commit, TESTS)
    await revert(memory, commit, TESTS, apply=True)
    assert "Basel" not in (workspace / CORE).read_text()
    (listed,) = [one for one in await recoverable(memory, "Basel") if one.kind == "commit"]
    assert commit.startswith(listed.id)

    shown = await recover(memory, listed.id, TESTS)
    assert (shown.applied, "+- 2026-02-16: Ana lives in Basel" in shown.diff) == (False, True)
    assert "Basel" not in (workspace / CORE).read_text()
    done = await recover(memory, listed.id, TESTS, apply=True)

    assert "Ana lives in Basel" in (workspace / CORE).read_text()
    assert [one for one in await recoverable(memory) if one.kind == "commit"] == []
    assert done.undo is not None
    undone = await recover(memory, done.undo, TESTS, apply=True)
    assert undone.applied
    assert "Basel" not in (workspace / CORE).read_text()
    assert [one.id for one in await recoverable(memory) if one.kind == "commit"] == [listed.id]
