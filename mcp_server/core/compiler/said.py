"""Said once, and where it belongs: extractors write a line into several files (a rule into its page and MEMORY.md, the
beginning of a decision into the journal), and into one file lines of several projects. A context shows a line where it
comes first; a project's context shows nothing of another one. A person's own lines stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from mcp_server.core.compiler.inputs import SourceFile, Withheld
from mcp_server.core.compiler.section import Filling
from mcp_server.core.lifecycle.lines import is_derived, without_sources
from mcp_server.core.model import Passage
from mcp_server.core.text.fencing import neutralise
from mcp_server.core.text.markdown import sections

NO_LONGER_SO = "no longer so: a newer line of its file says otherwise"
ANOTHERS = "another project's: {}"
SHOWN_ABOVE = "shown above"

_BEGINNING = re.compile(
    r"\s{0,3}[-*+] (?:\d{4}-\d{2}-\d{2}:? )?(?:(?:Decision|Lesson|Decided|Learned|Done|Open|Rule|How to): )?"
)
_SHORT = re.compile(r"^\*\*[\w-]+\*\* — (?:decided|open): | \[\[[^\[\]\n]+\]\]$")
"""Marks a line that repeats a part of another page's line: MEMORY.md's of a project, and a journal's with its link."""
_PROJECT = re.compile(r"^[\w-]+: ")
"""Stands before it in MEMORY.md, which has lines of all projects."""


def plain(line: str) -> str:
    """Returns what an entry says, whichever file it is in: without bullet, day, sources, and a journal's additions."""
    return _SHORT.sub("", _BEGINNING.sub("", without_sources(line), count=1).strip()).rstrip("…").casefold()


def said_above(filling: Filling) -> frozenset[str]:
    """What the entries say that are shown already."""
    shown = (line for section in filling.before.values() for line in section.text.splitlines())
    found = {plain(line) for line in shown if _BEGINNING.match(line)}
    return frozenset(found | {_PROJECT.sub("", said) for said in found})


def of_others(body: str, others: AbstractSet[str]) -> dict[int, str]:
    """Why lines of a journal are out, by their places from 0: derived ones under the heading of such a project."""
    lines = body.split("\n")
    return {
        place: ANOTHERS.format(section.title)
        for section in (sections(body) if others else ())
        if section.title in others
        for place in range(section.start - 1, section.end)
        if is_derived(lines[place])
    }


def why_out(passage: Passage, others: AbstractSet[str], overtaken: AbstractSet[tuple[str, int]]) -> str:
    """Why a passage is not for this context, whatever it scores; "" for one that may come in: it is a journal's derived
    line of one of the projects `others`, or stands at one of the places (path, line) that are `overtaken`."""
    if (passage.path, passage.start) in overtaken:
        return NO_LONGER_SO
    if not others or passage.category != "journal" or not is_derived(passage.text):
        return ""
    project = passage.title.rsplit(" › ", 1)[-1]
    return ANOTHERS.format(project) if project in others else ""


def repeats(line: str, said: AbstractSet[str]) -> bool:
    """Returns whether a line of a file is an extractor's and shown already. A short form is, if a line that was shown
    holds it; a person's own line never is."""
    if not said or not is_derived(line):
        return False
    text = plain(neutralise(line))
    if _SHORT.search(_BEGINNING.sub("", without_sources(line), count=1)):
        return any(text in one for one in said)
    return text in said or _PROJECT.sub("", text) in said


def without(source: SourceFile, out: Mapping[int, str]) -> SourceFile:
    """A file with these lines (places from 0 → why) blanked, so that the numbers of the others stay, and named."""
    if not out:
        return source
    lines = ["" if place in out else line for place, line in enumerate(source.text.split("\n"))]
    return replace(source, text="\n".join(lines), withheld=(*source.withheld, *_runs(source.first_line, out)))


def _runs(first_line: int, out: Mapping[int, str]) -> Iterator[Withheld]:
    """Lines that stand below each other and are out for the same reason are one."""
    start: int | None = None
    for place in sorted(out):
        start = place if start is None else start
        if out.get(place + 1) != out[place]:
            yield Withheld(out[place], first_line + start, first_line + place)
            start = None
