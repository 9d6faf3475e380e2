"""The two gauges and what they set off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mcp_server.relevance.chunks import Gauges, Triggers, curation_step, grows_fast

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_advice_goes_by_what_the_client_says_and_else_by_our_mirror() -> None:
    assert Gauges(50, 100, 90).advised == 0.9
    assert Gauges(50, 100).advised == 0.5


@pytest.mark.parametrize(
    ("live", "step"), [(0.0, 0), (0.399, 0), (0.40, 1), (0.449, 1), (0.45, 2), (0.50, 3), (0.90, 11)]
)
def test_curation_comes_at_forty_percent_and_with_every_further_five(live: float, step: int) -> None:
    assert curation_step(live, Triggers()) == step


def test_growth_of_more_than_a_fifth_in_five_minutes_is_fast() -> None:
    seen = [(NOW - timedelta(minutes=9), 10), (NOW - timedelta(minutes=4), 1000), (NOW - timedelta(minutes=1), 1150)]
    assert grows_fast(seen, NOW, 1201)
    assert not grows_fast(seen, NOW, 1200)
    assert not grows_fast([], NOW, 99)
