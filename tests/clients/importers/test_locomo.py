"""LoCoMo files become sessions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from mcp_server.clients.importers import locomo
from mcp_server.clients.importers.imported import Skipped
from mcp_server.conversations.imports import ImportedSession
from tests.clients.importers import data


def read(tmp_path: Path, document: object) -> tuple[list[ImportedSession], list[Skipped]]:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    pieces = list(locomo.read(path))
    return [p for p in pieces if isinstance(p, ImportedSession)], [p for p in pieces if isinstance(p, Skipped)]


def test_each_session_with_turns_is_one_session_with_its_date_and_speakers(tmp_path: Path) -> None:
    (first, second), _ = read(tmp_path, data.locomo())
    assert (first.session_id, second.session_id) == ("talk-1-session_1", "talk-1-session_2")
    assert first.source == "import:locomo"
    assert first.title == "Mira and Oto, 8 May 2023"
    assert [(t.role, t.name, t.turn_id) for t in first.turns] == [("user", "Mira", "D1:1"), ("user", "Oto", "D1:2")]
    assert first.turns[0].at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert first.turns[0].at < first.turns[1].at < datetime(2023, 5, 8, 13, 57, tzinfo=UTC)


def test_what_is_seen_on_a_picture_is_part_of_the_turn(tmp_path: Path) -> None:
    (first, _), _ = read(tmp_path, data.locomo())
    assert first.turns[1].content == "Show me! [image: a red kayak on a lawn]"


def test_a_turn_without_text_is_named(tmp_path: Path) -> None:
    _, (skipped,) = read(tmp_path, data.locomo())
    assert skipped == Skipped("talk-1, session_1, D1:3", "holds no text")


def test_sessions_come_by_number_and_one_without_a_date_follows_the_last_by_a_day(tmp_path: Path) -> None:
    turns = [{"speaker": "Mira", "dia_id": "D1:1", "text": "Hello."}]
    conversation = {"session_10": turns, "session_2": turns, "session_2_date_time": "9:00 am on 2 June, 2023"}
    sessions, skipped = read(tmp_path, [{"sample_id": "x", "conversation": conversation}])
    assert [session.session_id for session in sessions] == ["x-session_2", "x-session_10"]
    assert sessions[1].turns[0].at == datetime(2023, 6, 3, 9, tzinfo=UTC)
    assert skipped[0].name == "x, session_10_date_time"


def test_a_conversation_without_a_name_gets_one_that_two_files_do_not_share(tmp_path: Path) -> None:
    one = {"conversation": {"session_1": [{"speaker": "A", "text": "Hello."}]}}
    other = {"conversation": {"session_1": [{"speaker": "A", "text": "Good day."}]}}
    first, second = (read(tmp_path, [document])[0][0].session_id for document in (one, other))
    assert first.startswith("talk-1-")
    assert first != second


def test_what_is_no_conversation_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    strange = ["text", {"sample_id": "y", "conversation": 3}, {"conversation": {"session_1": "?"}, "sample_id": "z"}]
    sessions, skipped = read(tmp_path, [*strange, {"sample_id": "w", "conversation": {}}, *data.locomo()])
    assert len(sessions) == 2
    assert [item.name for item in skipped][:4] == ["talk.json, conversation 1", "y", "z, session_1", "w"]
