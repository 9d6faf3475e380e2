"""Removes repeated lines, and lines of other projects, from a context.

Extractors write a line into several files (a rule into its project's page and MEMORY.md, the beginning of a decision
into the journal), and lines of several projects into one file. A context shows such a line once, and no lines of other
projects. Lines that people wrote are never removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from mcp_server.context.section import Filling
from mcp_server.model import Passage, SourceFile, Withheld
from mcp_server.text.derived_lines import is_derived, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import sections

NO_LONGER_SO = "no longer so: a newer line of its file says otherwise"
ANOTHERS = "another project's: {}"
SHOWN_ABOVE = "shown above"

_BEGINNING = re.compile(
    r"\s{0,3}[-*+] (?:\d{4}-\d{2}-\d{2}:? )?(?:(?:Decision|Lesson|Decided|Learned|Done|Open|Rule|How to): )?"
)
_SHORT = re.compile(r"^\*\*[\w-]+\*\* — (?:decided|open): | \[\[[^\[\]\n]+\]\]$")
"""Marks a line that repeats a part of another page's line: MEMORY.md's of a project, and a journal's with its link."""
_PROJECT = re.compile(r"^[\w-]+: ")
"""Prefix of a line in MEMORY.md, which has lines of all projects."""


def plain(line: str) -> str:
    """Returns an entry's text, the same for every file: without bullet, day, sources, and the journal's additions."""
    return _SHORT.sub("", _BEGINNING.sub("", without_sources(line), count=1).strip()).rstrip("…").casefold()


def said_above(filling: Filling) -> frozenset[str]:
    """Returns the texts of the entries that earlier slots show."""
    shown = (line for section in filling.before.values() for line in section.text.splitlines())
    found = {plain(line) for line in shown if _BEGINNING.match(line)}
    return frozenset(found | {_PROJECT.sub("", said) for said in found})


def of_others(body: str, others: AbstractSet[str]) -> dict[int, str]:
    """Returns a journal's derived lines (from 0) under the headings of other projects, each with the reason."""
    lines = body.split("\n")
    return {
        place: ANOTHERS.format(section.title)
        for section in (sections(body) if others else ())
        if section.title in others
        for place in range(section.start - 1, section.end)
        if is_derived(lines[place])
    }


def why_out(passage: Passage, others: AbstractSet[str], overtaken: AbstractSet[tuple[str, int]]) -> str:
    """Returns why a passage is excluded, or "".

    It is excluded if it is a journal's derived line of one of the projects `others`, or if (path, line) is in
    `overtaken`.
    """
    if (passage.path, passage.start) in overtaken:
        return NO_LONGER_SO
    if not others or passage.category != "journal" or not is_derived(passage.text):
        return ""
    project = passage.title.rsplit(" › ", 1)[-1]
    return ANOTHERS.format(project) if project in others else ""


def repeats(line: str, said: AbstractSet[str]) -> bool:
    """Returns whether a line was written by an extractor and is already shown. A short form counts as shown if a line
    that was shown contains it."""
    if not said or not is_derived(line):
        return False
    text = plain(neutralise(line))
    if _SHORT.search(_BEGINNING.sub("", without_sources(line), count=1)):
        return any(text in one for one in said)
    return text in said or _PROJECT.sub("", text) in said


def without(source: SourceFile, out: Mapping[int, str]) -> SourceFile:
    """Returns a file with these lines (from 0 → reason) blanked and listed in `withheld`. Line numbers stay."""
    if not out:
        return source
    lines = ["" if place in out else line for place, line in enumerate(source.text.split("\n"))]
    return replace(source, text="\n".join(lines), withheld=(*source.withheld, *_runs(source.first_line, out)))


def _runs(first_line: int, out: Mapping[int, str]) -> Iterator[Withheld]:
    """Yields runs of adjacent lines that are out for the same reason."""
    start: int | None = None
    for place in sorted(out):
        start = place if start is None else start
        if out.get(place + 1) != out[place]:
            yield Withheld(out[place], first_line + start, first_line + place)
            start = None
