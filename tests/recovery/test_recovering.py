"""Names of what could come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.recovery.recover import path_and_revision
from mcp_server.recovery.recoverable import lost_lines, matching
from mcp_server.text.entries import entry_id


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("knowledge/a.md@HEAD", ("knowledge/a.md", "HEAD")),
        ("knowledge/a.md@HEAD@{1}", ("knowledge/a.md", "HEAD@{1}")),
        ("knowledge/people/ana@work.md@2026-01-31", ("knowledge/people/ana@work.md", "2026-01-31")),
        ("knowledge/a.md@origin/main", ("knowledge/a.md", "origin/main")),
        ("knowledge/LICENSE@v1", ("knowledge/LICENSE", "v1")),
        ("knowledge/a.md@", None),
        ("@HEAD", None),
        ("knowledge/a.md", None),
        ("", None),
    ],
)
def test_a_path_and_its_revision(what: str, expected: tuple[str, str] | None) -> None:
    assert path_and_revision(what) == expected


@given(st.text())
def test_no_text_breaks_it(what: str) -> None:
    split = path_and_revision(what)
    assert split is None or "@".join(split) == what


def test_an_entry_has_one_id_wherever_it_stands() -> None:
    assert entry_id("- 2026-01-01: a fact\n") == entry_id("- 2026-01-01: a fact")
    assert entry_id("- a fact") != entry_id("- another fact")


def test_lost_lines_are_those_that_are_there_less_often() -> None:
    assert lost_lines("a\n\nb\nb\nc\n", "b\nc\nd\n") == ["a", "b"]
    assert lost_lines("a\n", "a\n") == []


def test_the_line_that_holds_most_of_a_query_is_shown() -> None:
    lines = ["- the kayak is blue", "- a new paddle for the kayak", "- tea"]
    assert matching("Which paddle for the kayak?", lines) == (2, "- a new paddle for the kayak")
    assert matching("xylophone", lines) == (0, "")
    assert matching("the", ["the"]) == (1, "the")
