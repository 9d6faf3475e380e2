"""The journal: a day's page of a few short lines, each with a link to the page that tells it in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mcp_server.knowledge.duplicates import is_duplicate
from mcp_server.knowledge.extractors import items, lessons, people, procedures
from mcp_server.knowledge.extractors.extractor import Context, Extractor
from mcp_server.knowledge.places import link_to
from mcp_server.model import Turn
from mcp_server.text.derived_lines import Line, LineKind, shortened

MOST = 6
"""Lines of one conversation; a day's page has at most `condense.JOURNAL_LINES`."""

MOST_TOLD = 3
"""Lines of one conversation that tell nothing settled: what people say of themselves, and facts."""

LONGEST = 110
"""Characters of a line without its link."""

PREFIXES: dict[LineKind, str] = {
    "decision": "Decided: ",
    "lesson": "Learned: ",
    "report": "Done: ",
    "open": "Open: ",
    "rule": "Rule: ",
    "procedure": "How to: ",
}
"""Kinds that a journal tells, and how a line of them begins; facts and what people tell have no beginning."""

LEAST_REPORT = 0.7
"""The probability from which on a report of finished work is certain enough for the journal."""

_TOLD: tuple[LineKind, ...] = ("event", "plan", "about", "fact")


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns the lines of a conversation's day by the rules."""
    found = [
        line
        for one in (*items.EXTRACTORS, lessons.EXTRACTOR, procedures.EXTRACTOR)
        for line in one.extract(turns, context)
    ]
    return chosen([*found, *people.extract(turns, context)])


def chosen(lines: Sequence[Line]) -> list[Line]:
    """Returns the lines of a conversation that its journal tells, the most probable ones, shortened, in order."""
    told = [
        line
        for line in lines
        if (line.kind in PREFIXES or line.kind in _TOLD) and (line.kind != "report" or line.weight >= LEAST_REPORT)
    ]
    settled = sum(line.kind in PREFIXES for line in told)
    best: list[Line] = []
    for line in sorted(told, key=lambda line: (line.kind not in PREFIXES, -line.weight, line.turn)):
        full = len(best) >= (MOST if line.kind in PREFIXES else min(MOST, settled + MOST_TOLD))
        if not full and not any(is_duplicate(line.text, other.text) for other in best):
            best.append(line)
    return [short(line) for line in sorted(best, key=lambda line: line.turn)]


def short(line: Line) -> Line:
    """Returns a line as the journal tells it: its weightiest sentence and a link to its page."""
    text = line.text.partition(":")[0] if line.kind == "procedure" else line.text
    beginning = PREFIXES.get(line.kind, "")
    link = "" if line.kind == "report" else f" {link_to(line)}"
    return replace(line, text=f"{beginning}{shortened(text, LONGEST)}{link}", day="", file="journal")


EXTRACTOR = Extractor("journal", 5, extract)
