"""The journal: what of a day's talk is most worth remembering, a few lines a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mcp_server.core.lifecycle.extractors import items, lessons
from mcp_server.core.lifecycle.extractors.extractor import Context, Extractor
from mcp_server.core.lifecycle.lines import Line
from mcp_server.core.model import Turn

MOST = 8
"""Lines of one conversation: those that hold most, in the order in which they were said."""
LEAST_WEIGHT = 1.5
HAPPENED = ("event", "doing", "blocker", "plan", "about", "fact", "procedure")
PREFIXES = {"decision": "Decision: ", "lesson": "Lesson: "}


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """Returns decisions and lessons, then the weightiest of what happened and is planned, each by the day it was said.

    What a message tells of a kind that was recognized in it is not told twice.
    """
    settled = [*items.DECISIONS.extract(turns, context), *lessons.extract(turns, context)]
    marked = {(line.turn, line.kind) for line in settled}
    told = [context.line_of(one) for one in context.told if one.statement.kind != "preference"]
    return chosen([*settled, *(line for line in told if (line.turn, line.kind) not in marked)])


def chosen(lines: Sequence[Line]) -> list[Line]:
    """The lines of a conversation that belong into the journal, as they stand there."""
    settled = [line for line in lines if line.kind in PREFIXES]
    happened = [line for line in lines if line.kind in HAPPENED and line.weight >= LEAST_WEIGHT]
    best = sorted([*settled, *happened], key=lambda line: (line.kind not in PREFIXES, -line.weight, line.turn))[:MOST]
    return [
        replace(line, text=PREFIXES.get(line.kind, "") + line.text, day="", file="journal")
        for line in sorted(best, key=lambda line: line.turn)
    ]


EXTRACTOR = Extractor("journal", 4, extract)
