"""Labeled lessons of a text."""

from __future__ import annotations

import pytest

from mcp_server.knowledge.lessons import LONGEST, lessons_of


@pytest.mark.parametrize(
    ("text", "lesson"),
    [
        ("Lesson learned: never bake at three hundred degrees.", "never bake at three hundred degrees."),
        ("- **Root cause:** the thermostat was loose", "the thermostat was loose"),
        ("Fine. Gotcha - the oven heats twice.\nGotcha: the oven heats twice.", "the oven heats twice."),
        (f"Lesson: {'salt last ' * 30}", f"{'salt last ' * 20}"[:-1] + "…"),
    ],
)
def test_a_labeled_lesson_is_found_once(text: str, lesson: str) -> None:
    assert lessons_of(text) == [lesson]
    assert len(lesson) <= LONGEST


@pytest.mark.parametrize(
    "text",
    [
        "Root cause: was it SQLite?",
        "Lesson: it",
        "```\n# Lesson: write the parser\n```",
        "We talked about the lesson plan.",
        "",
    ],
)
def test_other_lines_are_no_lessons(text: str) -> None:
    assert lessons_of(text) == []
