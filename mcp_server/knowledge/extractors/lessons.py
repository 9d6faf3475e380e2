"""Lessons: sentences that say that they are one ("Lesson: …", "Root cause: …", "never again …")."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcp_server.knowledge.extractors.extractor import TAKEN_OUT, Context, Extractor
from mcp_server.knowledge.flush import lines_of
from mcp_server.model import Turn
from mcp_server.text.derived_lines import Line
from mcp_server.understanding.features import Message, subject_stems
from mcp_server.understanding.recognizer import clean, is_real

WEIGHT = 0.9
LEAST_SUBJECTS = 5
LONGEST = 300

_LESSON = re.compile(
    r"(?:(?:and|so|ok|well|yes),? )*(?:the )?(?:lesson (?:learned|learnt|here|is)\b|never again\b"
    r"|root cause\b|(?:I|we)(?:['’]ve| have)? learn(?:ed|t) (?:that|the hard way|to (?:always|never))\b)",
    re.IGNORECASE,
)


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns the lessons of a conversation, in order. Those of named people are on the people's pages."""
    found: list[Line] = []
    for turn in turns:
        if not is_real(turn) or context.speakers:
            continue
        said = [line.text for line in lines_of(turn.content, turn.number) if line.kind == "lesson"]
        for sentence in Message(turn.role, turn.content).sentences:
            text = clean(sentence.text)
            if (
                _LESSON.match(text)
                and not text.endswith(("?", ":"))
                and len(text) <= LONGEST
                and len(subject_stems(text)) >= LEAST_SUBJECTS
                and not any(one in text for one in said)
            ):
                said.append(text)
        found += [
            context.line("lesson", text[:1].upper() + text[1:], turn, weight=WEIGHT)
            for text in said
            if not any(mark in text for mark in TAKEN_OUT)
        ]
    return found


EXTRACTOR = Extractor("lessons", 4, extract, ("lesson",))
