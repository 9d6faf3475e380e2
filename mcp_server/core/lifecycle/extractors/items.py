"""Decisions, rules, facts, open items and reports, as the recognizer finds them (`core/understanding`).

Between people with names (imported chats) nobody works with an agent: there, decisions and facts are what the people
tell of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mcp_server.core.lifecycle.extractors.extractor import Context, Extractor
from mcp_server.core.lifecycle.lines import Line, LineKind
from mcp_server.core.model import Turn
from mcp_server.core.understanding.recognizer import Item, ItemKind

VERSION = 1

WEIGHTS: Mapping[LineKind, float] = {"decision": 3.0, "rule": 3.0, "open": 2.0, "fact": 1.5, "report": 2.0}


def _of(kind: LineKind, found: ItemKind) -> Callable[[Sequence[Turn], Context], list[Line]]:
    def extract(turns: Sequence[Turn], context: Context) -> list[Line]:
        if context.speakers:
            return [
                context.line_of(told) for told in context.told if told.statement.kind == kind and told.person is None
            ]
        by_number = {turn.number: turn for turn in turns}

        def settled(item: Item) -> tuple[int, str] | None:
            number = context.settled.get(item)
            return (number, context.day_of(by_number[number].at)) if number in by_number else None

        return [
            context.line(
                kind,
                item.text,
                by_number[item.sources[0]],
                weight=WEIGHTS[kind],
                changes=item.changes,
                settled_by=settled(item),
            )
            for item in context.items
            if item.kind == found and not any(mark in item.text for mark in ("[redacted:", "[forgotten]"))
        ]

    return extract


DECISIONS = Extractor("decisions", VERSION + 3, _of("decision", "decision"), ("decision",))
EXTRACTORS = (
    DECISIONS,
    Extractor("rules", VERSION, _of("rule", "rule")),
    Extractor("facts", VERSION + 3, _of("fact", "fact"), ("fact",)),
    Extractor("open items", VERSION, _of("open", "open")),
    Extractor("reports", VERSION, _of("report", "report")),
)
