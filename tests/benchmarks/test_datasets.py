"""The questions of the data sets, and which of the turns that answer them a text holds."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.datasets import DerivedLine, KnownTurn, Question, conversations, inside, units_of
from mcp_server.context.receipt import Considered, Receipt
from mcp_server.errors import Invalid, NotFound
from tests.benchmarks import data


def test_locomo_questions_name_existing_turns_however_their_ids_are_written(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(data.locomo()))
    (conversation,) = conversations(tmp_path / "talk.json")
    assert conversation.name == "talk-1"
    assert conversation.questions == (
        Question("Where was the kayak bought?", frozenset({"D1:1"}), "4"),
        Question("What colour is it, who plays?", frozenset({"D1:2", "D2:1"}), "1"),
    )


def test_beam_questions_leave_out_abstention_and_flatten_their_ids(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "chat.json").write_text(json.dumps(data.beam()))
    (tmp_path / "1" / "probing_questions.json").write_text(json.dumps(data.probing_questions()))
    (conversation,) = conversations(tmp_path)
    assert conversation.questions == (
        Question("How many hives?", frozenset({"1", "2"}), "knowledge_update"),
        Question("Which queen is gone?", frozenset({"3"}), "information_extraction"),
    )


def test_locomo_sessions_have_dates_speakers_and_the_captions_of_pictures(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(data.locomo()))
    first, second = conversations(tmp_path / "talk.json")[0].sessions
    assert (first.session_id, second.session_id) == ("talk-1-session_1", "talk-1-session_2")
    assert first.title == "Mira and Oto, 8 May 2023"
    assert [(t.role, t.name, t.turn_id) for t in first.turns] == [("user", "Mira", "D1:1"), ("user", "Oto", "D1:2")]
    assert first.turns[0].at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert first.turns[0].at < first.turns[1].at < datetime(2023, 5, 8, 13, 57, tzinfo=UTC)
    assert first.turns[1].content == "Show me! [image: a red kayak on a lawn]"


def test_locomo_sessions_are_ordered_by_number_and_one_without_a_date_is_a_day_later(tmp_path: Path) -> None:
    turns = [{"speaker": "Mira", "dia_id": "D2:1", "text": "Hello."}]
    talk = {"session_10": turns, "session_2": turns, "session_2_date_time": "9:00 am on 2 June, 2023"}
    asked = [{"question": "Who?", "evidence": ["D2:1"]}]
    (tmp_path / "talk.json").write_text(json.dumps([{"sample_id": "x", "conversation": talk, "qa": asked}]))
    sessions = conversations(tmp_path)[0].sessions
    assert [session.session_id for session in sessions] == ["x-session_2", "x-session_10"]
    assert sessions[1].turns[0].at == datetime(2023, 6, 3, 9, tzinfo=UTC)


@pytest.mark.parametrize("document", [data.beam(), [{"plan-1": data.beam()}]], ids=["batches", "batches in plans"])
def test_each_batch_of_beam_is_a_session_with_the_days_of_its_anchors(tmp_path: Path, document: Any) -> None:
    (tmp_path / "chat.json").write_text(json.dumps(document))
    (tmp_path / "probing_questions.json").write_text(json.dumps(data.probing_questions()))
    first, second = conversations(tmp_path / "chat.json")[0].sessions
    assert first.session_id.removesuffix("batch-1") == second.session_id.removesuffix("batch-2")
    assert [(turn.role, turn.turn_id) for turn in first.turns] == [("user", "0"), ("agent", "1"), ("user", "2")]
    assert [turn.turn_id for turn in second.turns] == ["3", "6"], "without an unknown role and an empty message"
    assert first.turns[0].at == datetime(2024, 3, 15, 12, tzinfo=UTC)
    assert first.turns[0].at < first.turns[1].at < first.turns[2].at
    assert second.turns[0].at == datetime(2024, 4, 2, 12, tzinfo=UTC)


def test_a_data_set_that_is_none_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing at"):
        conversations(tmp_path / "nowhere")
    with pytest.raises(Invalid, match="no conversations with questions"):
        conversations(tmp_path)
    (tmp_path / "chat.json").write_text(json.dumps(data.beam()))
    with pytest.raises(NotFound, match="probing_questions"):
        conversations(tmp_path)
    (tmp_path / "probing_questions.json").write_text("{")
    with pytest.raises(Invalid, match="not JSON"):
        conversations(tmp_path)


TURN = KnownTurn("t1", "raw/a.md#1", "Ana: I only take window seats on trains.")
LINE = {"knowledge/people/user.md#7": DerivedLine("- Only takes window seats.", frozenset({TURN.unit}))}


def receipt(*considered: Considered) -> Receipt:
    return Receipt("", 1000, 10, "add", "", "", (), 0, considered, {}, None, {})


def test_a_turn_counts_with_its_words_its_part_or_a_line_that_was_derived_from_it() -> None:
    found = Considered("raw/a.md:3-3", "knowledge", "raw/a.md", True, "relevant", unit=TURN.unit)
    line = Considered(
        "knowledge/people/user.md:7-7", "knowledge", "", True, "relevant", unit="knowledge/people/user.md#7"
    )
    always = "## Preferences\n- Only takes  window seats.\n"
    assert inside([TURN], f"history\n{TURN.shown}\n", units_of(receipt())) == {"t1"}
    assert inside([TURN], "window seats …", units_of(receipt(found))) == {"t1"}
    assert inside([TURN], "", units_of(receipt(line)), LINE) == {"t1"}
    assert inside([TURN], always, units_of(receipt()), LINE) == {"t1"}


def test_what_is_not_in_the_context_does_not_count() -> None:
    out = Considered("raw/a.md:3-3", "knowledge", "raw/a.md", False, "no room", unit=TURN.unit)
    assert inside([TURN], "- Only takes aisle seats.", units_of(receipt(out)), LINE) == frozenset()
    assert inside([TURN], "- Only takes window seats.", units_of(receipt(out))) == frozenset()
