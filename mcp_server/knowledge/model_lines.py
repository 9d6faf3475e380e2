"""The request for an extraction by an LLM, and the check of its answer.

An answer that is no JSON array is unusable; then the lines of the rules are kept. A line is accepted if its turn was
shown, its kind is known, and the turn has most of its words, so that a model cannot invent facts. For a refused line
the lines of the rules are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, get_args

from mcp_server.conversations.authorship import is_injected
from mcp_server.knowledge.extractors.extractor import USER, Context
from mcp_server.model import Turn
from mcp_server.text.derived_lines import Line, LineKind
from mcp_server.text.fencing import neutralise
from mcp_server.text.prose import clipped
from mcp_server.text.words import content_words

ANSWER_TOKENS = 1_500
MESSAGES = 40
"""Messages that one request shows."""
LONGEST_MESSAGE = 800
LONGEST_LINE = 300
SUPPORTED = 0.4
"""Share of a line's content words that must stand in its turn."""
WEIGHT = 2.5

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)


def requests(template: str, turns: Sequence[Turn], context: Context) -> list[str]:
    """The prompts for a conversation, each with at most `MESSAGES` of its messages."""
    shown = [_shown(turn, context) for turn in turns if turn.content.strip() and not is_injected(turn.content)]
    windows = [shown[start : start + MESSAGES] for start in range(0, len(shown), MESSAGES)]
    return [template.replace("{messages}", "\n".join(window)) for window in windows]


def _shown(turn: Turn, context: Context) -> str:
    who = turn.name or ("The user" if turn.role == "user" else "The assistant" if turn.role == "agent" else "System")
    said = neutralise(clipped(turn.content, LONGEST_MESSAGE))
    return f"[{turn.number}] {neutralise(who)}, {context.day_of(turn.at)}: {said}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The accepted lines of an answer, and the turn of each refused line (None if it names none that was shown)."""

    lines: tuple[Line, ...] = ()
    refused: tuple[int | None, ...] = ()

    def unanswered(self, turns: Sequence[Turn]) -> frozenset[int]:
        """Returns the turns for which the rules' lines stand: those of refused lines and, if any line was refused, all
        turns without an accepted line."""
        if not self.refused:
            return frozenset()
        answered = {line.turn for line in self.lines} - set(self.refused)
        return frozenset(turn.number for turn in turns) - answered


def read(answer: str, turns: Sequence[Turn], context: Context) -> Answer | None:
    """Returns the lines of an answer; None if the answer is no JSON array."""
    fenced = _FENCED.fullmatch(answer)
    try:
        value = json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    by_number = {turn.number: turn for turn in turns}
    lines: list[Line] = []
    refused: list[int | None] = []
    for one in value:
        line = _line(one, by_number, context)
        if line is not None:
            lines.append(line)
        else:
            number = one.get("turn") if isinstance(one, dict) else None
            refused.append(number if isinstance(number, int) and number in by_number else None)
    return Answer(tuple(lines), tuple(refused))


def _line(value: Any, turns: dict[int, Turn], context: Context) -> Line | None:
    if not isinstance(value, dict) or not isinstance(value.get("turn"), int) or not isinstance(value.get("text"), str):
        return None
    turn, text = turns.get(value["turn"]), clipped(neutralise(value["text"]), LONGEST_LINE)
    kind = next((kind for kind in get_args(LineKind) if kind == value.get("kind")), None)
    if turn is None or kind is None or "[src:" in text or not _supported(text, turn):
        return None
    person = value.get("person")
    said = context.day_of(turn.at)
    return Line(
        kind,
        text,
        _day(value.get("day")) or said,
        turn.number,
        context.path,
        person=person if isinstance(person, str) and person in context.speakers else None,
        said=said,
        weight=WEIGHT,
        project=context.project,
        file=text.partition(":")[0] if kind == "procedure" else "",
    )


def _day(value: object) -> str | None:
    try:
        return date.fromisoformat(value).isoformat() if isinstance(value, str) else None
    except ValueError:
        return None


def _supported(text: str, turn: Turn) -> bool:
    names = content_words(f"{turn.name or ''} {USER}")
    said = content_words(text, names)
    known = set(content_words(turn.content))
    return bool(said) and sum(word in known for word in said) >= SUPPORTED * len(said)
