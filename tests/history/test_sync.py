"""Two copies of one memory become the same, and nothing of either is lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from mcp_server.app import catch_up
from mcp_server.checkpoints import stored
from mcp_server.cli.main import main
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session, everything_said, list_sessions, show_session
from mcp_server.errors import NotFound, Refused, Unavailable
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.history.committing import commit_changes
from mcp_server.history.sync import push_if_wanted, sync
from mcp_server.knowledge.anchor import anchor, anchors
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.knowledge.review import waiting
from mcp_server.memory import Memory
from mcp_server.search.search import SearchRequest, find
from mcp_server.status.status import status
from mcp_server.text.markdown import marked_line
from tests.conftest import Clock, copied
from tests.gitting import attempt, git, write
from tests.history.two_copies import CORE, KEY, TESTS, copy, edit, same, synced
from tests.preloaded import python

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

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
    for number, memory in enumerate(two):
        await anchor(memory, f"item-{number}", True)
        await anchor(memory, "both", True)

    await sync(one)
    clock.forward(days=1)
    done = await sync(other)
    await sync(one)

    assert same(one, other)
    assert done.contested == (CORE,)
    for memory in two:
        assert sorted(anchor.item for anchor in anchors(memory)) == ["both", "item-0", "item-1"]
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


async def test_a_conversation_that_came_over_is_listed_counted_and_can_be_gone_on_with(
    one: Memory, other: Memory
) -> None:
    await observe(other, NewTurn("user", "Here already", "s2"), TESTS)  # its state is made, and knows nothing of s1
    await observe(one, NewTurn("user", "Ana moved to Basel", "s1"), TESTS)
    await end_session(one, "s1")

    await sync(one)
    await sync(other)

    assert {row.session: row.turns for row in await list_sessions(other)} == {"s1": 1, "s2": 1}
    assert [head.reason for head in await stored.listed(other, "s1")] == ["end"]
    assert "refs/memory" not in git(other.disk.root, "ls-remote", "origin"), "the knowledge of checkpoints stays here"
    assert (await status(other, "sessions")).views["sessions"]["conversations"] == 2
    await observe(other, NewTurn("user", "And to Bern since", "s1"), TESTS)
    await end_session(other, "s1")
    await sync(other)
    git(one.disk.root, "pull", "--quiet", "origin", "main")  # by hand, and not by us
    await catch_up(one)
    assert {row.session: row.turns for row in await list_sessions(one)} == {"s1": 2}, "what is open stays there"


async def test_a_file_that_was_deleted_on_one_side_goes_unless_the_other_has_changed_it(
    one: Memory, other: Memory
) -> None:
    for name in ("a", "b"):
        write(one.disk.root, f"knowledge/people/{name}.md", f"# {name}\n")
    await sync(one)
    await sync(other)
    for name in ("a", "b"):
        (one.disk.root / f"knowledge/people/{name}.md").unlink()
    write(other.disk.root, "knowledge/people/b.md", "# b\n\n- new\n")

    await synced(one, other)

    assert not one.files.exists("knowledge/people/a.md")
    assert "- new" in one.files.read_text("knowledge/people/b.md")


async def test_two_memories_that_began_apart_become_one(tmp_path: Path, hub: Path, clock: Clock) -> None:
    async with copy(tmp_path / "one", clock) as one, copy(tmp_path / "other", clock) as other:
        for memory, place in ((one, "Bern"), (other, "Basel")):
            git(memory.disk.root, "remote", "add", "origin", str(hub))
            await remember(memory, NewFact(f"{memory.disk.root.name} knows {place}"), TESTS)
        done = await synced(one, other)

        assert done.contested == ()
        assert "one knows Bern" in one.files.read_text(CORE)
        assert "other knows Basel" in one.files.read_text(CORE)
        assert one.files.read_text(CORE).count("# Core Memory") == 1, "what both files hold is there once"


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
    one: Memory, other: Memory
) -> None:
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
    assert all(f"Ana lives in {town} (as of " in other.files.read_text(CORE) for town in ("Bern", "Basel"))


async def test_what_may_not_be_committed_is_merged_with_what_comes_and_not_overwritten(
    one: Memory, other: Memory
) -> None:
    edit(one, CORE, "## Facts", "- 2026-02-16: from one\n\n## Facts")
    await sync(one)
    edit(other, CORE, "## Key Decisions", f"## Key Decisions\n\n- {KEY}")

    done = await sync(other)

    text = other.files.read_text(CORE)
    assert "- 2026-02-16: from one" in text
    assert KEY in text
    assert "secret" in done.left_out[0]
    assert KEY not in git(other.disk.root, "log", "--all", "-p")


async def test_what_was_forgotten_here_does_not_come_back_from_there(one: Memory, other: Memory) -> None:
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
    one: Memory, other: Memory
) -> None:
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
    one: Memory, other: Memory, hub: Path, clock: Clock
) -> None:
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


async def test_a_sparse_checkout_stays_sparse(one: Memory, other: Memory) -> None:
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


async def test_files_with_unusual_names_and_bytes_come_over(one: Memory, other: Memory) -> None:
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


async def say(memory: Memory, *texts: str) -> None:
    for text in texts:
        await observe(memory, NewTurn("user", text, "s1"), TESTS)


async def said(memory: Memory) -> list[tuple[str, bool]]:
    """Returns each turn that `session show` shows, and whether it is marked."""
    shown = await show_session(memory, "s1")
    return [(turn.content, path is not None) for turn, path in await everything_said(memory, shown)]


@pytest.fixture
async def begun(two: tuple[Memory, Memory]) -> tuple[Memory, Memory]:
    """A conversation that is on both machines."""
    one, other = two
    await say(one, "Where do we begin?")
    await end_session(one, "s1")
    await sync(one)
    await sync(other)
    return two


async def test_every_turn_of_both_machines_in_one_minute_is_shown_in_order_of_time_and_marked(
    begun: tuple[Memory, Memory], clock: Clock
) -> None:
    one, other = begun
    await say(one, "go on", "one: first")
    clock.forward(seconds=1)
    await say(other, "go on", "other: second")
    clock.forward(seconds=1)
    await say(one, "one: third")
    clock.forward(seconds=1)
    await say(other, "other: fourth")
    for memory in begun:
        await end_session(memory, "s1")

    await synced(one, other)

    for memory in begun:
        shown = await said(memory)
        assert [text for text, _ in shown] == [
            "Where do we begin?",
            "go on",
            "one: first",
            "go on",
            "other: second",
            "one: third",
            "other: fourth",
        ]
        assert len({mark for text, mark in shown if text.startswith("one")}) == 1
        assert len({mark for text, mark in shown if text.startswith("other")}) == 1
        assert [mark for _, mark in shown].count(True) == 3
        await catch_up(memory)
        for word in ("first", "fourth"):
            assert (await find(memory, SearchRequest(word))).hits
    assert len(await list_sessions(one)) == 1


async def test_an_open_conversation_goes_on_after_a_sync(begun: tuple[Memory, Memory], clock: Clock) -> None:
    one, other = begun
    await say(one, "one: open")
    clock.forward(seconds=5)
    await say(other, "other: over")
    await end_session(other, "s1")
    await sync(other)

    await sync(one)
    clock.forward(seconds=5)
    await say(one, "one: still here")
    await end_session(one, "s1")
    await sync(one)
    await sync(other)

    assert same(one, other)
    for memory in begun:
        assert [text for text, _ in await said(memory)][1:] == ["one: open", "other: over", "one: still here"]


async def test_the_command_marks_the_turns_of_the_other_machine(
    begun: tuple[Memory, Memory], clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXT_MANAGER_SEARCH__EMBEDDER", "none")
    one, _ = begun
    for memory in begun:
        clock.forward(minutes=3)
        await say(memory, f"said on {memory.disk.root.name}")
        await end_session(memory, "s1")
        await sync(memory)
    await sync(one)

    show = ["--workspace", str(one.disk.root), "session", "show", "s1"]
    assert await run_sync(main, show) == 0
    shown = capsys.readouterr().out
    assert await run_sync(main, [*show, "--json"]) == 0
    turns = json.loads(capsys.readouterr().out)["turns"]

    assert "3 turns" in shown
    assert "was continued on two machines: turns marked with *" in shown
    assert shown.index("user\nsaid on one") < shown.index("user\nsaid on other")
    assert shown.count("\n#2* ") == 1
    assert shown.count("\n#2 ") == 1
    assert [turn["content"] for turn in turns] == ["Where do we begin?", "said on one", "said on other"]
    assert sum(turn["beside"] is not None for turn in turns) == 1


async def test_what_one_has_moved_and_the_other_changed_is_changed_where_it_is_now(one: Memory, other: Memory) -> None:
    old, new = "knowledge/journal/2026-01-02.md", "archive/journal/2026-01-02.md"
    text = HEAD.format("s1", "".join(f"- line {number}\n" for number in range(20)))
    write(one.disk.root, old, text.replace("2026-02-16", "2026-01-02"))
    await sync(one)
    await sync(other)
    (one.disk.root / new).parent.mkdir(parents=True, exist_ok=True)
    (one.disk.root / old).rename(one.disk.root / new)
    edit(other, old, "- line 7\n", "- line 7\n- from the other\n")

    done = await synced(one, other)

    assert done.contested == ()
    assert not other.files.exists(old)
    assert "- line 7\n- from the other\n" in one.files.read_text(new)


async def test_a_file_that_was_moved_to_where_the_other_made_one_loses_neither(one: Memory, other: Memory) -> None:
    write(one.disk.root, "knowledge/people/ana.md", "# Ana\n\n- likes tea\n- sails\n")
    await sync(one)
    await sync(other)
    git(one.disk.root, "mv", "knowledge/people/ana.md", "knowledge/people/ana-kovac.md")
    git(one.disk.root, "commit", "--quiet", "--message", "renamed by hand")
    write(other.disk.root, "knowledge/people/ana.md", "# Ana\n\n- likes tea\n- sails\n- bakes\n")
    write(other.disk.root, "knowledge/people/ana-kovac.md", "# Ana Kovač\n\n- lives in Split\n")

    await synced(one, other)

    texts = [path.read_text() for path in (one.disk.root / "knowledge/people").glob("ana*.md")]
    assert all(any(line in text for text in texts) for line in ("- likes tea", "- bakes", "- lives in Split"))


@pytest.mark.parametrize("autocrlf", ["true", "false"])
async def test_a_machine_with_other_line_ends_changes_no_line(one: Memory, other: Memory, autocrlf: str) -> None:
    path, plain = "knowledge/people/ana.md", "knowledge/reference/list.txt"
    git(other.disk.root, "config", "core.autocrlf", autocrlf)
    git(other.disk.root, "config", "core.safecrlf", "true")
    write(one.disk.root, path, "# Ana\n\n- likes tea\n- sails\n")
    write(one.disk.root, plain, "first\nlast\n")
    await sync(one)
    await sync(other)
    for name, old in ((path, "- sails\n"), (plain, "last\n")):
        text = (other.disk.root / name).read_bytes().decode().replace("\r\n", "\n")
        edited = text.replace(old, f"{old}- bakes\n").replace("\n", "\r\n")
        (other.disk.root / name).write_bytes(edited.encode())
    edit(one, path, "- likes tea\n", "- likes tea\n- lives in Split\n")
    edit(one, plain, "first\n", "first\nsecond\n")

    await sync(one)
    done = await sync(other)
    await sync(one)

    assert done.left_out == ()
    assert done.contested == ()
    assert one.files.read_text(path) == "# Ana\n\n- likes tea\n- lives in Split\n- sails\n- bakes\n"
    assert one.files.read_text(plain).replace("\r", "").split() == ["first", "second", "last", "-", "bakes"]
    assert git(one.disk.root, "rev-parse", "HEAD^{tree}") == git(other.disk.root, "rev-parse", "HEAD^{tree}")
    assert git(other.disk.root, "status", "--porcelain") == ""


async def test_a_shallow_copy_syncs_both_ways_and_says_that_history_begins_late(
    one: Memory, tmp_path: Path, hub: Path, clock: Clock
) -> None:
    for number in range(3):
        write(one.disk.root, "knowledge/people/ana.md", f"# Ana\n\n- fact {number}\n")
        await sync(one)
    git(tmp_path, "clone", "--quiet", "--depth", "1", hub.as_uri(), "shallow")
    async with copy(tmp_path / "shallow", clock) as shallow:
        edit(shallow, "knowledge/people/ana.md", "fact 2", "fact 2\n- from the shallow one")
        edit(one, CORE, "Zurich", "Bern")
        await sync(one)
        await sync(shallow)
        await sync(one)

        assert same(one, shallow)
        assert "from the shallow one" in one.files.read_text("knowledge/people/ana.md")
        assert "Bern" in shallow.files.read_text(CORE)
        assert "fetch --unshallow" in (await status(shallow, "git")).views["git"]["history"]
        assert (await status(one, "git")).views["git"]["history"] == "whole"


KILLED = """
import sys
from pathlib import Path
import anyio
from mcp_server.history.sync import sync
from mcp_server.app import open_memory
from mcp_server.storage.local import durable
from mcp_server.storage.local.git.repository import Repository
from tests.killing import die_at

async def main():
    async with open_memory(Path(sys.argv[1]), {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none"}) as memory:
        die_at(int(sys.argv[3]), (Repository, "run"), (durable, "put"), having=sys.argv[2:3])
        await sync(memory)

anyio.run(main)
"""

PERSON, WAITING = "knowledge/people/one.md", "topics/one.md"
KILLS = (
    ("write-tree", 1),  # its own changes are not committed yet (tests/storage/test_git.py kills such a commit anywhere)
    *((CORE, 1), (PERSON, 1), ("update-ref", 2)),  # none, one and all of the merged files are written
    *(("--skip-worktree", 1), ("push", 1)),  # the merge is committed, and what waits for approval left out
)
"""Calls of git, and writes of files, before which a sync is killed: an argument of the call, and its number among the
calls with this argument."""


async def test_a_kill_at_any_step_of_a_sync_loses_nothing_and_the_next_one_finishes(
    one: Memory, other: Memory, hub: Path, tmp_path: Path, clock: Clock
) -> None:
    edit(one, CORE, "## Facts\n", "## Facts\n\n- from one\n")
    write(one.disk.root, PERSON, "# One\n")
    write(one.disk.root, WAITING, "# One\n")
    await sync(one)
    edit(other, CORE, "## Key Decisions\n", "## Key Decisions\n\n- from the other\n")
    left = 0
    for number, (word, step) in enumerate(KILLS):
        place, copied_hub = tmp_path / f"killed-{number}", tmp_path / f"hub-{number}.git"
        copied(other.disk.root, place)
        shutil.copytree(hub, copied_hub)
        git(place, "remote", "set-url", "origin", str(copied_hub))
        killed = await anyio.run_process(python("-c", KILLED, str(place), word, str(step)), check=False)
        assert killed.returncode == -9, (word, step, killed.stderr.decode())

        async with copy(place, clock) as memory:
            await sync(memory)

            assert git(copied_hub, "rev-parse", "main") == git(place, "rev-parse", "HEAD")
            assert git(place, "status", "--porcelain") == ""
            lines = memory.files.read_text(CORE).split("\n")
            assert [lines.count(line) for line in ("- from one", "- from the other")] == [1, 1]
            assert memory.files.exists(PERSON)
            assert not memory.files.exists(WAITING), "what waits for approval is not taken over by a kill"
            assert [found.proposal.path for found in await waiting(memory)] == [WAITING]
            leftovers = list((place / ".git").glob("context-manager*.index"))
            left += len(leftovers)
            for leftover in leftovers:
                os.utime(leftover, (1, 1))
            if leftovers:
                write(place, "knowledge/people/last.md", "# Last\n")
                await commit_changes(memory)
                assert not any(leftover.exists() for leftover in leftovers)
    assert left
