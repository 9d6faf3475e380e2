"""The flush: what says of itself that it is a decision, a lesson or a thing to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.knowledge.flush import LONGEST, MOST_LINES, lines, lines_of


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("Decision: we use SQLite for the index.", "decision", "we use SQLite for the index."),
        ("- **Decision:** use SQLite here", "decision", "use SQLite here"),
        ("Fine. Decision: use SQLite here.", "decision", "use SQLite here."),
        ("After all that we decided to move the oven to deck two.", "decision", "move the oven"),
        ("Lesson learned: never bake at three hundred degrees.", "lesson", "never bake at three hundred degrees."),
        ("Root cause: the thermostat was loose", "lesson", "the thermostat was loose"),
        ("TODO: call the mason about the crack", "to-do", "call the mason about the crack"),
        ("- [ ] order rye flour", "to-do", "order rye flour"),
        ("Next step - order the rye flour", "to-do", "order the rye flour"),
    ],
)
def test_a_line_that_says_what_it_is_is_taken(text: str, kind: str, said: str) -> None:
    (line,) = lines_of(text, 4)
    assert (line.kind, line.turn) == (kind, 4)
    assert said in line.text
    assert line.entry("raw/x.md").endswith(" [src: 4](/raw/x.md)")


@pytest.mark.parametrize(
    "text",
    [
        "What was the decision: SQLite or files?",
        "I need to send him a plan",
        "It was a hard decision.",
        "- [x] order rye flour",
        "TODO: it",
        "```\n# TODO: write the parser\n```",
        "We talked about the lesson plan, and the decision tree.",
        "ok, thanks",
        "",
    ],
)
def test_everything_else_is_left_to_the_transcript(text: str) -> None:
    assert lines_of(text, 1) == []


def test_each_line_comes_once_and_there_are_not_too_many() -> None:
    twice = [(1, "TODO: call the mason"), (2, "todo: Call the mason")]
    assert [line.turn for line in lines(twice)] == [1]
    assert len(lines([(1, "\n".join(f"TODO: call mason number {n}" for n in range(50)))])) == MOST_LINES


@given(st.text(max_size=400))
def test_any_text_gives_short_lines_of_its_own_words(text: str) -> None:
    for line in lines_of(f"TODO: {text}", 1):
        assert len(line.text) <= LONGEST + 1
        assert "\n" not in line.text
