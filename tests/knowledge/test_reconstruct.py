"""All knowledge derived anew, beside a memory that goes on; compared, merged, dropped."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.errors import Conflict, Invalid, NotFound
from mcp_server.history.committing import commit_changes
from mcp_server.knowledge.condense import condense
from mcp_server.knowledge.derive import chosen, versions
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.reconstruct import compare, drop, merge, reconstruct, reconstructions
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.text.destinations import MEMORY
from tests.conftest import KEYWORDS_ONLY, Clock
from tests.fake_llm import FakeLlm
from tests.gitting import git
from tests.knowledge.test_extract import ANA, talk

pytestmark = [pytest.mark.anyio, pytest.mark.folder_only]

OWN = "- Ana and I met at school, nobody said that here"


def tree(root: Path) -> dict[str, bytes]:
    """Every file that is somebody's: not git's own, not this machine's."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] not in (".git", ".local")
    }


def head(root: Path) -> str:
    return git(root, "rev-parse", "HEAD")


async def filled(memory: Memory) -> None:
    """Two conversations, what extractors made of them, and lines of the user's own, all committed."""
    await record_session(memory, talk("I adopted two kittens yesterday.", "I moved to Zagreb last week."))
    await record_session(memory, talk("I love hiking in the Alps.", "Great!", session="talk-2", days=30))
    await extract(memory)
    place = memory.disk.root / ANA
    place.write_text(place.read_text() + f"\n## Ours\n{OWN}\n")
    await remember(memory, NewFact("The oven is a Vesuvio", "fact"), Caller())
    await commit_changes(memory)


async def test_the_same_extractors_make_the_same_memory(memory: Memory) -> None:
    await filled(memory)
    await reconstruct(memory, "again")
    found = await compare(memory, ["again"])
    live, again = found.versions
    assert (live.files, live.lines, live.sources) == (again.files, again.lines, again.sources)
    assert found.deltas["again"].files == ()


async def test_what_people_wrote_survives_another_algorithm(memory: Memory) -> None:
    """Only one extractor: everything else that was derived goes, and no other line."""
    await filled(memory)
    await reconstruct(memory, "lean", ["journal"])
    await reconstruct(memory, "whole")
    found = await compare(memory, ["lean", "whole"])
    lines = {one.name: one.lines for one in found.versions}
    assert lines["lean"] < lines["whole"] == lines["memory"]
    assert found.deltas["lean"].own_lost == ()
    memory.files.write_atomic("knowledge/people/bo.md", "# Bo\n\nWritten meanwhile.\n")
    joined = await merge(memory, "lean")
    assert joined is not None
    text = memory.files.read_text(ANA)
    assert OWN in text
    assert "kittens" not in text
    assert "Vesuvio" in memory.files.read_text("knowledge/memory/MEMORY.md")
    assert "Written meanwhile" in memory.files.read_text("knowledge/people/bo.md")
    assert [one.name for one in await reconstructions(memory)] == ["whole"]
    await drop(memory, "whole")
    assert await reconstructions(memory) == []
    assert not list((memory.disk.local / "extract").iterdir())


async def test_a_model_that_gives_nothing_leaves_the_rules(memory: Memory, clock: Clock) -> None:
    await filled(memory)
    turn = ImportedTurn("user", "Decision: bake with rye flour only.", clock.now, "k0")
    await record_session(memory, ImportedSession("rye", (turn,), "import:test", title="Rye"))
    await extract(memory)
    asked = FakeLlm()
    made = await reconstruct(replace(memory, llm=asked), "by-model")
    assert asked.asked
    assert made.lines > 0
    assert made.by.startswith("fake; decisions ")
    assert "1 conversations were read by rules" in made.notes[-1]
    assert (await compare(memory, ["by-model"])).deltas["by-model"].files == ()


async def test_what_cannot_be_is_said(memory: Memory) -> None:
    await filled(memory)
    with pytest.raises(Invalid, match="not a valid name"):
        await reconstruct(memory, "../away")
    with pytest.raises(Invalid, match="no extractor"):
        await reconstruct(memory, "x", ["oracle"])
    await reconstruct(memory, "x", ["journal"])
    with pytest.raises(Conflict, match="already"):
        await reconstruct(memory, "x")
    with pytest.raises(NotFound, match="there are: x"):
        await merge(memory, "y")


async def test_what_is_not_committed_is_carried_over_and_main_does_not_move(memory: Memory) -> None:
    await filled(memory)
    root = memory.disk.root
    bo, core = root / "knowledge/people/bo.md", root / MEMORY
    bo.write_text("# Bo\n\n- Bo builds boats\n")
    core.write_text(core.read_text().replace("The oven is a Vesuvio", "The oven is a Vesuvio 3"))
    git(root, "add", MEMORY)
    before, commit, status = tree(root), head(root), git(root, "status", "--porcelain")

    await reconstruct(memory, "lean", ["journal"])

    assert (tree(root), head(root), git(root, "status", "--porcelain")) == (before, commit, status)
    assert (await compare(memory, ["lean"])).deltas["lean"].own_lost == ()
    git(root, "commit", "--quiet", "--message", "memory: the oven")
    bo.write_text("# Bo\n\n- Bo builds ships\n")
    core.write_text(core.read_text().replace("The oven is a Vesuvio 3\n", ""))
    joined = await merge(memory, "lean")

    assert joined is not None
    assert bo.read_text() == "# Bo\n\n- Bo builds ships\n", "what was edited since is not taken back"
    assert "Vesuvio" not in core.read_text()
    assert "kittens" not in (root / ANA).read_text()
    assert joined.tag == "memory/extract/lean"
    assert git(root, "rev-parse", f"{joined.tag}^{{commit}}") == joined.commit == head(root)
    assert f"By rules; {versions(chosen(['journal']))}." in git(root, "log", "-1", "--format=%b")


async def test_what_it_begins_from_needs_no_commits_of_ours(workspace: Path, clock: Clock) -> None:
    off = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_GIT__AUTO_COMMIT": "false"}
    async with open_memory(workspace, off, clock=clock) as memory:
        await filled(memory)
        commit = head(workspace)
        made = await reconstruct(memory, "again")
        assert made.conversations == 2, "conversations that nobody has committed are read, too"
        found = (await compare(memory, ["again"])).deltas["again"]
        assert (found.files, found.own_lost) == ((), ())
        assert await merge(memory, "again") is None
        assert head(workspace) == commit
        assert git(workspace, "tag", "--list", "memory/extract/*") == ""


async def _a_month_goes_by(memory: Memory, clock: Clock) -> None:
    clock.forward(days=200)
    turn = ImportedTurn("user", "I adopted two kittens yesterday.", clock.now, "k0", "Bo")
    await record_session(memory, ImportedSession("bo-0", (turn,), "import:test", title="Bo"))
    await extract(memory)
    await condense(memory, "monthly")
    await commit_changes(memory)


def _texts(root: Path, *folders: str) -> dict[str, str]:
    return {
        str(path.relative_to(root)): "\n".join(sorted(line for line in path.read_text().split("\n") if "[src:" in line))
        for folder in folders
        for path in sorted((root / folder).rglob("*.md"))
        if not path.name.startswith("_")
    }


@pytest.mark.parametrize("first", ["month", "reconstruction"])
async def test_what_is_in_the_archive_does_not_come_back_with_a_reconstruction(
    memory: Memory, clock: Clock, first: str
) -> None:
    day = clock.now - timedelta(days=3)
    for place, said in enumerate(("I'm planning a sailing trip to Vis with Marko.", "I work as a nurse in Split.")):
        turn = ImportedTurn("user", said, day, f"t{place}", "Ana")
        await record_session(memory, ImportedSession(f"ana-{place}", (turn,), "import:test", title="Ana"))
    await extract(memory)
    journal = next((memory.disk.root / "knowledge/journal").glob("2*.md"))
    journal.write_text(f"{journal.read_text()}\n- Rain all day\n")
    await commit_changes(memory)
    if first == "month":
        await _a_month_goes_by(memory, clock)
    else:
        await reconstruct(memory, "again", ["people", "journal"])
        await _a_month_goes_by(memory, clock)
    kept = ("knowledge/people", "knowledge/journal", "archive")
    before = _texts(memory.disk.root, *kept)
    if first == "month":
        await reconstruct(memory, "again")
    await merge(memory, "again")
    assert not journal.exists()
    assert _texts(memory.disk.root, *kept) == before
    assert "Vis" in before["archive/people/ana.md"]
    assert "- Rain all day" in memory.files.read_text(f"archive/journal/{journal.name}")


async def test_a_file_that_holds_no_text_stops_nothing(memory: Memory) -> None:
    await filled(memory)
    for path in ("people/photo.md", "journal/2026-01-05.md", "reference/latin.md"):
        place = memory.disk.root / "knowledge" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes("- größe\0\n".encode("latin-1"))
    before = tree(memory.disk.root)
    await extract(memory, anew=True)
    for every in ("daily", "weekly", "monthly"):
        await condense(memory, every)
    made = await reconstruct(memory, "again")
    assert made.conversations == 2
    assert (await compare(memory, ["again"])).versions[1].lines > 0
    after = tree(memory.disk.root)
    broken = {path: content for path, content in before.items() if b"\0" in content}
    assert len(broken) == 3
    assert broken.items() <= after.items()


@pytest.mark.parametrize("committed", [False, True])
async def test_uncommitted_hand_written_lines_are_there_once_after_a_merge(memory: Memory, committed: bool) -> None:
    await record_session(memory, talk("I adopted two kittens yesterday.", "Great!", "I bought a cello on Monday."))
    await record_session(memory, talk("I moved to Zagreb last week.", "Great!", session="talk-2", days=30))
    await extract(memory)
    if committed:
        await commit_changes(memory)
    place = memory.disk.root / ANA
    rows = place.read_text().split("\n")
    derived = [number for number, row in enumerate(rows) if "[src:" in row]
    rows.insert(derived[-1], OWN)  # derived lines stand before it and after it
    place.write_text("\n".join(rows))
    await reconstruct(memory, "again", ["people"])  # the journals differ
    joined = await merge(memory, "again")
    assert joined is not None
    assert place.read_text().count(OWN) == 1
    assert place.read_text().count("Zagreb") == 1
