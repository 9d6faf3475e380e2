"""Tuning: thresholds that past decisions speak for, and triggers that only disturb."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.topics.gate_tuning import Nuisance, Past, Quality, nuisances, proposals, quality


def past(value: float, useful: bool, **given_: object) -> Past:
    """A decision of the gate without an LLM, at threshold .15 and margin .13."""
    fields: dict[str, object] = {
        "topic": "mail",
        "tier1": True,
        "score": value,
        "value": value,
        "threshold": 0.15,
        "margin": 0.13,
        "active": value >= 0.28,
        "useful": useful,
        "fixed": False,
        "matched": "keywords: mail",
        **given_,
    }
    return Past(**fields)  # type: ignore[arg-type]  # every field has its own type


def test_a_higher_threshold_is_proposed_where_low_values_were_useless() -> None:
    known = [past(0.3, False) for _ in range(6)] + [past(0.5, True) for _ in range(6)]
    (one,) = proposals(known)
    assert (one.topic, one.known, one.threshold) == ("mail", 12, 0.15)
    assert 0.2 < one.proposed < 0.35, "between the useless and the useful ones"
    assert (one.before.precision, one.after.precision, one.after.recall) == (0.5, 1.0, 1.0)


def test_a_lower_threshold_is_proposed_where_what_stayed_out_was_asked_for() -> None:
    known = [past(0.2, True) for _ in range(6)] + [past(0.5, True) for _ in range(6)] + [past(0.05, False)]
    (one,) = proposals(known)
    assert one.proposed <= 0.07
    assert one.after.recall == 1.0


def test_nothing_is_proposed_on_few_decisions_or_for_what_others_decided() -> None:
    assert proposals([past(0.3, False)] * 7) == []
    assert proposals([past(0.3, False, fixed=True)] * 4 + [past(0.3, True, fixed=True)] * 8) == []
    assert proposals([past(0.5, True)] * 20) == []


def test_a_topic_without_triggers_is_out_under_its_threshold_whoever_would_decide() -> None:
    one = past(0.3, True, tier1=False, fixed=True, active=True)
    assert one.at(0.3)
    assert not one.at(0.31)


def test_a_match_that_was_always_useless_is_a_nuisance() -> None:
    known = [past(0.4, False)] * 3 + [past(0.4, False, matched="keywords: post")] * 2
    assert nuisances(known) == [Nuisance("mail", "keywords: mail", 3)]
    assert nuisances([*known, past(0.4, True)]) == []
    assert nuisances([past(0.1, False)] * 9) == [], "it never came in"


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_precision_and_recall_stay_between_0_and_1(decisions: list[tuple[bool, bool]]) -> None:
    found = quality(decisions)
    assert 0 <= found.precision <= 1
    assert 0 <= found.recall <= 1
    assert 0 <= found.f <= 1


def test_f_counts_precision_twice() -> None:
    assert Quality(0.9, 0.5).f > Quality(0.5, 0.9).f
    assert Quality(0.0, 0.0).f == 0.0
    assert Quality(1.0, 1.0).f == pytest.approx(1.0)
