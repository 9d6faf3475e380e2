"""Knowledge: how much is a found passage worth to a compiled context?

    score = relevance · decay · (1 + 0.1 · references)                                 (S4 §6.3, corrected by SPEC §8.4)

    relevance  = what search says, with all its terms
    decay      = max(0.6, e^(−0.1 · days)) for knowledge files; 1 for transcripts, what was derived from them, and
                 imports, which do not age
    references = reads, recoveries and answers that used the passage's file; never compilations

`days` are whole days from the file's `updated` (else last commit, else mtime) to `now`, at least 0. The floor of 0.6
keeps old knowledge reachable: without it, a passage older than a month could win nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mcp_server.model import Hit
from mcp_server.text.derived_lines import is_derived

DECAY_PER_DAY = 0.1
LEAST_DECAY = 0.6
PER_REFERENCE = 0.1
DIGITS = 6


@dataclass(frozen=True, slots=True)
class KnowledgeScore:
    """A score that is its own explanation: `total` is the product of the three factors, rounded to six places."""

    relevance: float
    decay: float
    references: float

    @property
    def total(self) -> float:
        return round(self.relevance * self.decay * self.references, DIGITS)

    def terms(self) -> Mapping[str, float]:
        """The factors by name, as the receipt shows them."""
        return {"relevance": self.relevance, "decay": self.decay, "references": self.references}


def score(hit: Hit, references: int, now: datetime) -> KnowledgeScore:
    """Scores `hit` as of `now`; `references` counts how often its file was of use (0 or more)."""
    return KnowledgeScore(
        relevance=round(hit.score, DIGITS),
        decay=round(decay(hit, now), DIGITS),
        references=round(1 + PER_REFERENCE * max(0, references), DIGITS),
    )


def decay(hit: Hit, now: datetime) -> float:
    """The share of its relevance that a passage keeps at its age: 0.6 to 1."""
    passage = hit.passage
    if hit.imported or passage.at is None or passage.category == "conversation" or is_derived(passage.text):
        return 1.0
    return max(LEAST_DECAY, math.exp(-DECAY_PER_DAY * max(0, (now - passage.at).days)))
