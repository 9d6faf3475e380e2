"""What every extractor is and gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime

from mcp_server.knowledge.statements import statements
from mcp_server.model import Turn
from mcp_server.text.derived_lines import Line, LineKind
from mcp_server.text.forgotten import MARK
from mcp_server.understanding import recognizer
from mcp_server.understanding.model import Model
from mcp_server.understanding.recognizer import Item

USER = "The user"
"""The name of a person who has none in the conversation."""

TAKEN_OUT = ("[redacted:", MARK)
"""Marks of passages that were removed: a sentence with one of them becomes no line."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an extractor knows beside the turns: the transcript's path and title, the slug of its project (None: it
    belongs to none), whose day a moment belongs to, who speaks, and the items that were recognized."""

    path: str
    title: str
    project: str | None
    day_of: Callable[[datetime], str]
    speakers: frozenset[str]
    items: tuple[Item, ...] = ()
    settled: Mapping[Item, int] = field(default_factory=dict)
    """By item, the number of the turn that replaced or closed it, as far as a review says so."""

    def line(self, kind: LineKind, text: str, turn: Turn, **more: object) -> Line:
        """Returns a line of this conversation; its day is that on which it was said."""
        day = self.day_of(turn.at)
        more = {"project": self.project, **more}
        return Line(kind, text, day, turn.number, self.path, said=day, **more)  # type: ignore[arg-type]

    def told_by(self, turn: Turn) -> list[Line]:
        """Returns what a named person tells of themselves in a message, in their own words; its day is the one that
        the words name, or that of the message."""
        if turn.role != "user" or not turn.name:
            return []
        found = []
        for one in statements(turn.content, date.fromisoformat(self.day_of(turn.at)), self.speakers):
            if not any(mark in one.text for mark in TAKEN_OUT):
                line = self.line(one.kind, f"{turn.name}: {one.text}", turn, person=turn.name, weight=one.weight)
                found.append(replace(line, day=one.day.isoformat() if one.day else line.day))
        return found


@dataclass(frozen=True, slots=True)
class Extractor:
    """A named way of reading a conversation; `version` counts up whenever the same turns would give other lines.

    `kinds` are the kinds of lines that it gives: a model's lines of these kinds take the place of its own, if one is
    asked (`prompts/extract.md`).
    """

    name: str
    version: int
    extract: Callable[[Sequence[Turn], Context], list[Line]]
    kinds: tuple[LineKind, ...] = ()


def context_of(
    turns: Sequence[Turn],
    path: str,
    title: str,
    project: str | None,
    day_of: Callable[[datetime], str],
    model: Model | None = None,
) -> Context:
    """Returns the context of a conversation; without a `model`, or between named people, no items are recognized."""
    speakers = frozenset(turn.name for turn in turns if turn.name and turn.role == "user")
    items = recognizer.read(turns, model) if model is not None and not speakers else ()
    return Context(path, title, project, day_of, speakers, tuple(items))
