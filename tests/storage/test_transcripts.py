"""Transcripts on disk: named by their start, appended durably, sealed without moving a line."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mcp_server.errors import Conflict, Invalid, Refused
from mcp_server.model import KnowledgeChange, TranscriptHead, Turn
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.transcripts import Transcripts
from mcp_server.text.transcript import render_turn
from tests.killing import killed_at_each_step

START = datetime(2026, 2, 16, 18, 45, tzinfo=UTC)
HEAD = TranscriptHead("ses_a1", START, "Plan — the map", "plan-the-map")


def said(number: int, content: str = "hello") -> Turn:
    return Turn(number, "user", content, START + timedelta(seconds=number))


@pytest.fixture
def transcripts(files: WorkspaceFiles) -> Transcripts:
    return Transcripts(files)


def test_a_conversation_lies_where_its_start_says(transcripts: Transcripts) -> None:
    first, _ = transcripts.create(HEAD, said(1))
    second, _ = transcripts.create(HEAD, said(2))

    assert first == "raw/conversations/2026/02/16/1845-ses_a1-plan-the-map.md"
    assert second == "raw/conversations/2026/02/16/1845-ses_a1-plan-the-map-2.md"
    assert list(transcripts.all()) == sorted([first, second])
    assert transcripts.find("ses_a1") == [first, second]
    assert transcripts.read(first).head == HEAD


@pytest.mark.parametrize("session", ["../../x", "a/b", "", ".", "con", "šta", "x" * 200, "a b", "\ud800", "-", "a\nb"])
def test_an_id_that_is_no_file_name_is_kept_in_the_front_matter(transcripts: Transcripts, session: str) -> None:
    head = replace(HEAD, session_id=session or "?")

    path, _ = transcripts.create(head, said(1))

    assert transcripts.read(path).head == head
    assert transcripts.find(head.session_id) == [path]


def test_ids_that_begin_alike_are_not_mixed_up(transcripts: Transcripts) -> None:
    one, _ = transcripts.create(replace(HEAD, session_id="a", slug="b-c"), said(1))
    other, _ = transcripts.create(replace(HEAD, session_id="a-b", slug="c"), said(1))

    assert transcripts.find("a") == [one]
    assert transcripts.find("a-b") == [other]


def test_appends_are_read_back_whole_and_from_the_middle(transcripts: Transcripts) -> None:
    path, size = transcripts.create(HEAD, said(1))
    change = KnowledgeChange("knowledge/memory/MEMORY.md", "appended", "the plan", START + timedelta(seconds=1))
    middle = transcripts.append(path, change, size, START, 1)
    end = transcripts.append(path, said(2, "## again\n"), middle, change.at)

    whole = transcripts.read(path)
    tail = transcripts.tail(path, middle, whole.placed_changes[0].end + 1, 1, change.at)

    assert [placed.turn for placed in whole.turns] == [said(1), said(2, "## again\n")]
    assert whole.changes == (change,)
    assert whole.placed_changes[0].after == 1
    assert tail.turns == whole.turns[1:]
    assert whole.complete_bytes == end == middle + tail.complete_bytes


def test_a_torn_append_is_cut_off_by_the_next_one(files: WorkspaceFiles, transcripts: Transcripts) -> None:
    path, size = transcripts.create(HEAD, said(1))
    intact = files.read_bytes(path)
    block = render_turn(said(2, "dva 😀\nreda"), START).encode()
    for cut in (0, 1, len(block) // 3, block.index("😀".encode()) + 2, len(block) - 2, len(block) - 1):
        files.write_bytes_atomic(path, intact + block[:cut])
        assert transcripts.read(path).complete_bytes == size
        assert transcripts.tail(path, size, 1, 1, START).complete_bytes == 0

        transcripts.append(path, said(2, "whole"), size, START)

        assert [placed.turn for placed in transcripts.read(path).turns] == [said(1), said(2, "whole")]


def test_an_append_behind_somebody_elses_is_a_conflict(transcripts: Transcripts) -> None:
    path, size = transcripts.create(HEAD, said(1))
    transcripts.append(path, said(2), size, START)

    with pytest.raises(Conflict, match="has grown"):
        transcripts.append(path, said(2, "mine"), size, START)
    assert len(transcripts.read(path).turns) == 2


def test_sealing_moves_no_line_and_closes_the_file(files: WorkspaceFiles, transcripts: Transcripts) -> None:
    path, size = transcripts.create(HEAD, said(1))
    transcripts.append(path, said(2), size, START)
    before = files.read_text(path).split("\n")
    with (files.root / path).open("ab") as stream:
        stream.write(b"\n## 18:4")
    head = replace(HEAD, ended=START, topic="maps", tags=("a", "b c"), tokens_in=7, knowledge_changes=(
        KnowledgeChange("knowledge/x.md", "appended", "one: two", START),))  # fmt: skip

    sealed = transcripts.replace_head(path, head, sealed=True)

    after = files.read_text(path).split("\n")
    body = before.index("# Plan — the map")
    assert after[body:] == before[body:]
    assert len(after) == len(before)
    assert transcripts.read(path).head == head
    assert sealed == files.stat(path).size
    assert (files.root / path).stat().st_mode & 0o777 == 0o444
    with pytest.raises(Refused, match="sealed"):
        transcripts.append(path, said(3), sealed, START)


def test_sealed_parts_of_a_session_come_in_the_order_of_their_turns(
    files: WorkspaceFiles, transcripts: Transcripts
) -> None:
    later, _ = transcripts.create(replace(HEAD, started=START - timedelta(days=3)), said(3), sealed=True)
    first, _ = transcripts.create(HEAD, said(1), said(2), sealed=True)

    assert transcripts.find("ses_a1") == [first, later]
    assert [placed.turn.number for placed in transcripts.read(first).turns] == [1, 2]
    assert (files.root / first).stat().st_mode & 0o777 == 0o444


def test_a_broken_transcript_names_file_and_field_and_hides_no_other(
    files: WorkspaceFiles, transcripts: Transcripts
) -> None:
    path, _ = transcripts.create(HEAD, said(1))
    files.write_atomic("raw/conversations/2026/02/17/0000-ses_a1-x.md", "---\nsession_id: ses_a1\nstarted: [\n---\n")

    with pytest.raises(Invalid, match=r"0000-ses_a1-x\.md: line \d"):
        transcripts.read("raw/conversations/2026/02/17/0000-ses_a1-x.md")
    assert transcripts.find("ses_a1") == [path]


def test_front_matter_written_by_hand_is_understood(files: WorkspaceFiles, transcripts: Transcripts) -> None:
    files.write_atomic(
        "raw/conversations/2026/02/16/1845-ses_h-by-hand.md",
        "---\nsession_id: ses_h\nstarted: 2026-02-16T18:45:00Z  # about\ntags:\n  - a\n  - b\nmood: 'good'\n---\n\n"
        "# By hand\n\n## 18:45 — user\nHello\n",
    )

    read = transcripts.read("raw/conversations/2026/02/16/1845-ses_h-by-hand.md")

    assert read.head.tags == ("a", "b")
    assert read.head.extra == {"mood": "good"}
    assert read.head.slug == "by-hand"
    assert read.head.started == START


APPENDING = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from mcp_server.model import Turn
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.transcripts import Transcripts
from tests.killing import die_at
transcripts = Transcripts(WorkspaceFiles(Path(sys.argv[1])))
at = datetime(2026, 2, 16, tzinfo=UTC)
path = sys.argv[2]
read = transcripts.read(path)
size, last = read.complete_bytes, len(read.turns)
die_at(int(sys.argv[3]), *((os, name) for name in ("open", "lseek", "write", "fsync", "close")))
for number in (last + 1, last + 2):
    size = transcripts.append(path, Turn(number, "user", f"turn {number} " * 400, at), size, at)
    print(number, flush=True)
"""


def test_a_kill_at_any_step_of_appending_loses_nothing_acknowledged(
    files: WorkspaceFiles, transcripts: Transcripts
) -> None:
    path, _ = transcripts.create(HEAD, Turn(1, "user", "turn 1 " * 400, START))
    for done in killed_at_each_step(APPENDING, str(files.root), path):
        acknowledged = max(map(int, done.stdout.split()), default=0)

        turns = [placed.turn for placed in transcripts.read(path).turns]

        assert len(turns) >= acknowledged
        assert all(turn.content == f"turn {turn.number} " * 400 for turn in turns)
        assert [turn.number for turn in turns] == list(range(1, len(turns) + 1))


def test_a_conversation_with_a_very_long_front_matter_is_found(transcripts: Transcripts) -> None:
    changes = tuple(KnowledgeChange(f"knowledge/people/{n}.md", "appended", "x" * 100, START) for n in range(1_000))
    path, _ = transcripts.create(HEAD, said(1))
    transcripts.replace_head(
        path, replace(HEAD, ended=START, knowledge_changes=changes, continues="raw/before.md"), sealed=True
    )

    assert transcripts.find("ses_a1") == [path]
    assert transcripts.head(path).continues == "raw/before.md"


LONG_AGO = (1_000_000_000, 1_000_000_000)


def made(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def test_files_are_found_in_all_folders(tmp_path: Path) -> None:
    made(
        tmp_path,
        "2026/02/16/1800-a-x.md",
        "2026/02/17/0900-a-y.md",
        "2026/02/17/0900-b-y.md",
        "2026/a-.txt",
        ".x-a-.md",
    )
    (tmp_path / "2026" / "link-a-.md").symlink_to(tmp_path / ".x-a-.md")
    assert sorted(WorkspaceFiles(tmp_path).names("2026", "-a-")) == ["2026/02/16/1800-a-x.md", "2026/02/17/0900-a-y.md"]


def test_what_comes_and_goes_is_seen(tmp_path: Path) -> None:
    files = WorkspaceFiles(tmp_path)
    assert files.names("raw", "-a-") == []
    made(tmp_path, "raw/2026/one-a-.md")
    assert files.names("raw", "-a-") == ["raw/2026/one-a-.md"]
    os.utime(tmp_path / "raw" / "2026", LONG_AGO)
    assert files.names("raw", "-a-") == ["raw/2026/one-a-.md"]
    made(tmp_path, "raw/2026/two-a-.md")
    assert sorted(files.names("raw", "-a-")) == ["raw/2026/one-a-.md", "raw/2026/two-a-.md"]
    (tmp_path / "raw" / "2026" / "one-a-.md").unlink()
    assert files.names("raw", "-a-") == ["raw/2026/two-a-.md"]


def test_a_folder_that_did_not_change_is_not_listed_again(tmp_path: Path) -> None:
    made(tmp_path, "2026/one-a-.md")
    os.utime(tmp_path / "2026", LONG_AGO)
    files = WorkspaceFiles(tmp_path)
    assert files.names("2026", "-a-") == ["2026/one-a-.md"]
    made(tmp_path, "2026/two-a-.md")
    os.utime(tmp_path / "2026", LONG_AGO)  # as if nothing had happened
    assert files.names("2026", "-a-") == ["2026/one-a-.md"]
