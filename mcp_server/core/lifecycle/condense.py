"""Condensing: a day's journal has few lines, and what is old leaves long pages for the archive.

Only derived lines ever leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mcp_server.core.lifecycle.extractors.journal import PREFIXES
from mcp_server.core.lifecycle.lines import sources_of
from mcp_server.core.text import entries
from mcp_server.core.text.words import content_words

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
