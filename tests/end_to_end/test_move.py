"""A whole memory moves between a folder and PostgreSQL, both ways."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from mcp_server.agent import AgentMemory, SearchAnswer
from mcp_server.app import export_memory, import_memory, open_memory
from mcp_server.checkpoints.checkpoint import make
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Invalid, Refused
from mcp_server.history.committing import commit_changes
from mcp_server.knowledge.anchor import anchor, anchors
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.model import Caller
from mcp_server.storage.whole import BUNDLE
from tests.conftest import KEYWORDS_ONLY
from tests.gitting import git
from tests.postgres import server

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parent.parent.parent

SUBJECTS = ("the berth", "the boiler", "the harbour crane", "the museum", "the release")


async def live_for_a_month(workspace: Path | str, days: int = 30, every: int = 3) -> None:
    """Fills a memory as a month of use does, with the calls that clients make."""
    now = [datetime(2026, 3, 1, 9, tzinfo=UTC)]
    caller = Caller(source="library", client="test", explicit_sessions=True)
    async with open_memory(workspace, KEYWORDS_ONLY, clock=lambda: now[0]) as memory:
        for day in range(0, days, every):
            now[0] = datetime(2026, 3, 1, 9, tzinfo=UTC) + timedelta(days=day)
            subject = SUBJECTS[day % len(SUBJECTS)]
            said = f"Day {day}: we decided that {subject} opens at {day} o'clock. 漢字 🚢"
            heard = await observe(memory, NewTurn("user", said, project="harbour"), caller)
            answer = f"Noted: {subject} opens at {day} o'clock."
            await observe(memory, NewTurn("agent", answer, session=heard.session), caller)
            fact = NewFact(f"On day {day} {subject} opens at {day} o'clock.", kind="decision", project="harbour")
            await remember(memory, fact, caller)
            if day % 9 == 0:
                await make(memory, heard.session, "asked")
            if day < days - 2 * every:
                await sessions.end_session(memory, heard.session)
        await anchor(memory, "Galeb", True, "the boat")
        await commit_changes(memory)


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory in a folder after a month."""
    mine = tmp_path_factory.mktemp("month") / "mine"
    anyio.run(live_for_a_month, mine)
    (mine / "knowledge/reference/logo.png").write_bytes(b"\x89PNG\0\xff" * 1000)
    (mine / "knowledge/reference/.hidden.md").write_text("# Hidden\n")
    return mine


async def test_a_months_memory_moves_to_the_team_and_back_with_nothing_lost(month: Path, tmp_path: Path) -> None:
    team, back = server().new_database(), tmp_path / "back"
    exports = [tmp_path / f"{number}.zip" for number in range(4)]
    await export_memory(month, KEYWORDS_ONLY, exports[0])
    await import_memory(team, KEYWORDS_ONLY, exports[0])
    await export_memory(team, KEYWORDS_ONLY, exports[1])
    assert contents(exports[1]) == contents(exports[0])
    assert exports[1].read_bytes() == exports[0].read_bytes()

    commits = git(month, "log", "--format=%H %an %s").splitlines()
    async with AgentMemory.open(team, environ=KEYWORDS_ONLY, project="harbour") as memory:
        async with AgentMemory.open(month, environ=KEYWORDS_ONLY, project="harbour") as mine:
            query = "when does the museum open?"
            assert units(await memory.search(query)) == units(await mine.search(query)) != []
            before = await mine.read("knowledge/identity/USER.md", at=commits[-1].split()[0])
        assert (await memory.read("knowledge/identity/USER.md", at="v1")).text == before.text
        heard = (await memory.memory.state.sessions(open_only=True))[0]
        assert (await memory.observe("user", "One more thing.", session=heard.session)).turn == 3
        await memory.remember("The mast is lowered in October.", kind="rule")
        assert [one.item for one in anchors(memory.memory)] == ["galeb"]

    await export_memory(team, KEYWORDS_ONLY, exports[2])
    await import_memory(back, KEYWORDS_ONLY, exports[2])
    await export_memory(back, KEYWORDS_ONLY, exports[3])
    assert contents(exports[3]) == contents(exports[2])
    assert exports[3].read_bytes() == exports[2].read_bytes()
    new = git(back, "log", "--format=%H %an %s").splitlines()
    assert new[-len(commits) :] == commits
    assert len(new) > len(commits)
    assert git(back, "fsck", "--strict") == git(back, "status", "--porcelain", "knowledge") == ""
    async with AgentMemory.open(back, environ=KEYWORDS_ONLY, project="harbour") as memory:
        assert (await memory.observe("agent", "And the answer.", session=heard.session)).turn == 4
        assert "October" in (await memory.search("when is the mast lowered?")).hits[0].passage.text
        assert [one for one in (await memory.status()).problems if "contradict" not in one] == []


async def test_an_export_is_refused_where_something_is(month: Path, tmp_path: Path) -> None:
    archive, team = tmp_path / "memory.zip", server().new_database()
    await export_memory(month, KEYWORDS_ONLY, archive)
    for workspace in (tmp_path / "used", team):
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            pass  # as new: it can be filled
        await import_memory(workspace, KEYWORDS_ONLY, archive)
        async with open_memory(workspace, KEYWORDS_ONLY) as memory:
            assert len(await memory.state.sessions()) == 10
        with pytest.raises(Refused, match="is not empty"):
            await import_memory(workspace, KEYWORDS_ONLY, archive)


@pytest.mark.parametrize("engine", ["folder", "postgres"])
def test_a_killed_import_is_repeated_as_if_it_had_not_begun(month: Path, tmp_path: Path, engine: str) -> None:
    archive, again = tmp_path / "memory.zip", tmp_path / "again.zip"
    anyio.run(export_memory, month, KEYWORDS_ONLY, archive)
    workspace = str(tmp_path / "new") if engine == "folder" else server().new_database()
    killed = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("killed_import.py")), workspace, str(archive), "30"],
        env={**os.environ, **KEYWORDS_ONLY},
        cwd=ROOT,
    )
    assert killed.wait(120) == -signal.SIGKILL
    if engine == "folder":
        assert not Path(workspace).exists()
    anyio.run(import_memory, workspace, KEYWORDS_ONLY, archive)
    anyio.run(export_memory, workspace, KEYWORDS_ONLY, again)
    assert again.read_bytes() == archive.read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


async def test_a_memory_in_which_nothing_was_recorded_moves_too(tmp_path: Path) -> None:
    team, exports = server().new_database(), [tmp_path / "first.zip", tmp_path / "second.zip"]
    async with open_memory(tmp_path / "mine", KEYWORDS_ONLY):
        pass
    await export_memory(tmp_path / "mine", KEYWORDS_ONLY, exports[0])
    await import_memory(team, KEYWORDS_ONLY, exports[0])
    await export_memory(team, KEYWORDS_ONLY, exports[1])
    assert exports[1].read_bytes() == exports[0].read_bytes()


async def test_a_damaged_or_hostile_export_changes_nothing(month: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    await export_memory(month, KEYWORDS_ONLY, whole)
    (whole / "knowledge/memory/MEMORY.md").write_bytes(b"other")
    team = server().new_database()
    for workspace in (team, tmp_path / "new"):
        with pytest.raises(Invalid, match=r"MEMORY\.md differs from the exported file"):
            await import_memory(workspace, KEYWORDS_ONLY, whole)
    listed = whole / ".memory/files.jsonl"
    first, *lines = listed.read_text().splitlines()
    for path in ("../outside.md", ".git/hooks/post-commit", ".local/settings.yaml", "/etc/outside.md"):
        about = {"path": path, "mtime_ns": 0, "sealed": False, "sha256": ""}
        listed.write_text("\n".join((first, json.dumps(about), *lines[1:])))
        for workspace in (team, tmp_path / "new"):
            with pytest.raises(Refused):
                await import_memory(workspace, KEYWORDS_ONLY, whole)
    assert not (tmp_path / "new").exists()
    async with open_memory(team, KEYWORDS_ONLY) as memory:
        assert await memory.state.sessions() == []


def units(found: SearchAnswer) -> list[tuple[str, str]]:
    return [(hit.passage.path, hit.passage.text) for hit in found.hits]


def contents(export: Path) -> dict[str, str]:
    with zipfile.ZipFile(export) as held:
        return {name: hashlib.sha256(held.read(name)).hexdigest() for name in held.namelist()}


async def test_forgetting_on_postgresql_also_drops_the_imported_history(month: Path, tmp_path: Path) -> None:
    team, archive, again = server().new_database(), tmp_path / "memory.zip", tmp_path / "again"
    await export_memory(month, KEYWORDS_ONLY, archive)
    await import_memory(team, KEYWORDS_ONLY, archive)
    async with AgentMemory.open(team, environ=KEYWORDS_ONLY, project="harbour") as memory:
        await memory.forget("the museum opens at 3 o'clock", apply=True)
        assert not memory.memory.files.exists(BUNDLE)
    await export_memory(team, KEYWORDS_ONLY, again)
    await import_memory(tmp_path / "back", KEYWORDS_ONLY, again)
    said = git(tmp_path / "back", "log", "--all", "-p", "--format=%B")
    assert "the berth opens at" in said
    assert "museum opens at 3 o'clock" not in said
