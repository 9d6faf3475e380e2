"""Which things a message names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.forgotten import MARK
from mcp_server.text.named_things import LONGEST_READ, extract, item_id, known_in


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("ClaraCore is down", {"claracore": "project"}),
        ("merge focus-engine today", {"focus-engine": "project", "merge": "keyword"}),
        ("use web_search and memory_search", {"tool:web_search": "tool", "tool:memory_search": "tool"}),
        ("see SOUL.md and memory/active-context.md", {"soul.md": "file", "memory/active-context.md": "file"}),
        ("src/app.py fails", {"src/app.py": "file", "fails": "keyword"}),
        ("the oven", {"oven": "keyword"}),
        ("ok, thanks!", {}),
        ("", {}),
        (
            "a high-quality, up-to-date oven",
            {"high": "keyword", "quality": "keyword", "date": "keyword", "oven": "keyword"},
        ),
        ("see https://example.org/FooBar/x_y.py", {}),
    ],
)
def test_names_are_known_by_their_shape(text: str, items: dict[str, str]) -> None:
    assert extract(text) == items


def test_of_fenced_code_only_files_count() -> None:
    pasted = 'Map the address.\n```json\n{"fieldAlpha": 1, "street_name": "Trg"}\n# src/app.py\n```\nThen the weight.'
    assert extract(pasted) == {"src/app.py": "file", "map": "keyword", "address": "keyword", "weight": "keyword"}


def test_a_called_tool_counts_by_its_name_whatever_its_shape() -> None:
    assert extract("", ["Bash", "Read"]) == {"tool:bash": "tool", "tool:read": "tool"}


def test_a_name_inside_another_is_not_counted_again() -> None:
    assert extract("focus-core/src/app.py") == {"focus-core/src/app.py": "file"}


def test_an_answer_refers_only_to_what_is_known() -> None:
    assert known_in("ClaraCore and the oven", (), {"oven": 1}) == ["oven"]


def test_marks_of_what_was_taken_out_name_nothing() -> None:
    assert extract(f"the oven {MARK} and [redacted:api-key] here") == {"oven": "keyword"}


def test_of_a_very_long_message_both_ends_are_read() -> None:
    text = "FirstThing " + "x" * (2 * LONGEST_READ) + " LastThing"
    assert {"firstthing", "lastthing"} <= extract(text).keys()


@pytest.mark.parametrize(
    ("said", "counted"),
    [("web_search", "tool:web_search"), ("ClaraCore", "claracore"), ("Winter Berth", "winter berth"), ("x", "x")],
)
def test_what_a_person_names_has_the_id_under_which_it_is_counted(said: str, counted: str) -> None:
    assert item_id(said) == counted


@given(st.text(max_size=300))
def test_any_text_gives_lower_case_ids_of_bounded_length(text: str) -> None:
    assert all(item == item.lower() and 0 < len(item) <= 110 for item in extract(text))
