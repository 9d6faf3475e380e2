"""Changing: tells whether a line takes the place of an older one. The patterns are English."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from mcp_server.text.entries import DERIVED, sources_of, without_sources
from mcp_server.text.words import TALK_WORDS, content_words

MOVED = re.compile(r"^(?:Moved|Changed|Postponed): ")
"""Begins a line that says that something was moved, changed or postponed."""

_DAY = re.compile(r"\s{0,3}[-*+] (?:\d{4}-\d{2}-\d{2}:? )?")
_THING = r"(?:the |a |an |our )?([\w.-]+)"
_REPLACED = re.compile(
    rf"\b(?:instead of|rather than|no longer(?: use| on| with)?|(?:switch|mov|chang)(?:ed|e|ing)? from) {_THING}"
    r"|\bno ([\w.-]+)\b(?=.*\binstead\b)",
    re.IGNORECASE,
)
"""Names what is given up: "30 days instead of 14", "no Redis: Postgres instead"."""

LEAST_SHARED = 2
"""Words with a subject that both must hold, what is given up among them; a figure that is given up says enough."""


def supersedes(newer: str, older: str) -> bool:
    """Whether a line says that what an older one says is so no longer: it names what is given up, or begins with what
    happened to it, and speaks of the same."""
    if not changes(newer):
        return False
    known = _subject(older)
    shared = len(known & _subject(newer)) >= LEAST_SHARED
    if MOVED.match(newer):
        return shared
    given_up = _given_up(newer) & known
    return bool(given_up) and (shared or any(word.isdigit() for word in given_up))


def changes(line: str) -> bool:
    """Whether a line may supersede another one: it names what is given up, or begins with what happened to it."""
    return MOVED.match(line) is not None or bool(_given_up(line))


@lru_cache(maxsize=1024)
def _given_up(text: str) -> frozenset[str]:
    """Returns the words by which a line names what is given up."""
    return _subject(" ".join(map(" ".join, _REPLACED.findall(text))))


def overtaken(lines: Sequence[str]) -> frozenset[int]:
    """The places of the lines, of one subject and the oldest first, that a later one supersedes."""
    changes = [place for place, line in enumerate(lines) if MOVED.match(line) or _REPLACED.search(line)]
    return frozenset(old for new in changes for old in range(new) if supersedes(lines[new], lines[old]))


def overtaken_lines(body: str) -> frozenset[int]:
    """The places, from 0, of a project file's derived lines of which a later one says that it is so no longer."""
    lines = body.split("\n")
    derived = [
        (found[1] or "", sources_of(line)[0].order, place)
        for place, line in enumerate(lines)
        if (found := DERIVED.match(line))
    ]
    places = [place for *_, place in sorted(derived)]
    gone = overtaken([_DAY.sub("", without_sources(lines[place])) for place in places])
    return frozenset(places[place] for place in gone)


@lru_cache(maxsize=1024)
def _subject(text: str) -> frozenset[str]:
    return frozenset(content_words(text, TALK_WORDS))
