"""The advisor's score: should this file, skill or agent output stay in the context?        (S2 "Scoring Factors")

    score = recency + frequency + relevance, each 0 to 10, together 0 to 30

    recency   = 10 within 5 minutes of the last access, 8 within 15, 6 within 30, 4 within 60, 2 within 120, else 0
    frequency = 10 from 10 accesses on, 8 from 7, 6 from 4, 4 from 2, 2 for 1, else 0
    relevance = 10 if a keyword of the prompt is a word of the item's name, path or tags
                 8 if it is a word of its description or category only
                 6 for the same technology, 4 for the same architectural layer (by the lexicon)
                 2 for something generic, 0 for something unrelated

On the first prompt of a session nothing was accessed yet: recency is 10 and frequency 0 for all (S2 "Case 1").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

MINUTES = ((5, 10), (15, 8), (30, 6), (60, 4), (120, 2))
ACCESSES = ((10, 10), (7, 8), (4, 6), (2, 4), (1, 2))
DIRECT, RELATED, SAME_TECHNOLOGY, SAME_LAYER, GENERIC, UNRELATED = 10, 8, 6, 4, 2, 0

Band = Literal["prune", "consider", "keep unless critical", "keep"]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Which words belong together, folded: technology or layer → its words; and words of what everybody uses."""

    technologies: Mapping[str, frozenset[str]]
    layers: Mapping[str, frozenset[str]]
    generic: frozenset[str]


@dataclass(frozen=True, slots=True)
class AdvisorScore:
    """A score that is its own explanation: `total` is the sum of the three; `why` says what made the relevance."""

    recency: int
    frequency: int
    relevance: int
    why: str = ""

    @property
    def total(self) -> int:
        return self.recency + self.frequency + self.relevance

    @property
    def band(self) -> Band:
        """S2 "Pruning Thresholds": what the score says by itself, whatever the gauge."""
        return band(self.total)

    def terms(self) -> Mapping[str, int]:
        """The terms by name, as S2's state file keeps them."""
        return {"recency": self.recency, "frequency": self.frequency, "relevance": self.relevance}


def band(total: int) -> Band:
    """0–8 prune, 9–15 consider, 16–22 keep unless critical, 23–30 keep."""
    if total <= 8:
        return "prune"
    if total <= 15:
        return "consider"
    return "keep unless critical" if total <= 22 else "keep"


def recency(minutes: float) -> int:
    """Points for an item that was accessed `minutes` ago; the bounds belong to the better tier."""
    return next((points for most, points in MINUTES if minutes <= most), 0)


def frequency(accesses: int) -> int:
    """Points for the number of accesses in this session."""
    return next((points for least, points in ACCESSES if accesses >= least), 0)


def relevance(
    keywords: Iterable[str], named: frozenset[str], described: frozenset[str], lexicon: Lexicon
) -> tuple[int, str]:
    """Points, and why. `keywords` are the prompt's content words, `named` the words of an item's name, path and tags,
    `described` those of its description and category; all folded."""
    asked = frozenset(keywords)
    if direct := sorted(asked & named):
        return DIRECT, f"named in the prompt: {', '.join(direct)}"
    if related := sorted(asked & described):
        return RELATED, f"described by the prompt's {', '.join(related)}"
    words = named | described
    if technology := _shared(asked, words, lexicon.technologies):
        return SAME_TECHNOLOGY, f"same technology: {technology}"
    if layer := _shared(asked, words, lexicon.layers):
        return SAME_LAYER, f"same layer: {layer}"
    if general := sorted(words & lexicon.generic):
        return GENERIC, f"generic: {', '.join(general)}"
    return UNRELATED, "unrelated to the prompt"


def _shared(asked: frozenset[str], words: frozenset[str], groups: Mapping[str, frozenset[str]]) -> str:
    """The first group that both have a word of; empty if there is none."""
    return next((name for name, group in groups.items() if asked & group and words & group), "")
