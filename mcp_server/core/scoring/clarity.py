"""Clarity: how much does a named thing (project, tool, file, keyword) matter to a conversation right now?

    score = base + recency + utility + staleness + anchor                            (S0 "Scoring Algorithm", SPEC §8.1)

    base      = frequency_scale · log2(mentions + 1)
    recency   = recency_bonus · (1 − silent / (recency_window + 1)) while silent ≤ recency_window, then 0
    utility   = reference_weight · references
    staleness = −base · (1 − 0.5^(stale / half_life)), stale = max(0, silent − recency_window)
    anchor    = anchor_bonus where the user anchored it

`silent` counts the exchanges since the last mention. Scores are points: 0 or more, unbounded above.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClarityWeights:
    """S0 "Configuration", `scoring`: points, and exchanges for `half_life` and `recency_window`."""

    half_life: float = 5
    recency_window: int = 3
    recency_bonus: float = 20
    reference_weight: float = 15
    frequency_scale: float = 10
    anchor_bonus: float = 100


@dataclass(frozen=True, slots=True)
class ClarityScore:
    """A score that is its own explanation: `total` is the sum of the terms; `staleness` is never positive."""

    base: float
    recency: float
    utility: float
    staleness: float
    anchor: float

    @property
    def total(self) -> float:
        return self.base + self.recency + self.utility + self.staleness + self.anchor

    def terms(self) -> Mapping[str, float]:
        """The terms by name, as every view shows them."""
        return {
            "base": self.base,
            "recency": self.recency,
            "utility": self.utility,
            "staleness": self.staleness,
            "anchor": self.anchor,
        }


def score(mentions: int, references: int, silent: int, anchored: bool, weights: ClarityWeights) -> ClarityScore:
    """Scores an item that was mentioned `mentions` times, the last time `silent` exchanges ago (all 0 or more)."""
    base = weights.frequency_scale * math.log2(mentions + 1)
    stale = max(0, silent - weights.recency_window)
    return ClarityScore(
        base=base,
        recency=weights.recency_bonus * max(0.0, 1 - silent / (weights.recency_window + 1)),
        utility=weights.reference_weight * references,
        staleness=0.0 - base * (1 - 0.5 ** (stale / weights.half_life)),  # never -0.0
        anchor=weights.anchor_bonus if anchored else 0.0,
    )
