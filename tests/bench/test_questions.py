"""Questions are those of SPEC §19: with evidence that exists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.bench.questions import Question, conversations
from mcp_server.errors import Invalid, NotFound
from tests.clients.importers import data


def test_locomo_questions_name_existing_turns_however_their_ids_are_written(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(data.locomo()))
    (conversation,) = conversations(tmp_path / "talk.json", "locomo")
    assert conversation.name == "talk-1"
    assert conversation.questions == (
        Question("Where was the kayak bought?", frozenset({"D1:1"}), "4"),
        Question("What colour is it, who plays?", frozenset({"D1:2", "D2:1"}), "1"),
    )


def test_beam_questions_leave_out_abstention_and_flatten_their_ids(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "chat.json").write_text(json.dumps(data.beam()))
    (tmp_path / "1" / "probing_questions.json").write_text(json.dumps(data.probing_questions()))
    (conversation,) = conversations(tmp_path, "beam")
    assert conversation.questions == (
        Question("How many hives?", frozenset({"1", "2"}), "knowledge_update"),
        Question("Which queen is gone?", frozenset({"3"}), "information_extraction"),
    )


def test_a_data_set_that_is_none_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nothing at"):
        list(conversations(tmp_path / "nowhere", "locomo"))
    with pytest.raises(Invalid, match="no beam conversation"):
        list(conversations(tmp_path, "beam"))
    (tmp_path / "chat.json").write_text(json.dumps(data.beam()))
    with pytest.raises(NotFound, match="probing_questions"):
        list(conversations(tmp_path, "beam"))
    (tmp_path / "probing_questions.json").write_text("{")
    with pytest.raises(Invalid, match="not JSON"):
        list(conversations(tmp_path, "beam"))
