"""BEAM chats become sessions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcp_server.clients.importers import beam
from mcp_server.clients.importers.imported import Skipped
from mcp_server.conversations.imports import ImportedSession
from tests.clients.importers import data


def read(folder: Path, document: Any) -> tuple[list[ImportedSession], list[Skipped]]:
    folder.mkdir(exist_ok=True)
    path = folder / "chat.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    pieces = list(beam.read(path))
    return [p for p in pieces if isinstance(p, ImportedSession)], [p for p in pieces if isinstance(p, Skipped)]


def test_each_batch_is_one_session_and_the_message_ids_are_turn_ids(tmp_path: Path) -> None:
    (first, second), _ = read(tmp_path / "1", data.beam())
    assert first.session_id.startswith("1-")
    assert first.session_id.removesuffix("batch-1") == second.session_id.removesuffix("batch-2")
    assert [(turn.role, turn.turn_id) for turn in first.turns] == [("user", "0"), ("agent", "1"), ("user", "2")]
    assert first.title == "I keep bees on a roof."


def test_time_anchors_give_the_day_and_turns_follow_each_other(tmp_path: Path) -> None:
    (first, second), _ = read(tmp_path / "1", data.beam())
    assert first.turns[0].at == datetime(2024, 3, 15, 12, tzinfo=UTC)
    assert first.turns[0].at < first.turns[1].at < first.turns[2].at
    assert second.turns[0].at == datetime(2024, 4, 2, 12, tzinfo=UTC)


def test_a_message_of_an_unknown_role_or_without_text_is_named(tmp_path: Path) -> None:
    (_, second), skipped = read(tmp_path / "1", data.beam())
    assert [turn.turn_id for turn in second.turns] == ["3", "6"]
    assert [item.name for item in skipped] == ["1/chat.json, batch 2, message 4", "1/chat.json, batch 2, message 5"]


def test_two_chats_in_folders_of_one_name_do_not_share_sessions(tmp_path: Path) -> None:
    (mine, _), _ = read(tmp_path / "1", data.beam())
    other = data.beam()
    other[0]["turns"][0][0]["content"] = "I keep goats."
    (theirs, _), _ = read(tmp_path / "1", other)
    assert mine.session_id != theirs.session_id


def test_without_any_time_the_files_own_is_taken(tmp_path: Path) -> None:
    (session,), _ = read(tmp_path / "1", [{"batch_number": 1, "turns": [{"role": "user", "id": 0, "content": "Hi."}]}])
    assert session.turns[0].at.year >= 2024


def test_batches_inside_plans_are_found_and_what_is_none_is_named(tmp_path: Path) -> None:
    sessions, skipped = read(tmp_path / "1", [{"plan-1": data.beam()}, "text"])
    assert len(sessions) == 2
    assert skipped[-1].name == "1/chat.json, batch 3"
