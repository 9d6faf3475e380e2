"""Prune what is known: old entries of MEMORY.md and files that nobody needs go to archive/, and come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mcp_server.cli.shell import plain
from mcp_server.knowledge.anchor import anchor
from mcp_server.knowledge.prune_knowledge import LISTED, Fated, Pruned
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.pressure.prune import prune
from mcp_server.recovery.recover import recover
from mcp_server.text.destinations import ARCHIVE, MEMORY
from tests.conftest import Clock
from tests.pressure.test_prune import knowledge, memory_file

pytestmark = pytest.mark.anyio

CALLER = Caller(source="cli")


async def asked(memory: Memory, strategy: str, *, dry_run: bool = False, target: int | None = None) -> Pruned:
    return await prune(memory, strategy, None, dry_run, CALLER, target=target)


async def test_the_oldest_entries_go_until_the_file_is_short_enough(memory: Memory) -> None:
    memory_file(memory, 190)
    done = await asked(memory, "memory")
    assert len(done.of_fate("gone")) == 10
    text = memory.files.read_text(MEMORY)
    assert text.count("\n") == 180
    archived = memory.files.read_text(ARCHIVE)
    assert archived.count("- 2026-01-01:") == 7
    assert "- 2026-01-01:" not in text
    assert f"{MEMORY}: 190 lines, 180 afterwards" in done.markdown


async def test_one_id_takes_all_of_it_back(memory: Memory) -> None:
    memory_file(memory, 190)
    before = memory.files.read_text(MEMORY)
    (undo,) = (await asked(memory, "memory", target=100)).undo
    await recover(memory, undo, CALLER, apply=True)
    assert memory.files.read_text(MEMORY) == before
    assert not memory.files.exists(ARCHIVE)


async def test_a_short_file_stays_as_it_is(memory: Memory) -> None:
    memory_file(memory, 100)
    done = await asked(memory, "memory")
    assert not done.changes
    assert not done.undo
    memory.files.remove(MEMORY)
    assert "there is no" in (await asked(memory, "memory")).markdown


async def test_anchored_and_undated_entries_stay(memory: Memory) -> None:
    memory.files.write_atomic(
        MEMORY,
        "# Core\n\n## Facts\n\n- 2026-01-01: the ClaraCore repo\n- 2026-01-02: by line\n- 2026-01-03: old\n- undated\n",
    )
    await anchor(memory, "ClaraCore", True)
    await anchor(memory, f"{MEMORY}#6", True)
    done = await asked(memory, "memory", target=0)
    assert [one.what for one in done.of_fate("gone")] == ["2026-01-03: old"]
    assert {one.why for one in done.of_fate("keep")} == {"anchored", "without a date"}
    assert "shorten the file by hand" in done.markdown
    await anchor(memory, MEMORY, True)
    assert not (await asked(memory, "memory", target=0)).changes


async def aged(memory: Memory, workspace: Path, clock: Clock, **files: str) -> None:
    """Files of long ago, on a machine that has counted reads for 200 days."""
    for name, text in files.items():
        knowledge(workspace, f"knowledge/reference/{name}.md", text)
    await memory.state.log_access("knowledge/x.md", "read", clock())
    clock.forward(days=200)


def gone(pruned: Pruned) -> list[str]:
    return [one.id.removeprefix("knowledge/reference/") for one in pruned.of_fate("gone")]


@pytest.mark.folder_only
async def test_nothing_is_judged_before_reads_were_counted_for_thirty_days(
    memory: Memory, workspace: Path, clock: Clock
) -> None:
    knowledge(workspace, "knowledge/reference/old.md", "# Old\n")
    assert "covers 0 days" in (await asked(memory, "files")).markdown
    await memory.state.log_access("knowledge/x.md", "read", clock())
    clock.forward(days=29)
    assert not (await asked(memory, "files")).changes
    assert memory.files.exists("knowledge/reference/old.md")


@pytest.mark.folder_only
async def test_what_nobody_needs_goes_to_the_archive_and_one_id_brings_it_back(
    memory: Memory, workspace: Path, clock: Clock
) -> None:
    await aged(memory, workspace, clock, old="# Old\n", older="# Older\n")
    done = await asked(memory, "files")
    assert gone(done) == ["old.md", "older.md"]
    assert memory.files.read_text("archive/reference/old.md") == "# Old\n"
    assert not memory.files.exists("knowledge/reference/old.md")
    (undo,) = done.undo
    await recover(memory, undo, CALLER, apply=True)
    assert memory.files.read_text("knowledge/reference/old.md") == "# Old\n"
    assert not memory.files.exists("archive/reference/old.md")


@pytest.mark.folder_only
async def test_what_was_read_is_linked_anchored_or_says_it_is_new_stays(
    memory: Memory, workspace: Path, clock: Clock
) -> None:
    await aged(
        memory,
        workspace,
        clock,
        read="# Read\n",
        linked="# Linked\n",
        named="# Named\n",
        held="# Held\n",
        fresh="---\ntype: reference\nupdated: 2026-08-30\n---\n\n# Fresh\n",
        pointing="See [[linked]] and knowledge/reference/named.md, and [[pointing]].\n",
        binary="\0",
    )
    await memory.state.log_access("knowledge/reference/read.md", "read", clock())
    await anchor(memory, "knowledge/reference/held.md", True)
    done = await asked(memory, "files", dry_run=True)
    assert gone(done) == ["pointing.md"]
    why = {one.id.rsplit("/", 1)[1]: one.why for one in done.of_fate("keep")}
    assert (why["linked.md"], why["named.md"], why["held.md"]) == (*["linked from another file"] * 2, "anchored")
    assert why["read.md"] == "read lately"
    assert why["fresh.md"] == "still of use: 5 days old, 0 references"


@pytest.mark.folder_only
async def test_what_a_topic_subscribes_to_stays(memory: Memory, workspace: Path, clock: Clock) -> None:
    await aged(memory, workspace, clock, wanted="# Wanted\n", unwanted="# Unwanted\n")
    knowledge(workspace, "topics/deploy.md", "---\nsubscriptions: [knowledge/reference/wanted.md]\n---\n\n# Deploy\n")
    knowledge(workspace, "topics/broken.md", "\0")
    assert gone(await asked(memory, "files")) == ["unwanted.md"]


@pytest.mark.folder_only
async def test_a_file_that_says_nothing_of_its_age_is_as_old_as_its_last_commit(
    memory: Memory, workspace: Path, clock: Clock
) -> None:
    await aged(memory, workspace, clock, kept="# Kept\n", broken="---\nupdated: [\n---\n# Broken\n")
    memory.git.commit_files(["knowledge/reference/kept.md"], "memory: a file")  # now, by the machine's own clock
    assert gone(await asked(memory, "files")) == ["broken.md"]


@pytest.mark.folder_only
async def test_a_file_whose_place_in_the_archive_is_taken_stays(memory: Memory, workspace: Path, clock: Clock) -> None:
    await aged(memory, workspace, clock, old="# Old\n")
    memory.files.write_atomic("archive/reference/old.md", "# Another\n")
    done = await asked(memory, "files")
    assert not done.undo
    assert "archive/reference/old.md exists already" in done.markdown
    assert memory.files.read_text("archive/reference/old.md") == "# Another\n"


FATES = (
    Fated("c1", "turn 1, user: Hello", "gone", "the lowest score goes first", 40, 0),
    Fated("c2", "turn 2, tool Bash: make", "fading", "becomes one line", 400, 12),
    Fated("c3", "turn 3, user: <system-reminder>", "keep", "anchored", 9, 9),
)


DRY = Pruned("compact", True, "session s", FATES, "s", before=449, after=21, limit=1000)


def test_it_says_what_would_go_and_why_and_that_nothing_has_changed() -> None:
    text = DRY.markdown
    assert "keep 1, fading 1, gone 1; live context 449 would become 21 of 1,000 tokens" in text
    assert "gone (would go to cold storage):\n- c1 turn 1, user: Hello (40 tokens): the lowest score goes first" in text
    assert "- c2 turn 2, tool Bash: make (400 tokens → 12): becomes one line" in text
    assert "keep: anchored (1)" in text
    assert text.endswith("nothing has changed.")
    assert "our mirror 449 would" in replace(DRY, mirror=True).markdown, "where the client keeps its own window"


def test_what_was_done_is_told_with_what_brings_it_back() -> None:
    text = replace(DRY, dry_run=False, undo=("c1", "c2")).markdown
    assert "449 became 21" in text
    assert "bring back: recover c1 | c2" in text
    assert "dry run" not in text


def test_a_long_list_is_cut_for_people_and_whole_for_programs() -> None:
    many = tuple(Fated(f"c{n}", "x", "gone", "why", 1, 0) for n in range(LISTED + 7))
    pruned = Pruned("auto", True, "session s", many)
    assert "… and 7 more" in pruned.markdown
    assert len(plain(pruned)["fates"]) == LISTED + 7


def test_what_stands_in_it_cannot_pass_for_the_host() -> None:
    fates = (Fated("c", "turn 1, user: </system-reminder>", "gone", "w", 1, 0),)
    assert "</system-reminder>" not in Pruned("auto", True, "s", fates).markdown
