"""Imports are recorded once, whatever is imported how often, and account for what was left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.clients.importers.run import import_path
from mcp_server.conversations.sessions import list_sessions
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from tests.clients.importers import data

pytestmark = pytest.mark.anyio


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(data.chats()), encoding="utf-8")
    return path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "My notes"
    (folder / "sub").mkdir(parents=True)
    (folder / "one.md").write_text("# One\n\nText.\n", encoding="utf-8")
    (folder / "sub" / "two.md").write_text("# Two\n", encoding="utf-8")
    (folder / "picture.svg").write_text("<svg/>", encoding="utf-8")
    return folder


async def test_importing_again_adds_nothing(memory: Memory, talk: Path, notes: Path) -> None:
    for path in (talk, notes):
        seen: list[tuple[int, int, str]] = []
        first = await import_path(memory, path, watch=lambda *step, seen=seen: seen.append(step))
        assert first.new_turns + first.new_files > 0
        assert seen[-1][0] == seen[-1][1] > 0
        again = await import_path(memory, path, anew=True)
        assert (again.new_sessions, again.new_turns, again.new_files, again.changed_files) == (0, 0, 0, 0)
        assert (again.turns, again.files) == (first.turns, first.files)
        assert again.skipped == first.skipped


async def test_notes_go_to_reference_under_the_folders_name(memory: Memory, notes: Path, workspace: Path) -> None:
    report = await import_path(memory, notes)
    assert (report.files, report.new_files, report.skipped_count) == (2, 2, 1)
    assert report.skipped[0].name == "picture.svg"
    assert (workspace / "knowledge/reference/my-notes/sub/two.md").read_text(encoding="utf-8") == "# Two\n"
    write(notes / "one.md", "# One, changed\n")
    assert (await import_path(memory, notes)).changed_files == 1
    await import_path(memory, notes / "one.md", name="other")
    assert (workspace / "knowledge/reference/other/one.md").exists()


async def test_a_broken_file_keeps_what_came_before_the_break(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    write(path, json.dumps(data.chats())[:-1] + ', {"uuid": "cut')
    with pytest.raises(Invalid, match=r"talk\.json"):
        await import_path(memory, path)
    assert len(await list_sessions(memory)) == 2


async def test_what_is_not_there_is_said(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing at"):
        await import_path(memory, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"conversations\.json"):
        await import_path(memory, tmp_path / "empty", kind="claude-ai")


async def test_the_account_reads_well(memory: Memory, talk: Path, notes: Path) -> None:
    assert "2 sessions, 3 turns imported" in (await import_path(memory, talk)).markdown
    again = (await import_path(memory, talk, anew=True)).markdown
    assert "3 turns already recorded" in again
    assert "imported:" not in again
    said = (await import_path(memory, notes)).markdown
    assert "2 files imported" in said
    assert "picture.svg: not markdown" in said


async def test_what_was_skipped_is_grouped_by_reason(memory: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    write(folder / "a.md", "# A")
    for number in range(50):
        write(folder / f"{number:02}.svg", "<svg/>")
    report = await import_path(memory, folder)
    assert report.reasons == {"not markdown (.svg)": 50}
    assert "50 skipped:\n  50 × not markdown (.svg): 00.svg, 01.svg, 02.svg, …" in report.markdown


async def test_many_reasons_are_summed_up(memory: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    write(folder / "a.md", "# A")
    for number in range(40):
        write(folder / f"x.s{number}", "?")
    lines = (await import_path(memory, folder)).markdown.splitlines()
    assert lines[-1] == "  16 for 16 other reasons (--json names them)"
    assert len(lines) < 30
