"""Lines: what an extractor finds, and how it stands in a file: `- DAY: TEXT [src: TRANSCRIPT#TURN]`.

A line with such a mark is ours: whoever extracts may rewrite it. Every other line is a person's or an agent's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mcp_server.text.prose import clipped
from mcp_server.text.words import content_words

LineKind = Literal[
    "decision",
    "rule",
    "lesson",
    "about",
    "preference",
    "plan",
    "event",
    "fact",
    "procedure",
    "open",
    "report",
]
"""A report says that work is done: it closes open items, and only the journal tells it."""

MOST_SOURCES = 3
"""Of the turns that say the same, so many are named: the first ones."""

DERIVED = re.compile(r"\s{0,3}[-*+] (?:(\d{4}-\d{2}-\d{2}):? )?.*\[src: raw/conversations/[^\]#\n]+#\d{1,15}\]\s*$")
"""A bullet that an extractor wrote; its group is the day that it begins with."""

_SOURCE = re.compile(r"\s*\[src: (raw/conversations/[^\]#\n]+)#(\d{1,15})\]")


@dataclass(frozen=True, slots=True)
class Source:
    """The turn that a line comes from."""

    path: str
    turn: int

    def __str__(self) -> str:
        return f"{self.path}#{self.turn}"

    @property
    def mark(self) -> str:
        """As it stands at the end of a line."""
        return f"[src: {self.path}#{self.turn}]"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing worth keeping.

    `text` is one sentence or two that stand by themselves; `day` (YYYY-MM-DD) when it happened, or else was said;
    `said` when it was said; `person` whom it is about, where people have names; `turn` and `path` are the turn of the
    transcript that says so. `weight` orders lines where not all have room: higher is better. `file` says under which of
    the extractor's files it goes, where that does not follow from the kind.
    """

    kind: LineKind
    text: str
    day: str
    turn: int
    path: str
    person: str | None = None
    said: str = ""
    weight: float = 0.0
    project: str | None = None
    file: str = ""
    changes: float = 0.0
    """The probability that its turn revises something, or of a report that something is done."""
    heard: tuple[str, ...] = ()
    """Further content stems of the message that says so."""
    settled_by: tuple[int, str] | None = None
    """Number and day of the turn of the same conversation that replaced or closed it, as far as a review says so."""

    @property
    def source(self) -> Source:
        return Source(self.path, self.turn)

    @property
    def entry(self) -> str:
        """The line as it stands in a file."""
        return entry(self.day, self.text, (self.source,))


def entry(day: str, text: str, sources: Sequence[Source]) -> str:
    """A bullet with its date and its sources."""
    dated = f"{day}: {text}" if day else text
    return " ".join((f"- {dated}", *(source.mark for source in sources)))


def sources_of(text: str) -> tuple[Source, ...]:
    """The turns that a line names as its sources; empty for a line that is not ours."""
    if "[src: " not in text:
        return ()
    return tuple(Source(path, int(turn)) for path, turn in _SOURCE.findall(text))


def without_sources(text: str) -> str:
    """A text without its marks of provenance: what it says."""
    return _SOURCE.sub("", text) if "[src: " in text else text


def shortened(text: str, longest: int) -> str:
    """Returns the sentence of a text that says most, by its content words, in at most `longest` characters."""
    parts = re.split(r"(?<=[.!?;])\s+", text)
    best = max(parts, key=lambda part: len(set(content_words(part))))
    return clipped(best.rstrip(".;"), longest)


def disowned(text: str) -> str:
    """A text with its marks of provenance in parentheses: what a person or an agent says is theirs, not derived."""
    return re.sub(r"\[(src:[^\]\n]*)\]", r"(\1)", text)


def is_derived(text: str) -> bool:
    """Whether a line came from an extractor."""
    return bool(sources_of(text))
