"""Derived lines: the form in which extractors write what they find, `- DAY: TEXT [src: TRANSCRIPT#TURN]`.

Extractors may rewrite lines with such a mark. All other lines are a person's or an agent's own.
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
"""A report says that work is done: it closes open items, and is written only to the journal."""

MOST_SOURCES = 3
"""Number of turns that a line names as its sources, the first ones."""

DERIVED = re.compile(r"\s{0,3}[-*+] (?:(\d{4}-\d{2}-\d{2}):? )?.*\[src: raw/conversations/[^\]#\n]+#\d{1,15}\]\s*$")
"""Matches a bullet that an extractor wrote. Its group is the day at the beginning."""

_QUOTED = re.compile(r"(.*\S)\s+\((amended|answer|refused): (.*)\)", re.DOTALL)
"""A decision with the words of the other side in parentheses."""

_OPENING = re.compile(r"^(?:(?:and|but|so|ok|well|also|then|oh),? )+(?=\w)", re.IGNORECASE)

LEAST_AMENDED = 3
"""Content words of an amendment that can be understood alone."""

STATE = "> - "
"""Begins a line of the state on top of a project's page."""

_SOURCE = re.compile(r"\s*\[src: (raw/conversations/[^\]#\n]+)#(\d{1,15})\]")


@dataclass(frozen=True, slots=True)
class Source:
    """The turn that a line was derived from."""

    path: str
    turn: int

    def __str__(self) -> str:
        return f"{self.path}#{self.turn}"

    @property
    def mark(self) -> str:
        """The mark at the end of a line."""
        return f"[src: {self.path}#{self.turn}]"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that an extractor found.

    `text` is one sentence or two that can be understood alone; `day` (YYYY-MM-DD) is when it happened, or else was
    said; `said` is when it was said; `person` is whom it is about, by name; `turn` and `path` are its turn and
    transcript. If not all lines fit, those with a higher `weight` are kept. `file` is the extractor's file for the line
    if it does not follow from the kind.
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
    """The probability that its turn revises something or, for a report, that something is done."""
    heard: tuple[str, ...] = ()
    """Further content stems of the message that says so."""
    settled_by: tuple[int, str] | None = None
    """Number and day of the turn of the same conversation that replaced or closed it, according to a review."""

    @property
    def source(self) -> Source:
        return Source(self.path, self.turn)

    @property
    def entry(self) -> str:
        """The line in a file."""
        return entry(self.day, self.text, (self.source,))


def entry(day: str, text: str, sources: Sequence[Source]) -> str:
    """Returns a bullet with its date and its sources."""
    dated = f"{day}: {text}" if day else text
    return " ".join((f"- {dated}", *(source.mark for source in sources)))


def sources_of(text: str) -> tuple[Source, ...]:
    """Returns the turns that a line names as its sources; none for a line that is not derived."""
    if "[src: " not in text:
        return ()
    return tuple(Source(path, int(turn)) for path, turn in _SOURCE.findall(text))


def without_sources(text: str) -> str:
    """Returns a text without its marks of sources."""
    return _SOURCE.sub("", text) if "[src: " in text else text


def shortened(text: str, longest: int) -> str:
    """Returns the sentence of a text with the most content words, cut to `longest` characters. If the user amended a
    proposal, it is a sentence of the user: the proposal no longer holds as it was made."""
    if quoted := _QUOTED.fullmatch(text):
        stated, verb, said = quoted.groups()
        text = said if verb != "refused" and len(set(content_words(said))) >= LEAST_AMENDED else stated
    best = max(re.split(r"(?<=[.!?])\s+", text), key=lambda part: len(set(content_words(part))))
    if len(best) > longest:
        best = max(re.split(r"(?<=;)\s+", best), key=lambda part: len(set(content_words(part))))
    best = _OPENING.sub("", best).rstrip(".;, ")
    return clipped(best[:1].upper() + best[1:], longest)


def disowned(text: str) -> str:
    """Returns a text with its marks of sources in parentheses, so that a person's or agent's text is not derived."""
    return re.sub(r"\[(src:[^\]\n]*)\]", r"(\1)", text)


def is_state(line: str) -> bool:
    """Returns whether a line is of the state on top of a project's page, which repeats lines of the page."""
    return line.startswith(STATE) and is_derived(line)


def is_derived(text: str) -> bool:
    """Returns whether an extractor wrote the line."""
    return bool(sources_of(text))
