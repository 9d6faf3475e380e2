"""Near-duplicates: two passages that say nearly the same, by the Jaccard share of their three-word shingles."""

from __future__ import annotations

from collections import Counter

from mcp_server.core.text.words import words

SAME = 0.8
"""Share of common shingles from which on two passages count as one."""

SHINGLE = 3

Shingles = frozenset[tuple[str, ...]]


def shingles(text: str) -> Shingles:
    """Every run of three words; of a shorter text the text as a whole."""
    said = words(text)
    if len(said) <= SHINGLE:
        return frozenset([tuple(said)]) if said else frozenset()
    return frozenset(zip(said, said[1:], said[2:], strict=False))


class Seen:
    """The passages that are already in, found again by what they share."""

    def __init__(self) -> None:
        self._passages: list[tuple[str, Shingles]] = []
        self._holders: dict[tuple[str, ...], list[int]] = {}

    def twin(self, wanted: Shingles) -> str | None:
        """The id of a passage that says nearly the same, or None."""
        common = Counter(holder for shingle in wanted for holder in self._holders.get(shingle, ()))
        alike = [
            (shared / (len(wanted) + len(self._passages[position][1]) - shared), -position)
            for position, shared in common.items()
        ]
        share, position = max(alike, default=(0.0, 0))  # the earliest of equals, whatever order a set is walked in
        return self._passages[-position][0] if share >= SAME else None

    def add(self, identity: str, known: Shingles) -> None:
        """Remembers a passage that goes in."""
        for shingle in known:
            self._holders.setdefault(shingle, []).append(len(self._passages))
        self._passages.append((identity, known))
