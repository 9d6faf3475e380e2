"""Near-duplicates: two passages that say nearly the same, by the Jaccard share of their three-word shingles."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")

SAME = 0.8
"""Share of common shingles from which on two passages count as one."""

SHINGLE = 3

Shingles = frozenset[int]
"""Hashes of the shingles: they compare several times faster than words."""


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
        self._all: set[int] = set()

    def twin(self, wanted: Shingles) -> str | None:
        """The id of the earliest passage that says nearly the same, or None."""
        if not wanted or len(wanted & self._all) < SAME * len(wanted):
            return None  # what all of them share with it is too little, and most passages end here
        for identity, known in self._passages:
            shared = len(wanted & known)
            if shared >= SAME * (len(wanted) + len(known) - shared):
                return identity
        return None

    def add(self, identity: str, known: Shingles) -> None:
        """Remembers a passage that goes in."""
        self._passages.append((identity, known))
        self._all |= known
