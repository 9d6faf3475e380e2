"""The measures: pure functions over ranked ids, the set of ids that answer a question, and times."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean


def recall_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """The share of `gold` among the first `k` of `ranked`. `gold` is not empty."""
    return len(set(ranked[:k]) & set(gold)) / len(set(gold))


def ndcg_at(ranked: Sequence[str], gold: Collection[str], k: int) -> float:
    """NDCG@k with binary gains: `Σ 1/log2(rank+1)` over the gold found, divided by the best that is possible."""
    wanted = set(gold)
    gained = sum(1 / math.log2(rank + 1) for rank, item in enumerate(distinct(ranked)[:k], start=1) if item in wanted)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(wanted)) + 1))
    return gained / best


def distinct(ranked: Iterable[str]) -> list[str]:
    """`ranked` with only the first appearance of each id."""
    return list(dict.fromkeys(ranked))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank); 0 for none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def mean(values: Collection[float]) -> float:
    """The arithmetic mean; 0 for none."""
    return fmean(values) if values else 0.0


def macro(by_category: Mapping[str, Collection[float]]) -> float:
    """The mean over the categories of the mean in each."""
    return mean([mean(values) for values in by_category.values() if values])


def area_under_curve(positive: Sequence[float], negative: Sequence[float]) -> float:
    """AUC: how probable it is that a positive value exceeds a negative one (a tie: half); 0.5 for an empty side."""
    if not positive or not negative:
        return 0.5
    values = sorted([(value, True) for value in positive] + [(value, False) for value in negative])
    ranks, start = 0.0, 0
    while start < len(values):
        end = start
        while end < len(values) and values[end][0] == values[start][0]:
            end += 1
        ranks += (start + end + 1) / 2 * sum(is_positive for _, is_positive in values[start:end])
        start = end
    return (ranks - len(positive) * (len(positive) + 1) / 2) / (len(positive) * len(negative))
