"""Live chunks: how much does a piece of the session's live context matter to the current message?

    score = memfas_weight · similarity + recency_bonus · recency + importance_bonus · important    (S1, SPEC §5)

    similarity = search score of the chunk against the message, the best live chunk scaled to 1; 0 below
                 `memfas_min_score`, and 0 for all where the gate (SPEC §7) lets nothing pass
    recency    = max(0, 1 − age in hours / 1): S1's "boost per hour of recency", which taken literally grows with age
    important  = 1 if flagged or anchored

Scores lie between 0 and the sum of the weights (0.9 by default).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RECENT_HOURS = 1.0


@dataclass(frozen=True, slots=True)
class ChunkWeights:
    """S1 "Config Knobs"; `memfas_min_score` is a scaled similarity between 0 and 1."""

    memfas_weight: float = 0.6
    recency_bonus: float = 0.2
    importance_bonus: float = 0.1
    memfas_min_score: float = 0.05


@dataclass(frozen=True, slots=True)
class ChunkScore:
    """A score that is its own explanation: `total` is the sum of the terms."""

    similarity: float
    recency: float
    important: float

    @property
    def total(self) -> float:
        return self.similarity + self.recency + self.important

    def terms(self) -> Mapping[str, float]:
        """The terms by name, as logs and dry runs show them."""
        return {"similarity": self.similarity, "recency": self.recency, "important": self.important}


def score(similarity: float, age_hours: float, important: bool, weights: ChunkWeights) -> ChunkScore:
    """Scores a chunk whose scaled `similarity` is between 0 and 1 and which is `age_hours` (0 or more) old."""
    similar = similarity if similarity >= weights.memfas_min_score else 0.0
    return ChunkScore(
        similarity=weights.memfas_weight * similar,
        recency=weights.recency_bonus * max(0.0, 1 - max(0.0, age_hours) / RECENT_HOURS),
        important=weights.importance_bonus if important else 0.0,
    )
