"""The lines that the user never wants to see pushed again. Search and compiled contexts still find them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mcp_server.context.exclusions import without
from mcp_server.context.window_text import fingerprints, was_sent
from mcp_server.errors import Invalid
from mcp_server.memory import Memory
from mcp_server.model import SourceFile
from mcp_server.text.derived_lines import without_sources

NAMESPACE = "never_pushed"
WHY = "you said: never push this"
LONGEST_SHOWN = 200
"""Characters of a text that are kept to show it to the user."""


@dataclass(frozen=True, slots=True)
class NeverPushed:
    """A text that is never pushed. `words` is its beginning, `id` its name for `allow`."""

    id: str
    words: str
    at: datetime


async def never_push(memory: Memory, text: str) -> NeverPushed:
    """Stops pushes of a text, wherever it is stored. Raises Invalid for a text without words."""
    plain = without_sources(text)
    marks = fingerprints(plain)
    if not marks:
        raise Invalid("these lines have no words by which they could be recognized")
    number = hashlib.sha256("".join(marks).encode()).hexdigest()[:12]
    now = memory.clock()
    words = " ".join(plain.split())[:LONGEST_SHOWN]
    await memory.state.put(NAMESPACE, number, {"words": words, "marks": list(marks), "at": now.isoformat()})
    return NeverPushed(number, words, now)


async def allow(memory: Memory, number: str) -> None:
    """Allows pushes of a text again."""
    await memory.state.remove(NAMESPACE, number)


async def never_pushed(memory: Memory) -> list[NeverPushed]:
    """Returns the texts that are never pushed, newest first."""
    found = [
        NeverPushed(number, str(one["words"]), datetime.fromisoformat(one["at"]))
        for number, one in (await memory.state.entries(NAMESPACE)).items()
        if isinstance(one, dict)
    ]
    return sorted(found, key=lambda one: one.at, reverse=True)


async def marks_of(memory: Memory) -> frozenset[str]:
    """Returns the fingerprints of all lines that are never pushed."""
    stored: dict[str, Any] = await memory.state.entries(NAMESPACE)
    return frozenset(mark for one in stored.values() if isinstance(one, dict) for mark in one.get("marks", ()))


def is_never_pushed(text: str, marks: Collection[str]) -> bool:
    """Returns whether every line of a text is never pushed. `marks` are those of `marks_of`."""
    return bool(marks) and bool(fingerprints(text)) and was_sent(text, marks)


def without_lines(source: SourceFile, marks: Collection[str]) -> SourceFile:
    """Returns a file without the lines that are never pushed."""
    if not marks:
        return source
    rows = map(without_sources, source.text.split("\n"))
    return without(source, {place: WHY for place, row in enumerate(rows) if is_never_pushed(row, marks)})
