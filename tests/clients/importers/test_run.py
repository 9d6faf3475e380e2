"""Imports are recorded once, whatever is imported how often, and account for what was left out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mcp_server.clients.importers import run
from mcp_server.clients.importers.imported import Skipped
from mcp_server.clients.importers.run import detect, import_path
from mcp_server.conversations.sessions import list_sessions
from mcp_server.errors import Invalid, NotFound
from mcp_server.memory import Memory
from tests.benchmarks import data as benchmark_data
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
    (folder / "one.MD").write_text("# One\n\nText.\n", encoding="utf-8")
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
    write(notes / "one.MD", "# One, changed\n")
    assert (await import_path(memory, notes)).changed_files == 1
    await import_path(memory, notes / "one.MD", name="other")
    assert (workspace / "knowledge/reference/other/one.MD").exists()


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


def test_a_format_that_is_not_known_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    (tmp_path / "note.txt").write_text("text")
    (tmp_path / "empty").mkdir()
    (tmp_path / "locomo.json").write_text(json.dumps(benchmark_data.locomo()))
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "chat.json").write_text(json.dumps(benchmark_data.beam()))
    (tmp_path / "other.jsonl").write_text('{"a": 1}')
    for path in ("other.json", "other.jsonl", "note.txt", "empty", "locomo.json", "chats", "chats/chat.json"):
        with pytest.raises(Invalid, match="--format"):
            detect(tmp_path / path)


def pieces(path: Path) -> dict[str, bytes | Skipped]:
    return {relative: run.read_one(found, relative) for found, relative in run.listing(path)}


def skipped(path: Path) -> dict[str, str]:
    return {piece.name: piece.why for piece in pieces(path).values() if isinstance(piece, Skipped)}


def read(path: Path) -> dict[str, bytes]:
    return {relative: piece for relative, piece in pieces(path).items() if not isinstance(piece, Skipped)}


def test_what_cannot_be_read_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("good")
    (tmp_path / "picture.svg").write_text("<svg/>")
    (tmp_path / "Makefile").write_text("all:")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.md").write_text("not ours")
    reasons = skipped(tmp_path)
    assert list(read(tmp_path)) == ["good.md"]
    assert set(reasons) == {"picture.svg", "Makefile", ".git/"}
    assert ".svg" in reasons["picture.svg"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    (inside / "out.md").symlink_to(outside / "secret.md")
    (inside / "folder").symlink_to(outside)
    (inside / "broken.md").symlink_to(inside / "nowhere.md")
    (inside / "real.md").write_text("real")
    (inside / "near.md").symlink_to(inside / "real.md")
    assert read(inside) == {"real.md": b"real", "near.md": b"real"}
    assert set(skipped(inside)) == {"out.md", "folder/", "broken.md"}


def test_a_file_that_no_person_wrote_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LARGEST", 10)
    (tmp_path / "large.md").write_text("x" * 11)
    assert list(skipped(tmp_path)) == ["large.md"]
