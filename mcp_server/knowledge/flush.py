"""Finds the lines of a text that leaves the context which belong in the journal.

Only labeled or explicit lines count ("Decision: …", "TODO: …", "- [ ] …", "we decided to …", "lesson learned: …").
Nothing is inferred.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mcp_server.text.entries import Source
from mcp_server.text.prose import sentences
from mcp_server.text.words import content_words

FlushKind = Literal["decision", "lesson", "to-do"]

LONGEST = 200
"""Characters of a line."""
LEAST_WORDS = 2
"""Content words that a line must have beside its marker."""
MOST_LINES = 20
"""Of one drop; what is more is in the transcript, and the extractors read that."""

_HEAD = r"^\s*(?:[-*+•]\s+|\d+[.)]\s+)?(?:\*\*|__)?"
_TAIL = r"(?:\*\*|__)?\s*[:—–-]\s*(?:\*\*|__)?\s*(?P<text>.+)$"
_MARKERS: tuple[tuple[FlushKind, re.Pattern[str]], ...] = (
    ("to-do", re.compile(r"^\s*[-*+]\s+\[ \]\s+(?P<text>.+)$")),
    ("to-do", re.compile(rf"{_HEAD}(?:TODO|to-do|action item|next step){_TAIL}", re.IGNORECASE)),
    ("decision", re.compile(rf"{_HEAD}(?:final decision|decision|decided|agreed){_TAIL}", re.IGNORECASE)),
    ("lesson", re.compile(rf"{_HEAD}(?:lessons? learned|lesson|gotcha|root cause){_TAIL}", re.IGNORECASE)),
    (
        "decision",
        re.compile(
            r"(?P<text>\b(?:we|i)(?:'ve| have)? (?:decided|agreed) (?:to|on|that|against)\b[^.!?\n]{8,}[.!]?)",
            re.IGNORECASE,
        ),
    ),
)
_FENCE = re.compile(r"^\s*(?:```|~~~)")


@dataclass(frozen=True, slots=True)
class FlushLine:
    """One line for the journal: what it is, what it says, and the turn that said it."""

    kind: FlushKind
    text: str
    turn: int

    def entry(self, path: str) -> str:
        """Returns the line as the journal has it, with the mark of its source."""
        return f"{self.kind.capitalize()}: {self.text} {Source(path, self.turn).mark}"


def lines_of(text: str, turn: int) -> list[FlushLine]:
    """Returns the lines of one text in order, each once; code is skipped."""
    found: dict[str, FlushLine] = {}
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            for one in filter(None, (_line(said, turn) for said in sentences(line))):
                found.setdefault(one.text.casefold(), one)
    return list(found.values())


def lines(texts: Iterable[tuple[int, str]]) -> list[FlushLine]:
    """Returns the lines of several texts, given with the numbers of their turns: at most `MOST_LINES`, each once."""
    found: dict[str, FlushLine] = {}
    for turn, text in texts:
        for one in lines_of(text, turn):
            found.setdefault(one.text.casefold(), one)
    return list(found.values())[:MOST_LINES]


def _line(line: str, turn: int) -> FlushLine | None:
    for kind, marker in _MARKERS:
        match = marker.search(line)
        if match is not None:
            text = " ".join(match["text"].replace("**", "").split()).strip(" *_")
            if line.rstrip().endswith("?") or len(content_words(text)) < LEAST_WORDS:
                return None
            return FlushLine(kind, _cut(text), turn)
    return None


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + "…"
