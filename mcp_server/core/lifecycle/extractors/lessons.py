"""Lessons: what somebody says they learned or found out, and lines that are marked as a lesson."""

from __future__ import annotations

from collections.abc import Sequence

from mcp_server.core.lifecycle.extractors.extractor import Context, Extractor, capital
from mcp_server.core.lifecycle.flush import lines_of
from mcp_server.core.lifecycle.lines import Line
from mcp_server.core.model import Turn

WEIGHT = 3.0


def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
    """The lessons of a conversation, in order. Between people with names they stand in the people's files."""
    found = [context.line_of(told) for told in context.told if told.statement.kind == "lesson" and told.person is None]
    for turn in turns:
        if turn.role == "system":
            continue
        for line in lines_of(turn.content, turn.number):
            if line.kind == "lesson" and "[redacted:" not in line.text and "[forgotten]" not in line.text:
                found.append(context.line("lesson", capital(line.text), turn, weight=WEIGHT))
    return sorted(found, key=lambda line: line.turn)


EXTRACTOR = Extractor("lessons", 3, extract, ("lesson",))
