"""What every importer yields: sessions to record, files to keep, and what it could not read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from mcp_server.conversations.imports import ImportedSession, ImportedTurn

Format = Literal["claude-code", "claude-ai", "chatgpt", "markdown"]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was left out: `name` says where it stands, `why` what is wrong with it."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is: `done` of `total` bytes or files, and what is being read."""

    done: int
    total: int
    label: str


LARGEST_PART = 4_000_000
"""Characters that are recorded in one piece."""

LONGEST_ID = 128
"""Characters of an id that is taken over."""


Watch = Callable[[Progress], None]


def unwatched(_: Progress) -> None:
    """For callers who show no progress."""


def parse_time(text: object) -> datetime | None:
    """Returns the UTC time of a text in ISO format, or None. A time without a zone is taken as UTC."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # OverflowError: the year 10000 in UTC
        return None


def in_parts(session: ImportedSession) -> Iterator[ImportedSession]:
    """A long session in pieces that are recorded one after the other; one whose turns have no ids stays whole."""
    size = sum(len(turn.content) for turn in session.turns)
    if size <= LARGEST_PART or not all(turn.turn_id for turn in session.turns):
        yield session
        return
    turns: list[ImportedTurn] = []
    size = 0
    for turn in session.turns:
        turns.append(turn)
        size += len(turn.content)
        if size > LARGEST_PART:
            yield replace(session, turns=tuple(turns))
            turns, size = [], 0
    if turns:
        yield replace(session, turns=tuple(turns))


def plain_id(given: object, of: ImportedTurn) -> str:
    """`given` if it can serve as an id; else a digest of the turn that has none."""
    if isinstance(given, str | int) and not isinstance(given, bool):
        text = str(given).strip()
        if text and len(text) <= LONGEST_ID and text.isprintable():
            return text
    said = f"{of.role}\0{of.at.isoformat()}\0{of.content}"
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def short_name(path: Path) -> str:
    """A name for `path` that can stand in ids and folder names: letters, digits, `.`, `_`, `-`."""
    return re.sub(r"[^\w.-]+", "-", path.name).strip("-.") or "import"
