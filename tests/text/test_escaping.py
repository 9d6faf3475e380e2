"""Escaped text holds no structure and loses nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.transcript import escape, escape_line, unescape, unescape_line
from tests.text.test_transcript import ANY_TEXT


@given(ANY_TEXT)
def test_escaping_loses_nothing_and_leaves_nothing_that_looks_like_structure(text: str) -> None:
    escaped = escape(text)

    assert unescape(escaped) == text
    assert not any(line.startswith(("## ", "> [", "<!--")) for line in escaped.split("\n"))
    assert escaped.count("\n") == text.count("\n")
    escaped.encode()


@given(ANY_TEXT, st.sampled_from(["", "]", "→", "—"]))
def test_a_line_stays_one_line_without_what_it_must_not_hold(text: str, also: str) -> None:
    escaped = escape_line(text, also)

    assert unescape_line(escaped) == text
    assert not {"\n", *also} & set(escaped)


def test_a_code_that_is_no_character_is_left_as_it_is() -> None:
    assert unescape("\\u{ffffff} \\u{41}") == "\\u{ffffff} A"
