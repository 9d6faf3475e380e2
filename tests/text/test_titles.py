"""A conversation is called by its first words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.transcript_head import LONGEST, slug_of_title, title_of


def test_the_title_is_the_first_line_that_says_something() -> None:
    assert title_of("\n---\n# Fix the login page\nplease") == "Fix the login page"


def test_a_long_line_is_cut_at_a_word() -> None:
    title = title_of("word " * 40)
    assert len(title) <= LONGEST
    assert title.endswith("word…")


@given(st.text())
def test_any_message_gives_a_title_and_a_file_name(content: str) -> None:
    title = title_of(content)
    assert title
    assert "\n" not in title
    assert len(title) <= LONGEST
    assert slug_of_title(title).isascii()
