"""Counts the tokens of each text once, and divides tokens and bytes among the parts of a context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Count = Callable[[str], int]
"""Returns the tokens of a text, at least 0; `count("")` is 0."""

UNLIMITED_BYTES = 1 << 62
MOST_CHARACTERS_PER_TOKEN = 16
"""A text with more characters than this for each token of its room is not counted: it cannot fit."""


class Meter:
    """Counts tokens and caches the result for each text."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._known[text] = self._count(text)
        return tokens

    def line(self, text: str) -> int:
        """Returns the tokens of a line with its line end. Tokens end at line ends, so the sum over lines is exact."""
        return self(text + "\n")


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens and bytes that rendered text may take."""

    tokens: int
    bytes: int = UNLIMITED_BYTES

    def holds(self, text: str, meter: Meter) -> bool:
        """Returns whether a text with its line end fits. Texts that are certainly too long are not counted."""
        if len(text) > self.tokens * MOST_CHARACTERS_PER_TOKEN or len(text) > self.bytes:
            return False
        return len(text.encode("utf-8", "replace")) <= self.bytes and meter.line(text) <= self.tokens

    def less(self, text: str, meter: Meter) -> Room:
        """Returns the room that is left after `text`."""
        return Room(
            max(0, self.tokens - meter.line(text)), max(0, self.bytes - len(text.encode("utf-8", "replace")) - 1)
        )


def kilobytes(size: float) -> int:
    """Returns KB of 1,024 bytes as bytes."""
    return int(size * 1024)


def shared_out(needs: Sequence[int], room: int) -> list[int]:
    """Returns `room` divided among the needs: small needs are met in full, large ones get equal parts.

    >>> shared_out([10, 500, 300], 210)
    [10, 100, 100]
    """
    parts = [0] * len(needs)
    left = max(0, room)
    for done, position in enumerate(sorted(range(len(needs)), key=lambda index: (needs[index], index))):
        parts[position] = min(needs[position], left // (len(needs) - done))
        left -= parts[position]
    return parts
