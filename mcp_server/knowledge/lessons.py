"""Finds the lessons that a text labels: "Lesson learned: …", "Gotcha: …", "Root cause: …". Nothing is inferred."""

from __future__ import annotations

import re

from mcp_server.text.prose import clipped, sentences
from mcp_server.text.words import content_words

LONGEST = 201
"""Characters of a lesson, with the ellipsis of one that is cut."""
LEAST_WORDS = 2
"""Content words that a lesson must have beside its label."""

_LESSON = re.compile(
    r"^\s*(?:[-*+•]\s+|\d+[.)]\s+)?(?:\*\*|__)?(?:lessons? learned|lesson|gotcha|root cause)"
    r"(?:\*\*|__)?\s*[:—–-]\s*(?:\*\*|__)?\s*(?P<text>.+)$",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s*(?:```|~~~)")


def lessons_of(text: str) -> list[str]:
    """Returns the labeled lessons of a text in order, each once; code and questions are skipped."""
    found: dict[str, str] = {}
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
            continue
        for said in () if fenced else sentences(line):
            match = _LESSON.search(said)
            lesson = clipped(match["text"].replace("**", ""), LONGEST).strip(" *_") if match else ""
            if len(content_words(lesson)) >= LEAST_WORDS and not said.rstrip().endswith("?"):
                found.setdefault(lesson.casefold(), lesson)
    return list(found.values())
