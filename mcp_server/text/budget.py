"""Budget: counting each text once, and who may spend how much (SPEC §10).

A cap is the most that a slot may take; a floor is kept free for a slot while earlier ones fill, if it has something to
say. What a slot leaves, later ones may use. KB caps (of 1,024 bytes) hold only where they are smaller than the share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Count = Callable[[str], int]
"""Tokens of a text, at least 0; `count("")` is 0."""

UNLIMITED_BYTES = 1 << 62
MOST_CHARACTERS_PER_TOKEN = 16
"""A text longer than its room times this is cut before it is counted: nobody tokenises 20 MB to show 200 tokens."""


class Meter:
    """Counts tokens, each text once."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._known: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        tokens = self._known.get(text)
        if tokens is None:
            tokens = self._known[text] = self._count(text)
        return tokens

    def line(self, text: str) -> int:
        """Tokens of a line with its end. Lines are where tokens end too, so these may be added up."""
        return self(text + "\n")


@dataclass(frozen=True, slots=True)
class Room:
    """What a slot may spend: tokens and bytes of rendered text."""

    tokens: int
    bytes: int = UNLIMITED_BYTES

    def holds(self, text: str, meter: Meter) -> bool:
        """Does `text`, as a block with its line end, fit? Long texts are refused before they are counted."""
        if len(text) > self.tokens * MOST_CHARACTERS_PER_TOKEN or len(text) > self.bytes:
            return False
        return len(text.encode("utf-8", "replace")) <= self.bytes and meter.line(text) <= self.tokens

    def less(self, text: str, meter: Meter) -> Room:
        """The room that is left beside `text`."""
        return Room(
            max(0, self.tokens - meter.line(text)), max(0, self.bytes - len(text.encode("utf-8", "replace")) - 1)
        )


def kilobytes(size: float) -> int:
    """KB of 1,024 bytes as bytes."""
    return int(size * 1024)


def shared_out(needs: Sequence[int], room: int) -> list[int]:
    """`room` divided so that small needs are met whole and large ones get equal parts.

    >>> shared_out([10, 500, 300], 210)
    [10, 100, 100]
    """
    parts = [0] * len(needs)
    left = max(0, room)
    for done, position in enumerate(sorted(range(len(needs)), key=lambda index: (needs[index], index))):
        parts[position] = min(needs[position], left // (len(needs) - done))
        left -= parts[position]
    return parts
