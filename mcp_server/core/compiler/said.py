"""Said once, and where it belongs: extractors write a line into several files (a decision stands in its project's file,
in the journal and, chosen for the week, in MEMORY.md), and into one file lines of several projects. A context shows a
line where it comes first; a project's context shows nothing of another one. A person's own lines stay as they are."""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from mcp_server.core.compiler.section import Filling
from mcp_server.core.lifecycle.lines import is_derived, without_sources
from mcp_server.core.model import Passage
from mcp_server.core.text.fencing import neutralise
from mcp_server.core.text.markdown import sections

_BEGINNING = re.compile(r"\s{0,3}[-*+] (?:\d{4}-\d{2}-\d{2}:? )?(?:(?:Decision|Lesson): )?")
_PROJECT = re.compile(r"^[\w-]+: ")
"""Stands before it in MEMORY.md, which has lines of all projects."""


def plain(line: str) -> str:
    """What an entry says, whichever file it stands in: without bullet, day, a journal's prefix and its sources."""
    return _BEGINNING.sub("", without_sources(line), count=1).strip().casefold()


def said_above(filling: Filling) -> frozenset[str]:
    """What the entries say that are shown already."""
    shown = (line for section in filling.before.values() for line in section.text.splitlines())
    found = {plain(line) for line in shown if _BEGINNING.match(line)}
    return frozenset(found | {_PROJECT.sub("", said) for said in found})


def without_others(body: str, others: AbstractSet[str]) -> str:
    """A journal's text with the derived lines blanked that stand under the heading of one of these projects."""
    lines = body.split("\n")
    for section in sections(body) if others else ():
        if section.title in others:
            for place in range(section.start - 1, section.end):
                lines[place] = "" if is_derived(lines[place]) else lines[place]
    return "\n".join(lines)


def told_of(passage: Passage, others: AbstractSet[str]) -> bool:
    """Whether a passage is a journal's derived line of one of these projects."""
    if not others or passage.category != "journal" or not is_derived(passage.text):
        return False
    return passage.title.rsplit(" › ", 1)[-1] in others


def repeats(line: str, said: AbstractSet[str]) -> bool:
    """Whether a line of a file is an extractor's, and shown already. A person's own line never is."""
    return bool(said) and is_derived(line) and plain(neutralise(line)) in said


def without_repeats(text: str, said: AbstractSet[str]) -> str:
    """A file's text with such lines blanked: the numbers of the others stay."""
    return "\n".join("" if repeats(line, said) else line for line in text.split("\n")) if said else text
