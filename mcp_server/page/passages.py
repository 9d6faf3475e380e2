"""Reads the text of passages that logs and receipts give as path and lines, as in `knowledge/reference/a.md:3-4`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.memory import Memory
from mcp_server.text.entries import sources_of, without_sources
from mcp_server.text.prose import clipped
from mcp_server.text.transcript import PlacedTurn

CONVERSATIONS = "raw/conversations/"
LONGEST = 400
"""Maximum length of a passage in a list, in characters."""

_PLACE = re.compile(r"(.+):(\d+)-(\d+)")
_BULLET = re.compile(r"^\s*[-*+] (?:\d{4}-\d{2}-\d{2}:? )?")


@dataclass(frozen=True, slots=True)
class Words:
    """The text of a passage at lines `line` to `end` of `path`, shortened for a list.

    `speaker` and `day` are set for messages. `source` is the message that a line was derived from, or "". `gone`: the
    file or the lines no longer exist.
    """

    text: str
    path: str
    line: int
    end: int
    speaker: str = ""
    day: str = ""
    gone: bool = False
    source: str = ""

    @property
    def is_turn(self) -> bool:
        return self.path.startswith(CONVERSATIONS)


@dataclass(slots=True)
class Passages:
    """Reads passages and caches their files; make one for each response. Methods block: call them in a thread."""

    memory: Memory
    _texts: dict[str, list[str]] = field(default_factory=dict)
    _turns: dict[str, tuple[PlacedTurn, ...]] = field(default_factory=dict)

    def of(self, place: str, title: str = "") -> Words:
        """Returns the text at `PATH:FIRST-LAST`, or the title or id if `place` is something else."""
        found = _PLACE.fullmatch(place)
        path, first, last = (found[1], int(found[2]), int(found[3])) if found else (place, 1, 1)
        if path.startswith(CONVERSATIONS):
            placed = self.turn_at(path, first)
            if placed is None:
                return Words(title or path, path, first, last, gone=True)
            return _said(path, placed, _part(placed, first, last))
        lines = self.lines(path)
        chosen = lines[first - 1 : last] if found else []
        if not lines or (found and not chosen):
            return Words(title or place, path, first, last, gone=not lines or bool(found))
        if not found:
            return Words(title or path.rpartition("/")[2], path, 1, 1)
        text = "\n".join(chosen)
        source = next((str(one) for one in sources_of(text)), "")
        rows = [_BULLET.sub("", without_sources(row)) for row in chosen if row.strip() and not row.startswith("#")]
        return Words(clipped(" ".join(rows), LONGEST) or title or path, path, first, last, source=source)

    def text(self, place: str) -> str:
        """Returns the whole text at `PATH:FIRST-LAST`. Raises NotFound if it no longer exists."""
        found = _PLACE.fullmatch(place)
        if found is not None:
            path, first, last = found[1], int(found[2]), int(found[3])
            placed = self.turn_at(path, first)
            rows = self.lines(path)[first - 1 : last]
            text = _part(placed, first, last) if placed else "\n".join(rows)
            if text.strip():
                return text
        raise NotFound("this passage no longer exists; it was changed or forgotten")

    def turn(self, source: str) -> Words | None:
        """Returns the message `TRANSCRIPT#TURN`, or None if it does not exist."""
        path, _, number = source.rpartition("#")
        placed = next((one for one in self.turns(path) if str(one.turn.number) == number), None)
        return _said(path, placed, placed.turn.content) if placed else None

    def turn_at(self, path: str, line: int) -> PlacedTurn | None:
        """Returns the message at a line of a transcript, or None."""
        return next((one for one in self.turns(path) if one.start <= line <= one.end), None)

    def turns(self, path: str) -> tuple[PlacedTurn, ...]:
        """Returns the messages of a transcript, or () if the file is not a readable transcript."""
        if not path.startswith(CONVERSATIONS):
            return ()
        if path not in self._turns:
            try:
                self._turns[path] = tuple(self.memory.transcripts.read(path).turns)
            except ContextManagerError:
                self._turns[path] = ()
        return self._turns[path]

    def lines(self, path: str) -> list[str]:
        """Returns the lines of a file, or [] if it cannot be read."""
        if path not in self._texts:
            try:
                text = self.memory.files.text_or_none(path)
            except ContextManagerError:
                text = None
            self._texts[path] = text.split("\n") if text else []
        return self._texts[path]


def _part(placed: PlacedTurn, first: int, last: int) -> str:
    """Returns the part of a message at lines `first` to `last` of its file, or all of it if it has no text there."""
    rows = placed.turn.content.split("\n")
    part = "\n".join(rows[max(0, first - placed.content_line) : max(0, last - placed.content_line + 1)])
    return part or placed.turn.content


def _said(path: str, placed: PlacedTurn, text: str) -> Words:
    turn = placed.turn
    return Words(clipped(text, LONGEST), path, placed.start, placed.end, turn.name or turn.role, f"{turn.at:%Y-%m-%d}")


def largest_first(terms: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Returns the positive terms of a score, largest first."""
    return sorted(((name, value) for name, value in terms if value > 0), key=lambda term: -term[1])


def where(words: Words) -> str:
    """Returns the source of a passage for display: `user · 2026-03-21` or `reference › general`."""
    if words.is_turn:
        return " · ".join(filter(None, (words.speaker, words.day)))
    return words.path.removeprefix("knowledge/").removesuffix(".md").replace("/", " › ")


def by_kind(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Returns the tokens of the included candidates for each kind of source, largest first."""
    sums: Counter[str] = Counter()
    for row in rows:
        if row.get("included") and row.get("tokens"):
            sums[kind_of(str(row.get("source") or row.get("id") or ""), str(row.get("slot") or ""))] += row["tokens"]
    return sums.most_common()


_KINDS = {
    "raw/conversations/": "conversations",
    "knowledge/projects/": "projects",
    "knowledge/people/": "people",
    "knowledge/identity/": "identity",
    "knowledge/memory/": "MEMORY.md",
    "knowledge/journal/": "journals",
    "knowledge/reference/": "general page",
    "knowledge/": "other pages",
    "topics/": "topics",
}


def kind_of(source: str, slot: str) -> str:
    """Returns the kind of a source for display, as in `conversations`."""
    return next((kind for prefix, kind in _KINDS.items() if source.startswith(prefix)), slot or "other")
