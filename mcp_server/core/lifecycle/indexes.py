"""Indexes: a line for every person and every active project that has a file, kept beside what somebody wrote there.

A line of ours names the source of what it quotes, as every derived line does; a person or project that has a line by
hand gets none of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mcp_server.core.checkpoints.prose import clipped
from mcp_server.core.lifecycle.lines import Source, sources_of, without_sources
from mcp_server.core.lifecycle.statements import weight_of
from mcp_server.core.text import entries

LONGEST = 140
SECTIONS = ("About", "Key Decisions", "Next", "Done", "Facts", "What happened", "Likes and dislikes", "Plans")
"""Where what describes somebody or something is looked for first."""

_DAY = re.compile(r"^- (?:\d{4}-\d{2}-\d{2}: )?")


def description(bodies: Sequence[str]) -> tuple[str, Source] | None:
    """What a file or several say of their subject, in one line, with the turn that says so: of the first section that
    has any, the line that holds most."""
    found: dict[str, entries.Entry] = {}
    for body in bodies:
        for one in entries.entries(body):
            if one.section in SECTIONS and one.start == one.end and sources_of(one.text):
                best = found.get(one.section)
                if best is None or _worth(one) >= _worth(best):
                    found[one.section] = one
    section = next((section for section in SECTIONS if section in found), None)
    if section is None:
        return None
    text = _DAY.sub("", without_sources(found[section].text))
    return clipped(text, LONGEST), sources_of(found[section].text)[0]


def _worth(one: entries.Entry) -> float:
    return weight_of(_DAY.sub("", without_sources(one.text)))


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
