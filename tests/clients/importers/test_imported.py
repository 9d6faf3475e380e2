"""Long sessions are recorded in parts; what has no id or name of its own gets one that stays the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.clients.importers import imported
from mcp_server.clients.importers.imported import in_parts, plain_id, short_name
from mcp_server.conversations.imports import ImportedSession, ImportedTurn
from mcp_server.text.markdown import read_moment

AT = datetime(2026, 2, 16, tzinfo=UTC)


def session(*contents: str) -> ImportedSession:
    turns = tuple(ImportedTurn("user", content, AT, str(place)) for place, content in enumerate(contents))
    return ImportedSession("s", turns, "import:test")


def test_a_long_session_comes_in_parts_that_hold_every_turn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported, "LARGEST_PART", 10)
    whole = session("one", "a" * 20, "two", "three", "four")
    parts = list(in_parts(whole))
    assert [len(part.turns) for part in parts] == [2, 3]
    assert tuple(turn for part in parts for turn in part.turns) == whole.turns
    assert list(in_parts(session("short"))) == [session("short")]
    assert len(list(in_parts(session("a" * 20, "b")))) == 2


def test_turns_without_ids_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported, "LARGEST_PART", 3)
    whole = session("one", "two", "three")
    nameless = replace(whole, turns=tuple(replace(turn, turn_id=None) for turn in whole.turns))
    assert list(in_parts(nameless)) == [nameless]


def test_an_id_is_taken_over_or_made_of_what_was_said() -> None:
    turn = ImportedTurn("user", "hello \ud800", AT)
    assert plain_id(" abc ", turn) == "abc"
    assert plain_id(7, turn) == "7"
    made = {plain_id(odd, turn) for odd in (None, "", True, "x" * 500, "a\nb", ["a"])}
    assert len(made) == 1
    assert made != {plain_id(None, replace(turn, content="else"))}


def test_names_for_ids_hold_no_spaces_or_slashes() -> None:
    assert short_name(Path("/notes/My notes (2024)")) == "My-notes-2024"
    assert short_name(Path("/")) == "import"


def test_a_time_with_a_zone_is_converted_and_what_is_no_date_is_none() -> None:
    assert read_moment("2024-03-15T09:30:00+02:00") == datetime(2024, 3, 15, 7, 30, tzinfo=UTC)
    assert read_moment("2024-03-15 09:30") == datetime(2024, 3, 15, 9, 30, tzinfo=UTC)
    assert [read_moment(text) for text in ("", "2024-02-30", "8 May, 2023")] == [None] * 3


@given(st.text())
def test_no_text_makes_reading_a_time_raise(text: str) -> None:
    read_moment(text)
