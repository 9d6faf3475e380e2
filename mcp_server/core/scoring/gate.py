"""The gate: does the memory hold anything about a message at all? One decision for a message and a scope (SPEC §7).

    value = Σ weight · signal, between 0 and 1; the gate is open if value ≥ threshold

    nearest = the highest raw cosine of any passage of the scope to the message, never below 0
    known   = share of the subject's IDF mass whose words stand anywhere in the scope
    covered = the most IDF mass of the subject that one passage holds / (IDF mass of the subject + doubt)

The subject of a message are its content words, names among them, without those that only keep a talk going ("ok,
sounds good, continue"). A message without a subject has the value 0. `doubt` (nats) keeps one common word from
proving much.

Normalised scores rank, but they never admit: whatever the message, some passage comes first. The three signals are
raw: they can all be low. No single one is enough: cosines know no names, shares of words are high for short messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from mcp_server.core.model import GateSignal
from mcp_server.core.scoring.ranking import DIGITS, idf
from mcp_server.core.text.words import TALK_WORDS


@dataclass(frozen=True, slots=True)
class GateWeights:
    """How much each signal counts (they sum to 1), `doubt` in nats, and the `threshold` that goes with an embedder."""

    nearest: float
    known: float
    covered: float
    doubt: float
    threshold: float


WITH_EMBEDDER = GateWeights(nearest=0.75, known=0.125, covered=0.125, doubt=3.0, threshold=0.38)
"""For `wordllama`, 256 dimensions. Another embedder spreads its cosines otherwise and needs a threshold of its own."""

WITHOUT_EMBEDDER = GateWeights(nearest=0.0, known=0.2, covered=0.8, doubt=3.0, threshold=0.25)


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Open or closed, and why: `terms` hold every weight times its signal, and sum to `value`."""

    open: bool
    value: float
    threshold: float
    terms: Mapping[str, float]

    def signal(self) -> GateSignal:
        """The decision as receipts and logs keep it."""
        said = " + ".join(f"{name} {term:.3f}" for name, term in self.terms.items())
        return GateSignal(self.open, said, self.value, self.threshold)


def subject(lookup: Sequence[str]) -> tuple[int, ...]:
    """Which of a query's words (`Query.lookup`: content words and names) are its subject, by position."""
    return tuple(i for i, word in enumerate(lookup) if word not in TALK_WORDS)


def decide(
    lookup: Sequence[str],
    frequencies: Sequence[int],
    passages: int,
    matched: Iterable[int],
    nearest: float | None = None,
    weights: GateWeights | None = None,
) -> GateDecision:
    """Decides for a message.

    Args:
        lookup: the content words of the message and the names in it, folded: `Query.lookup`.
        frequencies: in how many of the scope's passages each of them stands.
        passages: how many passages the scope has.
        matched: for passages of the scope (the candidates are enough), which of the words stand in them:
        `Candidate.matched`. nearest: the highest raw cosine of any passage; None without an embedder.
        weights: those of the embedder; by default `WITH_EMBEDDER` or, without a cosine, `WITHOUT_EMBEDDER`.
    """
    if weights is None:
        weights = WITHOUT_EMBEDDER if nearest is None else WITH_EMBEDDER
    mass = {i: idf(frequencies[i], passages) for i in subject(lookup)}
    if not mass or passages <= 0:
        return GateDecision(False, 0.0, weights.threshold, {"nearest": 0.0, "known": 0.0, "covered": 0.0})
    bits = reduce(or_, (1 << i for i in mass))
    total = math.fsum(mass.values())
    known = math.fsum(weight for i, weight in mass.items() if frequencies[i] > 0)
    held = max(
        (math.fsum(weight for i, weight in mass.items() if found >> i & 1) for found in {m & bits for m in matched}),
        default=0.0,
    )
    terms = {
        "nearest": round(weights.nearest * min(1.0, max(0.0, nearest or 0.0)), DIGITS),
        "known": round(weights.known * known / total, DIGITS),
        "covered": round(weights.covered * held / (total + weights.doubt), DIGITS),
    }
    value = round(math.fsum(terms.values()), DIGITS)
    return GateDecision(value >= weights.threshold, value, weights.threshold, terms)
