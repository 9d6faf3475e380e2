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

_OPENING = re.compile(
    r"^(?:(?:and|but|so|ok|okay|well|also|then|oh|ach|hmm|hi|hey|hello|yo|yeah|haha|good (?:morning|afternoon|evening)"
    r"|thank you|thanks|one (?:last|more) thing|by the way|btw)\b[,.!:;]* )+(?=[\w`'\"])",
    re.IGNORECASE,
)
"""Conjunctions, greetings and interjections before the first word that says something."""

_DECIDES = re.compile(
    r"\b(?:no|not|never|none|nothing|only|yes|option|always|ever\w*|any\w+)\b|n['’]t\b|[\d`]", re.IGNORECASE
)
"""Words by which even a short sentence changes what the next one means."""

SHORT_FILLER = 3
"""Words of a sentence that may be a mere reaction: "Nice.", "Yes please.", "Remind me." """

LEAST_AMENDED = 3
"""Content words of an amendment that can be understood alone."""

STATE = "> - "
"""Begins a line of the state on top of a project's page."""

LINKED_FROM = f"{STATE}Linked from: [["
"""Begins the line on top of a page that lists the pages that link to it."""

_SOURCE = re.compile(r"\s*\[src: (raw/conversations/[^\]#\n]+)#(\d{1,15})\]")
_LINKS = re.compile(r"((?:\s*\[\[[^\[\]\n]+\]\])+)(?=\s*(?:$|\[src: raw/conversations/))")
_MARKS = re.compile(rf"(?:{_LINKS.pattern})?{_SOURCE.pattern}")


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


def entry(day: str, text: str, sources: Sequence[Source], links: str = "") -> str:
    """Returns a bullet with its date, its links to other pages and its sources."""
    dated = f"{day}: {text}" if day else text
    return " ".join((f"- {dated}", *([links] if links else []), *(source.mark for source in sources)))


def sources_of(text: str) -> tuple[Source, ...]:
    """Returns the turns that a line names as its sources; none for a line that is not derived."""
    if "[src: " not in text:
        return ()
    return tuple(Source(path, int(turn)) for path, turn in _SOURCE.findall(text))


def without_sources(text: str) -> str:
    """Returns a text without its marks of sources, and without the links before them."""
    return _MARKS.sub("", text) if "[src: " in text else text


def apart(text: str) -> tuple[str, str]:
    """Returns the text of a line and the links to other pages that follow it."""
    found = _LINKS.search(text)
    return (text[: found.start()].rstrip(), found[1].strip()) if found else (text, "")


def shortened(text: str, longest: int) -> str:
    """Returns the sentence of a text with the most content words, cut to `longest` characters. If the user amended a
    proposal, it is a sentence of the user: the proposal no longer holds as it was made."""
    if quoted := _QUOTED.fullmatch(text):
        stated, verb, said = quoted.groups()
        text = said if verb != "refused" and len(set(content_words(said))) >= LEAST_AMENDED else stated
    parts = re.split(r"(?<=[.!?])\s+", text)
    best = max(parts, key=lambda part: (" | " not in part, len(set(content_words(part)))))
    if len(best) > longest:
        parts = re.split(r"(?<=;)\s+", best)
        best = max(parts, key=lambda part: (" | " not in part, len(set(content_words(part)))))
    best = _OPENING.sub("", best).rstrip(".;, ")
    return clipped(best[:1].upper() + best[1:], longest)


def tidied(text: str, *, is_whole: bool = True) -> str:
    """Returns a quoted text as a line of a page: without reactions and greetings at its beginning. If it `is_whole`, a
    reaction or an announcement of what is not quoted ("Here is my code:") at its end is left out too."""
    first, *rest = re.split(r"(?<=[.!?…])\s+", text.strip())
    parts = [first, *rest]
    while len(parts) > 1 and _is_filler(parts[0]):
        parts.pop(0)
    while is_whole and len(parts) > 1 and (_is_filler(parts[-1]) or parts[-1].endswith(":")):
        parts.pop()
    kept = " ".join(parts).rstrip(" ,;")
    bare = _OPENING.sub("", kept)
    said = bare[:1].upper() + bare[1:] if bare != kept and re.match(r"[a-z]+\b(?![./_(])", bare) else bare
    return said or text


def _is_filler(sentence: str) -> bool:
    """Returns whether a sentence only reacts, and changes nothing of what the others say."""
    few = len(sentence.split()) <= SHORT_FILLER and len(set(content_words(sentence))) <= 1
    return few and not _DECIDES.search(sentence)


def disowned(text: str) -> str:
    """Returns a text with its marks of sources in parentheses, so that a person's or agent's text is not derived."""
    return re.sub(r"\[(src:[^\]\n]*)\]", r"(\1)", text)


def is_state(line: str) -> bool:
    """Returns whether a line is of the block on top of a page: a project's state, which repeats lines of the page, and
    the pages that link to it."""
    return line.startswith(STATE) and (is_derived(line) or line.startswith(LINKED_FROM))


def is_derived(text: str) -> bool:
    """Returns whether an extractor wrote the line."""
    return bool(sources_of(text))
