"""Indexes: a line for every person and every active project that has a file, kept beside what somebody wrote there.

A line of ours names the source of what it quotes, as every derived line does; a person or project that has a line by
hand gets none of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mcp_server.core.lifecycle.lines import Source, shortened, sources_of, without_sources
from mcp_server.core.text import entries
from mcp_server.core.text.markdown import sections

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
