"""Three versions of a list of lines, cut where they agree: what each side changed, and where both did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of lines. `settled` is what it becomes; None where both sides changed it, and differently."""

    base: tuple[str, ...]
    ours: tuple[str, ...]
    theirs: tuple[str, ...]

    @property
    def settled(self) -> tuple[str, ...] | None:
        """The version of the one side that changed it, or of both if they agree."""
        if self.ours == self.theirs or self.theirs == self.base:
            return self.ours
        return self.theirs if self.ours == self.base else None


def pieces(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Piece]:
    """The three versions in stretches, in order; stretches that all three share stand for themselves. (diff3: Khanna,
    Kunal, Pierce, "A Formal Investigation of Diff3", 2007)"""
    at_base = at_ours = at_theirs = 0
    for start, end, in_ours, in_theirs in _agreed(base, ours, theirs):
        between = Piece(tuple(base[at_base:start]), tuple(ours[at_ours:in_ours]), tuple(theirs[at_theirs:in_theirs]))
        if between.base or between.ours or between.theirs:
            yield between
        if same := tuple(base[start:end]):
            yield Piece(same, same, same)
        at_base, at_ours, at_theirs = end, in_ours + end - start, in_theirs + end - start


def common(ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """The lines that two versions share, in order: what stands for the base where there is none."""
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    return [line for block in matcher.get_matching_blocks() for line in ours[block.a : block.a + block.size]]


def _agreed(base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """(start, end, start in ours, start in theirs) of each stretch of the base that both sides kept, and of the end."""
    kept = SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    also = SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    i = j = 0
    while i < len(kept) and j < len(also):
        a, b = kept[i], also[j]
        start, end = max(a.a, b.a), min(a.a + a.size, b.a + b.size)
        if start < end:
            yield start, end, a.b + start - a.a, b.b + start - b.a
        if a.a + a.size < b.a + b.size:
            i += 1
        else:
            j += 1
    yield len(base), len(base), len(ours), len(theirs)
