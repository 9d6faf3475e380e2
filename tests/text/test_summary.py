"""Summaries and titles of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.text.prose import sentences, summarise
from mcp_server.text.transcript_head import LONGEST, slug_of_title, title_of


def words(text: str) -> int:
    return len(text.split())


def test_sentences_with_frequent_words_stay_and_gaps_are_marked() -> None:
    text = (
        "The oven fails at 200 degrees. By the way, nice weather. The oven's thermostat was replaced in May. "
        "I had soup. So the oven needs a new thermostat."
    )
    summary = summarise(text, 20, words)
    assert "thermostat" in summary
    assert "soup" not in summary
    assert " … " in f" {summarise('Alpha beta. Gamma delta. Alpha beta gamma.', 8, words)} "


@given(st.text(max_size=600), st.integers(0, 60))
def test_a_summary_fits_and_says_only_what_was_said(text: str, most: int) -> None:
    summary = summarise(text, most, words)
    assert words(summary) <= most
    assert all(part in text for part in sentences(text) if part in summary)


def test_the_title_is_the_first_line_that_says_something_cut_at_a_word() -> None:
    assert title_of("\n---\n# Fix the login page\nplease") == "Fix the login page"
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


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Ich frage Dr. Seibold. Bis 15. Februar.", ["Ich frage Dr. Seibold.", "Bis 15. Februar."]),
        ("Move on 21.03. at six. From 3.4. We stay.", ["Move on 21.03. at six.", "From 3.4.", "We stay."]),
        ("No. And ask first. See no. 5.", ["No.", "And ask first.", "See no. 5."]),
        ("Make it 15. Then ask.", ["Make it 15.", "Then ask."]),
        ('He said "no." Then he left.\nOne more line', ['He said "no."', "Then he left.", "One more line"]),
        ("Wow!!! Yes?! ok", ["Wow!!!", "Yes?!", "ok"]),
        ("  \n ", []),
    ],
)
def test_sentences_end_at_marks_but_not_at_abbreviations_and_dates(text: str, parts: list[str]) -> None:
    assert sentences(text) == parts
