"""The curve of Clarity's tracker: what it holds does not grow with the conversation."""

from __future__ import annotations

from mcp_server.bench.clarity import curve
from mcp_server.relevance.clarity_scores import MOST_CANDIDATES, MOST_ITEMS


def test_what_is_held_does_not_grow_with_the_exchanges() -> None:
    told: list[int] = []
    early, late = curve((1_000, 3_000), told.append)
    assert (early.exchanges, late.exchanges) == (1_000, 3_000)
    assert told == [1_000, 3_000]
    for point in (early, late):
        assert point.items <= MOST_ITEMS
        assert point.candidates <= MOST_CANDIDATES
    assert late.state_bytes < 1.1 * early.state_bytes
    assert late.exchange_us > 0
