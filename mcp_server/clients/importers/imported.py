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

Format = Literal["claude-code", "claude-ai", "chatgpt", "locomo", "beam", "markdown"]

SECONDS_A_TURN = 10
"""Where a file gives one time for a whole session, its turns follow each other at this distance."""


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


_FULL_NAMES = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTHS = {name: number for number, full in enumerate(_FULL_NAMES, start=1) for name in (full, full[:3])} | {"sept": 9}
_CLOCK = re.compile(
    r"(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?\s*([ap])\.?m\.?|(\d{1,2}):(\d{2})(?::(\d{2}))?", re.IGNORECASE
)
_DAY_FIRST = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?[\s,./-]+([A-Za-z]{3,9})\.?[\s,./-]+(\d{4})")
_MONTH_FIRST = re.compile(r"([A-Za-z]{3,9})\.?[\s,./-]+(\d{1,2})(?:st|nd|rd|th)?[\s,./-]+(\d{4})")


def parse_time(text: object, *, hour: int = 12) -> datetime | None:
    """The moment, in UTC, that a data file means by `1:56 pm on 8 May, 2023`, `March-15-2024` or an ISO time.

    A date alone means `hour` o'clock (noon is the same day nearly everywhere); a time without a zone is taken as UTC.
    None if there is no date in `text`.
    """
    if not isinstance(text, str):
        return None
    text = text.strip()
    try:
        moment = datetime.fromisoformat(text)
        if len(text) <= len("2024-03-15"):
            moment = moment.replace(hour=hour)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:  # the year 10000, in UTC
        return None
    except ValueError:
        pass
    clock, rest = _CLOCK.search(text), text
    if clock:
        rest = text[: clock.start()] + " " + text[clock.end() :]
    day, month, year = _date(rest)
    try:
        return datetime(year, month, day, *(_clock(clock) if clock else (hour, 0, 0)), tzinfo=UTC)
    except ValueError:
        return None


def _date(text: str) -> tuple[int, int, int]:
    for match in _DAY_FIRST.finditer(text):
        if month := _MONTHS.get(match[2].lower()):
            return int(match[1]), month, int(match[3])
    for match in _MONTH_FIRST.finditer(text):
        if month := _MONTHS.get(match[1].lower()):
            return int(match[2]), month, int(match[3])
    return 0, 0, 0


def _clock(match: re.Match[str]) -> tuple[int, int, int]:
    if match[4]:
        hour = int(match[1])
        if not 1 <= hour <= 12:
            raise ValueError(f"no such hour: {match[0]}")
        return hour % 12 + (12 if match[4] in "pP" else 0), int(match[2] or 0), int(match[3] or 0)
    return int(match[5]), int(match[6]), int(match[7] or 0)


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
