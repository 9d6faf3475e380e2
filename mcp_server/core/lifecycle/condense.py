"""Condensing: a day's journal kept short, a week's journals distilled into MEMORY.md.              (S4 §8.4, SPEC §14)

Only derived lines are chosen from, and only they ever leave; what is chosen keeps its sources. A model, where there is
one, may choose by number: it never words a line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from mcp_server.core.checkpoints.duplicates import covered, is_duplicate
from mcp_server.core.lifecycle.changing import supersedes
from mcp_server.core.lifecycle.extractors.journal import PREFIXES
from mcp_server.core.lifecycle.lines import Source, entry, sources_of, without_sources
from mcp_server.core.lifecycle.statements import weight_of
from mcp_server.core.text import entries

JOURNAL_BYTES = 4_096
"""S4's budget for a journal. Derived lines over it leave: the people's files and the transcripts have them."""

A_WEEK = 5
"""Lines of a week that MEMORY.md gets."""
LEAST_WEIGHT, LEAST_SETTLED = 2.5, 1.5
"""What a line must hold to be chosen, and a decision or lesson."""
STALE_DAYS = 60
"""After so many days a derived line of "Active Context" is not active any more."""

LONGEST_FILE = 300
"""Derived lines that a person's or project's file may have; what happened longest ago goes to archive/ beyond that."""
AHEAD, HAPPENED = ("Plans", "Next", "In progress", "Blockers"), ("What happened", "Done")

ACTIVE = "Active Context"
SECTIONS = {"Decision: ": "Key Decisions", "Lesson: ": "Lessons Learned"}
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A line of a journal that may go into MEMORY.md: its section there, day, text and sources; and its project, which
    it names there, among those of others."""

    section: str
    day: str
    text: str
    sources: tuple[Source, ...]
    weight: float
    project: str = ""

    @property
    def label(self) -> str:
        """What stands before the text in MEMORY.md."""
        return f"{self.project}: " if self.project else ""

    @property
    def entry(self) -> str:
        return entry(self.day, f"{self.label}{self.text}", self.sources)


@dataclass(frozen=True, slots=True)
class Left:
    """An entry that leaves a file, and why."""

    entry: entries.Entry
    why: str


def over_budget(body: str, size: int, most: int = JOURNAL_BYTES) -> list[Left]:
    """The derived lines that leave a journal of `size` bytes, marks of provenance not counted: those that hold least,
    until it has `most`."""
    derived = [one for one in entries.entries(body) if one.start == one.end and sources_of(one.text)]
    settled = tuple(f"- {prefix}" for prefix in PREFIXES.values())
    leaving: list[Left] = []
    for one in sorted(derived, key=lambda one: (one.text.startswith(settled), weight_of(_said(one)), -one.start)):
        if size <= most:
            break
        leaving.append(Left(one, f"a journal has at most {most:,} bytes; this line holds least"))
        size -= len(without_sources(one.text).encode()) + 1
    return leaving


def candidates(
    journals: Iterable[tuple[str, str]], known: Sequence[str], projects: Collection[str] = ()
) -> list[Chosen]:
    """The derived lines of a week's journals, given as (day, body), the best first; none that `known` says already, and
    none that a later line of the same conversation or project takes back. `projects` are the slugs of all."""
    lines = [
        (day, one.section, _said(one), sources)
        for day, body in journals
        for one in entries.entries(body)
        if one.start == one.end and (sources := sources_of(one.text))
    ]
    found: list[Chosen] = []
    for place, (day, under, said, sources) in enumerate(lines, 1):
        prefix = next((prefix for prefix in SECTIONS if said.startswith(prefix)), "")
        text = said.removeprefix(prefix)
        weight = weight_of(text)
        if weight < (LEAST_SETTLED if prefix else LEAST_WEIGHT) or covered(text, known):
            continue
        if any(other == under and supersedes(newer, text) for _, other, newer, _ in lines[place:]):
            continue
        if not any(is_duplicate(text, other.text) for other in found):
            project = under if under in projects else ""
            found.append(Chosen(SECTIONS.get(prefix, ACTIVE), day, text, sources, weight, project))
    return sorted(found, key=lambda one: (one.section == ACTIVE, -one.weight, one.day, one.text))


def replaced(body: str, chosen: Iterable[Chosen]) -> list[Left]:
    """The derived lines of MEMORY.md that a line which comes in now takes back."""
    derived = [one for one in entries.entries(body) if one.date and sources_of(one.text)]
    return [
        Left(one, f"no longer so since {newer.day}")
        for one in derived
        for newer in chosen
        if one.date <= newer.day and _said(one).startswith(newer.label) and supersedes(newer.text, _said(one))
    ]


def picked(answer: str, count: int, most: int) -> list[int] | None:
    """The places (from 0) that a model's answer names, in order, at most `most`; None if it names none that exists."""
    places = [int(number) - 1 for number in _NUMBERS.findall(answer)]
    good = [place for place in dict.fromkeys(places) if 0 <= place < count]
    return good[:most] if good and len(good) == len(set(places)) else None


def stale(body: str, today: date) -> list[Left]:
    """The derived lines of "Active Context" that are old."""
    before = (today - timedelta(days=STALE_DAYS)).isoformat()
    return [
        Left(one, f"more than {STALE_DAYS} days old, and so not active")
        for one in entries.entries(body)
        if one.section == ACTIVE and one.date and one.date < before and sources_of(one.text)
    ]


def cold(body: str, before: str) -> list[Left]:
    """The derived lines that leave a person's or project's file: what was ahead on days before `before` (YYYY-MM-DD),
    and of more than `LONGEST_FILE` derived lines what happened longest ago."""
    derived = [one for one in entries.entries(body) if one.start == one.end and one.date and sources_of(one.text)]
    leaving = [
        Left(one, "long since done, or given up") for one in derived if one.section in AHEAD and one.date < before
    ]
    happened = sorted((one for one in derived if one.section in HAPPENED), key=lambda one: (one.date, one.start))
    over = max(0, len(derived) - len(leaving) - LONGEST_FILE)
    return leaving + [Left(one, "long ago, in a long file") for one in happened[:over]]


def without(body: str, leaving: Iterable[Left]) -> str:
    """The body without these entries."""
    drop = {number for left in leaving for number in range(left.entry.start, left.entry.end + 1)}
    return "\n".join(row for number, row in enumerate(body.split("\n"), 1) if number not in drop)


def _said(one: entries.Entry) -> str:
    text = without_sources(one.text).removeprefix("- ").strip()
    return text[len(one.date) :].lstrip(":— ") if one.date else text
