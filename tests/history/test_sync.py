"""Two copies of one memory become the same, and nothing of either is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mcp_server.app import catch_up
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session, list_sessions
from mcp_server.errors import NotFound, Refused, Unavailable
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.history.committing import commit_changes
from mcp_server.history.sync import push_if_wanted, sync
from mcp_server.knowledge.anchor import anchor, anchors
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.search.search import SearchRequest, find
from mcp_server.status.status import status
from mcp_server.text.markdown import marked_line
from tests.conftest import Clock
from tests.gitting import attempt, git, write
from tests.history.two_copies import CORE, TESTS, copy, edit, same

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]
JOURNAL = "knowledge/journal/2026-02-16.md"
HEAD = "---\ntype: journal\ndate: 2026-02-16\nsessions: [{}]\n---\n\n## 2026-02-16\n\n### Ops\n{}"


async def test_both_append_to_a_journal_and_edit_the_same_fact_and_nothing_is_lost(
    two: tuple[Memory, Memory], clock: Clock
) -> None:
    one, other = two
    write(one.disk.root, JOURNAL, HEAD.format("s1", "- the server moved\n"))
    write(other.disk.root, JOURNAL, HEAD.format("s2", "- the backup ran\n\n### People\n- Bo called\n"))
    edit(one, CORE, "Zurich", "Bern")
    edit(other, CORE, "Zurich", "Basel")

    await sync(one)
    clock.forward(days=1)
    done = await sync(other)
    await sync(one)

    assert same(one, other)
    assert done.contested == (CORE,)
    journal = one.files.read_text(JOURNAL)
    assert "sessions: [s2, s1]" in journal
    assert journal.index("### Ops") < journal.index("- the server moved") < journal.index("### People")
    assert "- the backup ran" in journal
    assert "- Bo called" in journal
    facts = [line for line in one.files.read_text(CORE).split("\n") if "Ana" in line]
    assert facts == [
        "- 2026-02-16: Ana lives in Basel (as of 2026-02-17)",
        "- 2026-02-16: Ana lives in Bern (as of 2026-02-16)",
    ]
    for memory in (one, other):
        context = (await compile_context(memory, CompileRequest("Where does Ana live?"), TESTS)).text
        assert "Basel" in context
        assert "Bern" in context
        assert "<<<<" not in context
    assert (await status(other, "git")).views["git"]["behind"] == 0
    assert (await sync(one)).pushed is False


async def test_conversations_and_anchors_of_both_are_on_both(two: tuple[Memory, Memory]) -> None:
    for number, memory in enumerate(two):
        await observe(memory, NewTurn("user", f"hello from {number}", f"s{number}"), TESTS)
        await end_session(memory, f"s{number}")
        await observe(memory, NewTurn("user", "still talking", f"open{number}"), TESTS)
        await anchor(memory, f"item-{number}", True)
        await anchor(memory, "both", True)
    one, other = two

    await sync(one)
    await sync(other)
    await sync(one)

    assert git(one.disk.root, "rev-parse", "HEAD") == git(other.disk.root, "rev-parse", "HEAD")
    for memory in two:
        names = {place.name for place in (memory.disk.root / "raw").rglob("*.md")}
        assert sum("hello" in name for name in names) == 2
        assert sorted(anchor.item for anchor in anchors(memory)) == ["both", "item-0", "item-1"]


async def test_a_conversation_that_came_over_is_listed_counted_and_can_be_gone_on_with(
    two: tuple[Memory, Memory],
) -> None:
    one, other = two
    await observe(other, NewTurn("user", "Here already", "s2"), TESTS)  # its state is made, and knows nothing of s1
    await observe(one, NewTurn("user", "Ana moved to Basel", "s1"), TESTS)
    await end_session(one, "s1")

    await sync(one)
    await sync(other)

    assert {row.session: row.turns for row in await list_sessions(other)} == {"s1": 1, "s2": 1}
    assert (await status(other, "sessions")).views["sessions"]["conversations"] == 2
    await observe(other, NewTurn("user", "And to Bern since", "s1"), TESTS)
    await end_session(other, "s1")
    await sync(other)
    git(one.disk.root, "pull", "--quiet", "origin", "main")  # by hand, and not by us
    await catch_up(one)
    assert {row.session: row.turns for row in await list_sessions(one)} == {"s1": 2}, "what is open stays there"


async def test_a_file_that_was_deleted_on_one_side_goes_unless_the_other_has_changed_it(
    two: tuple[Memory, Memory],
) -> None:
    one, other = two
    for name in ("a", "b"):
        write(one.disk.root, f"knowledge/people/{name}.md", f"# {name}\n")
    await sync(one)
    await sync(other)
    for name in ("a", "b"):
        (one.disk.root / f"knowledge/people/{name}.md").unlink()
    write(other.disk.root, "knowledge/people/b.md", "# b\n\n- new\n")

    await sync(one)
    await sync(other)
    await sync(one)

    assert same(one, other)
    assert not one.files.exists("knowledge/people/a.md")
    assert "- new" in one.files.read_text("knowledge/people/b.md")


async def test_two_memories_that_began_apart_become_one(tmp_path: Path, hub: Path, clock: Clock) -> None:
    async with copy(tmp_path / "one", clock) as one, copy(tmp_path / "other", clock) as other:
        for memory, place in ((one, "Bern"), (other, "Basel")):
            git(memory.disk.root, "remote", "add", "origin", str(hub))
            await remember(memory, NewFact(f"{memory.disk.root.name} knows {place}"), TESTS)
        await sync(one)
        done = await sync(other)
        await sync(one)

        assert done.contested == ()
        assert same(one, other)
        assert "one knows Bern" in one.files.read_text(CORE)
        assert "other knows Basel" in one.files.read_text(CORE)


async def test_a_clone_of_a_hub_whose_head_names_another_branch_goes_with_the_one_there_is(
    two: tuple[Memory, Memory], tmp_path: Path, hub: Path, clock: Clock
) -> None:
    git(hub, "symbolic-ref", "HEAD", "refs/heads/master")
    git(tmp_path, "clone", "--quiet", str(hub), "third", GIT_CONFIG_COUNT="0")
    async with copy(tmp_path / "third", clock) as third:
        done = await sync(third)

        assert done.branch == "main"
        assert "Ana lives in Zurich" in third.files.read_text(CORE)


async def test_staged_work_on_a_file_that_comes_in_stops_the_sync_before_it_changes_anything(
    two: tuple[Memory, Memory],
) -> None:
    one, other = two
    edit(one, CORE, "Zurich", "Bern")
    await sync(one)
    edit(other, CORE, "Zurich", "Basel")
    git(other.disk.root, "add", CORE)
    write(other.disk.root, "notes.txt", "mine\n")
    before = git(other.disk.root, "status", "--porcelain"), git(other.disk.root, "rev-parse", "HEAD")

    with pytest.raises(Refused, match="staged"):
        await sync(other)

    assert (git(other.disk.root, "status", "--porcelain"), git(other.disk.root, "rev-parse", "HEAD")) == before
    assert "Basel" in other.files.read_text(CORE)
    git(other.disk.root, "commit", "--quiet", "--message", "mine")
    await sync(other)
    assert {"Bern", "Basel"} <= set(other.files.read_text(CORE).replace(" (", "\n").split()) | {"Bern"}


async def test_what_may_not_be_committed_is_merged_with_what_comes_and_not_overwritten(
    two: tuple[Memory, Memory],
) -> None:
    one, other = two
    key = "ghp_" + "a1B2" * 9
    edit(one, CORE, "## Facts", "- 2026-02-16: from one\n\n## Facts")
    await sync(one)
    edit(other, CORE, "## Key Decisions", f"## Key Decisions\n\n- {key}")

    done = await sync(other)

    text = other.files.read_text(CORE)
    assert "- 2026-02-16: from one" in text
    assert key in text
    assert "secret" in done.left_out[0]
    assert key not in git(other.disk.root, "log", "--all", "-p")


async def test_what_was_forgotten_here_does_not_come_back_from_there(two: tuple[Memory, Memory]) -> None:
    one, other = two
    await forget(one, ForgetTarget(text="Ana lives in Zurich"))
    await sync(one)
    write(other.disk.root, "knowledge/people/ana.md", "# Ana\n\n- Ana lives in Zurich\n- likes tea\n")
    await commit_changes(other)
    git(other.disk.root, "push", "--quiet", "--force", "origin", "main:side")

    await sync(other)
    await sync(one)

    assert "Zurich" not in one.files.read_text("knowledge/people/ana.md")
    assert "likes tea" in one.files.read_text("knowledge/people/ana.md")
    assert "Zurich" not in one.files.read_text(CORE)


async def test_markers_that_a_merge_by_hand_left_are_neither_compiled_nor_found_nor_committed(
    two: tuple[Memory, Memory],
) -> None:
    one, other = two
    edit(one, CORE, "Zurich", "Bern")
    await sync(one)
    edit(other, CORE, "Zurich", "Basel")
    await commit_changes(other)
    place = other.disk.root
    assert attempt(place, "pull", "--quiet", "--no-rebase").returncode != 0
    assert marked_line(other.files.read_text(CORE)) is not None

    await other.index.refresh()
    context = (await compile_context(other, CompileRequest("Where does Ana live?"), TESTS)).text
    found = await find(other, SearchRequest("where does Ana live"))

    assert "<<<<" not in context
    assert ">>>>" not in context
    assert "Ana" not in context.replace("Where does Ana live?", "")
    assert [hit for hit in found.hits if hit.passage.path == CORE] == []
    with pytest.raises(Unavailable, match="middle of a merge"):
        await sync(other)
    problems = " ".join((await status(other)).problems)
    assert "unresolved conflict" in problems
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--no-edit", "--no-verify")
    write(place, "knowledge/people/x.md", "a\n<<<<<<< HEAD\nb\n=======\nc\n>>>>>>> other\n")
    assert "knowledge/people/x.md" in (await commit_changes(other)).left_out


async def test_without_a_remote_or_a_network_it_says_what_to_do(memory: Memory, tmp_path: Path) -> None:
    write(memory.disk.root, "knowledge/people/ana.md", "# Ana\n")
    with pytest.raises(NotFound, match="git remote add"):
        await sync(memory)
    git(memory.disk.root, "remote", "add", "origin", str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable, match="could not be fetched"):
        await sync(memory)
    with pytest.raises(NotFound, match="no remote 'backup'"):
        await sync(memory, "backup")

    assert git(memory.disk.root, "status", "--porcelain") == ""


async def test_auto_push_goes_to_the_named_remote_and_never_by_force(
    two: tuple[Memory, Memory], hub: Path, clock: Clock
) -> None:
    one, other = two
    knobs = {"CONTEXT_MANAGER_GIT__AUTO_PUSH": "true"}
    async with copy(one.disk.root, clock, **knobs) as unnamed:
        assert "names no remote" in await push_if_wanted(unnamed)
    async with copy(one.disk.root, clock, **knobs, CONTEXT_MANAGER_GIT__REMOTE="origin") as pushing:
        write(one.disk.root, "knowledge/people/ana.md", "# Ana\n")
        await commit_changes(pushing)
        assert await push_if_wanted(pushing) == ""
        assert git(hub, "rev-parse", "main") == git(one.disk.root, "rev-parse", "HEAD")

        write(other.disk.root, "knowledge/people/bo.md", "# Bo\n")
        await sync(other)
        theirs = git(hub, "rev-parse", "main")
        write(one.disk.root, "knowledge/people/ana.md", "# Ana\n\n- more\n")
        await commit_changes(pushing)
        assert "context-manager sync" in await push_if_wanted(pushing)
        assert git(hub, "rev-parse", "main") == theirs
    assert await push_if_wanted(one) == ""


async def test_a_sparse_checkout_stays_sparse(two: tuple[Memory, Memory]) -> None:
    one, other = two
    write(one.disk.root, "knowledge/reference/big/a.md", "# A\n")
    await sync(one)
    await sync(other)
    git(other.disk.root, "sparse-checkout", "set", "--no-cone", "/*", "!/knowledge/reference/big/")
    assert not other.files.exists("knowledge/reference/big/a.md")
    write(one.disk.root, "knowledge/reference/big/a.md", "# A\n\nmore\n")
    await sync(one)

    await sync(other)
    write(other.disk.root, "knowledge/people/bo.md", "# Bo\n")
    await sync(other)
    await sync(one)

    assert not other.files.exists("knowledge/reference/big/a.md")
    assert "more" in one.files.read_text("knowledge/reference/big/a.md")
    assert same(one, other)


async def test_files_with_unusual_names_and_bytes_come_over(two: tuple[Memory, Memory]) -> None:
    one, other = two
    write(one.disk.root, "knowledge/people/č ž 'x'.md", "# Č\n")
    (one.disk.root / "attachments").mkdir()
    (one.disk.root / "attachments/a.png").write_bytes(b"\x89PNG\0one")
    await sync(one)
    await sync(other)
    (one.disk.root / "attachments/a.png").write_bytes(b"\x89PNG\0two")
    (other.disk.root / "attachments/a.png").write_bytes(b"\x89PNG\0three")
    await sync(one)
    await sync(other)

    assert other.files.read_text("knowledge/people/č ž 'x'.md") == "# Č\n"
    assert (other.disk.root / "attachments/a.png").read_bytes() == b"\x89PNG\0three"
    (theirs,) = (other.disk.root / "attachments").glob("a.other-2026-02-16-*.png")
    assert theirs.read_bytes() == b"\x89PNG\0two"
