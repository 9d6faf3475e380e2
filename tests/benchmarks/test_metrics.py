"""The measures agree with their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.injection import area_under_curve
from benchmarks.retrieval import ndcg_at, recall_at
from benchmarks.workbench import mean, percentile

ids = st.sampled_from("abcdefghij")


def test_recall_is_the_share_of_the_evidence_that_was_found() -> None:
    assert recall_at(["a", "x", "b", "y"], {"a", "b", "c"}, 3) == pytest.approx(2 / 3)
    assert recall_at(["a", "x", "b", "y"], {"a", "b", "c"}, 2) == pytest.approx(1 / 3)


def test_ndcg_has_binary_gains_and_a_logarithmic_discount() -> None:
    found = 1 / math.log2(2) + 1 / math.log2(4)
    best = 1 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert ndcg_at(["a", "x", "b"], {"a", "b", "c"}, 10) == pytest.approx(found / best)


def test_more_evidence_than_places_can_still_be_perfect() -> None:
    assert ndcg_at(list("abc"), set("abcdef"), 3) == pytest.approx(1)


def test_an_id_that_comes_twice_counts_once() -> None:
    assert ndcg_at(["a", "a", "b"], {"a", "b"}, 10) == pytest.approx(1)


@given(st.lists(ids, max_size=15), st.sets(ids, min_size=1), st.integers(1, 12))
def test_measures_lie_between_nothing_and_everything(ranked: list[str], gold: set[str], k: int) -> None:
    assert 0 <= recall_at(ranked, gold, k) <= 1
    assert 0 <= ndcg_at(ranked, gold, k) <= 1 + 1e-9


def test_the_nearest_rank_is_a_percentile() -> None:
    assert percentile([5, 1, 3, 2, 4], 0.5) == 3
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([7], 0.95) == 7
    assert percentile([], 0.95) == 0


def test_the_mean_of_nothing_is_zero() -> None:
    assert mean([]) == 0


values = st.lists(st.integers(0, 5).map(float), max_size=8)


@given(values, values)
def test_auc_is_the_share_of_pairs_in_order(positive: list[float], negative: list[float]) -> None:
    pairs = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positive for n in negative]
    assert area_under_curve(positive, negative) == pytest.approx(mean(pairs) if pairs else 0.5)
