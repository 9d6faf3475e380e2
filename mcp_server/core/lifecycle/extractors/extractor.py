"""What every extractor is and gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime

from mcp_server.core.lifecycle.lines import Line, LineKind
from mcp_server.core.lifecycle.patterns import SELF
from mcp_server.core.lifecycle.retelling import company, introduced, retold
from mcp_server.core.lifecycle.statements import Statement, statements
from mcp_server.core.model import Turn
from mcp_server.core.understanding import recognizer
from mcp_server.core.understanding.model import Model
from mcp_server.core.understanding.recognizer import Item

USER = "The user"
"""What a person is called in conversations where nobody has a name."""

_TAKEN_OUT = ("[redacted:", "[forgotten]")


@dataclass(frozen=True, slots=True)
class Told:
    """A statement of somebody, as it is kept: `text` stands by itself, `person` is None where nobody has a name."""

    statement: Statement
    text: str
    turn: Turn
    person: str | None


@dataclass(frozen=True, slots=True)
class Context:
    """What an extractor knows beside the turns: the transcript's path and title, the slug of its project (None: it
    belongs to none), whose day a moment belongs to, who speaks, what they told, and the items that were recognized."""

    path: str
    title: str
    project: str | None
    day_of: Callable[[datetime], str]
    speakers: frozenset[str]
    told: tuple[Told, ...]
    items: tuple[Item, ...] = ()
    settled: Mapping[Item, int] = field(default_factory=dict)
    """By item, the number of the turn that replaced or closed it, as far as a review says so."""

    def line(self, kind: LineKind, text: str, turn: Turn, **more: object) -> Line:
        """A line of this conversation; its day is that on which it was said."""
        day = self.day_of(turn.at)
        return Line(kind, text, day, turn.number, self.path, said=day, project=self.project, **more)  # type: ignore[arg-type]

    def line_of(self, told: Told) -> Line:
        """What somebody told as a line; its day is the one it names, or that on which it was said. What is personal
        belongs to no project, also where it is said in one."""
        said = self.day_of(told.turn.at)
        day = told.statement.day.isoformat() if told.statement.day else said
        return Line(
            told.statement.kind,
            told.text,
            day,
            told.turn.number,
            self.path,
            person=told.person,
            said=said,
            weight=told.statement.weight,
            project=None if told.statement.personal else self.project,
        )


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
    """Returns the context of a conversation; without a `model` no items are recognized."""
    speakers = frozenset(turn.name for turn in turns if turn.name and turn.role == "user")
    told: list[Told] = []
    for turn in turns:
        if turn.role == "user":
            told += _told(turn, speakers if turn.name else frozenset(), day_of(turn.at))
    items = recognizer.read(turns, model) if model is not None and not speakers else ()
    return Context(path, title, project, day_of, speakers, tuple(told), tuple(items))


def capital(text: str) -> str:
    """A text that begins with a capital, unless its first word is none that a sentence begins with (`pnpm`, foo.py)."""
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+[ ,]", text) else text


def _told(turn: Turn, speakers: frozenset[str], day: str) -> list[Told]:
    name = turn.name or USER
    found = []
    others = company(turn.content)
    for statement in statements(turn.content, date.fromisoformat(day), speakers):
        text = _kept(statement, name, others)
        if text is not None and not any(mark in text for mark in _TAKEN_OUT):
            found.append(Told(statement, text, turn, turn.name))
    return found


def _kept(statement: Statement, name: str, others: str | None) -> str | None:
    """What somebody said as it is kept; None where it cannot be told well by somebody else."""
    if not statement.about_self:
        return statement.text
    if statement.personal and name == USER:  # else "we" is taken for those who work together
        others = others or "their family"
    told = retold(statement.text, name, others)
    if told is None and statement.kind == "preference" and not SELF.search(statement.text):
        return introduced(statement.text, name)  # a standing instruction
    return told
