"""Near-duplicates: two passages that say nearly the same, by the Jaccard share of their three-word shingles.

Sets that share so much also share one of their first few members in any fixed order, so only those are looked up
(prefix filtering); what is found that way is compared exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")

SAME = 0.8
"""Share of common shingles from which on two passages count as one."""

SHINGLE = 3

Shingles = frozenset[int]
"""Hashes of the shingles: they compare and sort several times faster than words. Python's hashes are others in every
process; that changes which few are looked up, never what is found."""


def shingles(text: str) -> Shingles:
    """Every run of three words; of a shorter text the text as a whole."""
    said = _WORD.findall(text.lower())
    if len(said) <= SHINGLE:
        return frozenset([hash(tuple(said))]) if said else frozenset()
    return frozenset(map(hash, zip(said, said[1:], said[2:], strict=False)))


class Seen:
    """The passages that are already in, found again by what they share."""

    def __init__(self) -> None:
        self._passages: list[tuple[str, Shingles]] = []
        self._holders: dict[int, list[int]] = {}

    def twin(self, wanted: Shingles) -> str | None:
        """The id of the earliest passage that says nearly the same, or None."""
        holders = {holder for shingle in _first_few(wanted) for holder in self._holders.get(shingle, ())}
        for place in sorted(holders):
            identity, known = self._passages[place]
            shared = len(wanted & known)
            if shared >= SAME * (len(wanted) + len(known) - shared):
                return identity
        return None

    def add(self, identity: str, known: Shingles) -> None:
        """Remembers a passage that goes in."""
        for shingle in _first_few(known):
            self._holders.setdefault(shingle, []).append(len(self._passages))
        self._passages.append((identity, known))


def _first_few(known: Shingles) -> Sequence[int]:
    """So many that the others alone are too few to make two sets nearly equal."""
    return sorted(known)[: len(known) - math.ceil(SAME * len(known)) + 1]
