"""Condensing: a day's journal has few lines, and what is old leaves long pages for the archive.

Only derived lines ever leave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcp_server.knowledge.extractors.journal import PREFIXES
from mcp_server.text import entries
from mcp_server.text.derived_lines import Source, shortened, sources_of, without_sources
from mcp_server.text.markdown import sections
from mcp_server.text.words import content_words

PEOPLE_INDEX, PROJECT_INDEX = "knowledge/people/_index.md", "knowledge/projects/_active.md"

LONGEST = 140
SECTIONS = ("About", "What happened", "Likes and dislikes", "Plans", "Decisions")
"""Sections of a person's page that say who somebody is, the best first."""

_DAY = re.compile(r"^- (?:\d{4}-\d{2}-\d{2}: )?")


def description(body: str) -> tuple[str, Source] | None:
    """Returns what a person's page says of the person in one line, with its source: its first line in the best section
    of `SECTIONS`. None if it has none."""
    found = [
        one
        for one in entries.entries(body)
        if one.section in SECTIONS and one.start == one.end and sources_of(one.text)
    ]
    if not found:
        return None
    best = min(found, key=lambda one: (SECTIONS.index(one.section), one.start))
    name = next((section.title for section in sections(body) if section.level == 1), "")
    text = _DAY.sub("", without_sources(best.text)).removeprefix(f"{name}: ")
    return shortened(text, LONGEST), sources_of(best.text)[0]


def rewritten(body: str, lines: Mapping[str, tuple[str, Source]]) -> str:
    """An index with these lines: by the name that each begins with (`[[ana]]`, `**atlas**`). Ours are replaced; a name
    that a person's own line holds is left to them. Names that are not among `lines` lose their derived line."""
    rows = body.rstrip("\n").split("\n")
    ours = {one.start for one in entries.entries(body) if one.start == one.end and sources_of(one.text)}
    kept = [row for number, row in enumerate(rows, 1) if number not in ours]
    own = "\n".join(kept)
    while kept and not kept[-1].strip():
        kept.pop()
    new = [f"- {name} — {text} {source.mark}" for name, (text, source) in sorted(lines.items()) if name not in own]
    gap = [""] if new and kept and not kept[-1].startswith("- ") else []
    return "\n".join([*kept, *gap, *new]) + "\n"


JOURNAL_LINES = 10
"""Derived lines of a day."""

LONGEST_FILE = 300
"""Derived lines that a person's or project's file may have; what happened longest ago goes to archive/ beyond that."""
AHEAD, HAPPENED = ("Plans", "Next"), ("What happened", "Done")


@dataclass(frozen=True, slots=True)
class Left:
    """An entry that leaves a file, and why."""

    entry: entries.Entry
    why: str


def over_the_day(body: str, most: int = JOURNAL_LINES) -> list[Left]:
    """Returns the derived lines that leave a journal so that it has at most `most`: those that tell nothing settled
    first, then those with the fewest words that say something."""
    derived = [one for one in entries.entries(body) if one.start == one.end and sources_of(one.text)]
    prefixes = tuple(f"- {prefix}" for prefix in PREFIXES.values())
    ranked = sorted(
        derived,
        key=lambda one: (one.text.startswith(prefixes), len(content_words(one.text)), one.text),
        reverse=True,
    )
    return [Left(one, f"a journal has at most {most} derived lines") for one in ranked[most:]]


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
