"""What a message names: S0 "Entity Extraction"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.core.clarity.extraction import extract, known_in


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


def test_a_called_tool_counts_by_its_name_whatever_its_shape() -> None:
    assert extract("", ["Bash", "Read"]) == {"tool:bash": "tool", "tool:read": "tool"}


def test_a_name_inside_another_is_not_counted_again() -> None:
    assert extract("focus-core/src/app.py") == {"focus-core/src/app.py": "file"}


def test_an_answer_refers_only_to_what_is_known() -> None:
    assert known_in("ClaraCore and the oven", (), {"oven": 1}) == ["oven"]


@given(st.text(max_size=300))
def test_any_text_gives_lower_case_ids_of_bounded_length(text: str) -> None:
    assert all(item == item.lower() and 0 < len(item) <= 110 for item in extract(text))
