"""Procedures: how something is done, in numbered steps of an answer, once the user said that it works."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcp_server.knowledge.extractors.extractor import TAKEN_OUT, Context, Extractor
from mcp_server.model import Turn
from mcp_server.text.derived_lines import Line
from mcp_server.text.prose import bare, clipped, prose

LEAST_STEPS, MOST_STEPS = 2, 12
LONGEST_STEP = 160
LONGEST_TITLE = 80

_STEP = re.compile(r"(?:\d{1,2}[.)]|#{1,6}\s+(?:\*\*)?Step \d+[:.]?)\s*(?P<step>\S.*)", re.IGNORECASE)
_HOW = re.compile(
    r"\bhow (?:do|can|should|would|to)\s+(?:I |we |you )?(?P<what>[^.?!\n]{6,120})|"
    r"\bhelp me (?:to )?(?P<other>[^.?!\n]{6,120})",
    re.IGNORECASE,
)
_WORKED = re.compile(
    r"\b(?:that|this|it)(?:['’]s)? (?:all |now |finally )?(?:work(?:s|ed|ing)|did it|did the trick|(?:is )?fixed"
    r"|solved)\b"
    r"|\b(?:works|worked) (?:now|fine|great|perfectly|well)\b|\b(?:fixed|solved) (?:it|the|my)\b",
    re.IGNORECASE,
)
_NOT = re.compile(r"\b(?:not|n['’]t|still|but|except|however)\b|\?", re.IGNORECASE)


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns the procedures: a question, an answer in steps, and the word that they work, in three turns in a row."""
    found: list[Line] = []
    said = [turn for turn in turns if turn.role != "system"]
    for asked, answer, after in zip(said, said[1:], said[2:], strict=False):
        if (asked.role, answer.role, after.role) != ("user", "agent", "user"):
            continue
        how, first = _HOW.search(asked.content), next(iter(prose(after.content)), "")
        opening = re.split(r"(?<=[.!?])\s", first, maxsplit=1)[0]
        if how is None or not _WORKED.search(opening) or _NOT.search(opening):
            continue
        steps = [
            clipped(bare(step["step"]).replace("**", ""), LONGEST_STEP)
            for step in map(_STEP.match, prose(answer.content))
            if step
        ]
        if not LEAST_STEPS <= len(steps) <= MOST_STEPS or any(mark in step for step in steps for mark in TAKEN_OUT):
            continue
        title = clipped((how["what"] or how["other"]).strip(" ,.:;"), LONGEST_TITLE).rstrip("…").strip()
        title = title[:1].upper() + title[1:]
        text = f"{title}: " + "; ".join(f"{n}) {step.rstrip('.;:')}" for n, step in enumerate(steps, 1))
        found.append(context.line("procedure", text, answer, weight=1.0, file=title))
    return found


EXTRACTOR = Extractor("procedures", 2, extract, ("procedure",))
