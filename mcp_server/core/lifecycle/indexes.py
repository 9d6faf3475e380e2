"""Indexes: a line for every person and every active project that has a file, kept beside what somebody wrote there.

A line of ours names the source of what it quotes, as every derived line does; a person or project that has a line by
hand gets none of ours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from mcp_server.core.checkpoints.prose import clipped
from mcp_server.core.lifecycle.lines import Source, sources_of, without_sources
from mcp_server.core.lifecycle.patterns import TIME_WORDS, VAGUE
from mcp_server.core.lifecycle.statements import weight_of
from mcp_server.core.text import entries
from mcp_server.core.text.words import content_words

PEOPLE_INDEX, PROJECT_INDEX = "knowledge/people/_index.md", "knowledge/projects/_active.md"

LONGEST = 140
SECTIONS = (
    *("About", "Key Decisions", "In progress", "Next", "Done", "Facts", "What happened", "Likes and dislikes", "Plans"),
)
"""Where what describes somebody or something is looked for, and of equals first."""

NAME = 0.6
"""A word in such a share of the lines is the subject's name."""
LONG = 0.25
"""How much a line is charged for its length: not at all 0, as a mean would 1."""

_DAY = re.compile(r"^- (?:\d{4}-\d{2}-\d{2}: )?")


def description(bodies: Sequence[str]) -> tuple[str, Source] | None:
    """What a file or several say of their subject, in one line, with the turn that says so: the line that shares most
    of its words with the others, since what comes up again and again is what somebody is known for."""
    found = [
        one
        for body in bodies
        for one in entries.entries(body)
        if one.section in SECTIONS and one.start == one.end and sources_of(one.text)
    ]
    if not found:
        return None
    words = [_subjects(_said(one)) for one in found]
    lines = Counter(word for said in words for word in said)
    lines.subtract({word: times for word, times in lines.items() if times >= NAME * len(found)})

    def worth(place: int) -> tuple[float, int, float, int]:
        said, one = words[place], found[place]
        typical = sum(max(0, lines[word] - 1) for word in said) / max(1, len(said)) ** LONG
        return round(typical, 6), -SECTIONS.index(one.section), weight_of(_said(one)), place

    best = found[max(range(len(found)), key=worth)]
    return clipped(_said(best), LONGEST), sources_of(best.text)[0]


def _subjects(text: str) -> frozenset[str]:
    said = content_words(text)
    return frozenset(word for word in said if not (word in VAGUE or word in TIME_WORDS or word.isdigit()))


def _said(one: entries.Entry) -> str:
    return _DAY.sub("", without_sources(one.text))


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
