"""Overlap: Jaccard of words, and of character 3-grams by MinHash (S4 §4.2). |A ∩ B| / |A ∪ B|, 0..1.

Both compare a message with each piece of a topic (its head, a paragraph, a list item) and count the best: against a
whole playbook no message of a line would ever reach a threshold.

3-grams forgive spelling: "depolyment" shares half of its own with "deployment". Their sets are compared by sketches of
`BINS` numbers, one permutation hashing: every gram is hashed once, falls into a bin by its hash, and the least of each
bin is kept; the share of bins that agree among those not empty in both estimates the index (Li, Owen and Zhang, "One
permutation hashing", 2012).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from mcp_server.core.text.words import words
from mcp_server.core.watchers.profiles import Profile
from mcp_server.core.watchers.tfidf import DIGITS, Likeness

BINS = 128
GRAM = 3

Sketch = dict[int, int]
"""The least hash of every bin that is not empty."""


class Jaccard:
    """The words of every piece of all topics, by word."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._topics: list[str] = []
        self._sizes: list[int] = []
        self._said: dict[str, list[int]] = {}
        for one in profiles:
            for piece in one.pieces:
                for stem in set(piece):
                    self._said.setdefault(stem, []).append(len(self._topics))
                self._topics.append(one.topic)
                self._sizes.append(len(set(piece)))

    def likenesses(self, message: Sequence[str]) -> dict[str, Likeness]:
        """How like each topic a message of these stems is; topics that share no word with it are left out."""
        said = set(message)
        shared: dict[int, int] = {}
        for stem in said:
            for place in self._said.get(stem, ()):
                shared[place] = shared.get(place, 0) + 1
        found = {place: both / (len(said) + self._sizes[place] - both) for place, both in shared.items()}
        return _best(self._topics, found, "jaccard")


class Grams:
    """The sketches of every piece of all topics, by bin and hash."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        self._topics: list[str] = []
        self._filled: list[int] = []
        self._least: dict[tuple[int, int], list[int]] = {}
        for one in profiles:
            for text in one.text.split("\n"):
                sketch = sketched(text)
                for bin_and_hash in sketch.items():
                    self._least.setdefault(bin_and_hash, []).append(len(self._topics))
                self._topics.append(one.topic)
                self._filled.append(_filled(sketch))

    def likenesses(self, message: str) -> dict[str, Likeness]:
        """How like each topic a message is; topics of which no bin agrees are left out."""
        sketch = sketched(message)
        agreeing: dict[int, int] = {}
        for bin_and_hash in sketch.items():
            for place in self._least.get(bin_and_hash, ()):
                agreeing[place] = agreeing.get(place, 0) + 1
        filled = _filled(sketch)
        found = {place: both / (filled | self._filled[place]).bit_count() for place, both in agreeing.items()}
        return _best(self._topics, found, "ngrams")


def _filled(sketch: Sketch) -> int:
    """Which bins are not empty: one bit each."""
    return sum(1 << place for place in sketch)


def sketched(text: str) -> Sketch:
    """The sketch of a text's character 3-grams, over its folded words with one blank between them."""
    joined = f" {' '.join(words(text))} "
    sketch: Sketch = {}
    for gram in {joined[start : start + GRAM] for start in range(len(joined) - GRAM + 1)}:
        hashed = zlib.crc32(gram.encode("utf-8", "replace"))
        place = hashed % BINS
        if hashed < sketch.get(place, 1 << 32):
            sketch[place] = hashed
    return sketch


def _best(topics: Sequence[str], found: dict[int, float], term: str) -> dict[str, Likeness]:
    best: dict[str, float] = {}
    for place, value in found.items():
        best[topics[place]] = max(best.get(topics[place], 0.0), value)
    return {topic: Likeness(round(value, DIGITS), {term: round(value, DIGITS)}) for topic, value in best.items()}
