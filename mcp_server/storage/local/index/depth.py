"""How many passages a search weighs before it says which are the best."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Depth:
    """Passages that `words` and that `meaning` fetch, derived `lines` that words fetch beside, and how many of the best
    units bring in what stands `around` them.

    `postings`: most passages that the words which fetch may stand in together, about 0.7 µs each; words that are more
    common than that only rank.
    `meaning`: sqlite-vec's time grows with the neighbours asked for, 31 ms for 100, 46 ms for 200 among 100,000
    passages; 200 find no more evidence (`benchmarks retrieval`). `lines`: each is ranked with its turn, and most turns
    have none.
    """

    postings: int = 10_000
    words: int = 200
    lines: int = 100
    meaning: int = 100
    around: int = 50


USUAL = Depth()
