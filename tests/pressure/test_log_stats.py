"""Statistics over the logs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_server.pressure.log import Spread, histogram, log_stats, since, spread

DROP: dict[str, Any] = {
    "timestamp": "2026-02-02T22:55:00Z",
    "event": "chunk_dropped",
    "chunk_id": "abc123",
    "session_id": "xyz789",
    "reason": "low_relevance",
    "relevance_score": 0.15,
    "threshold_used": 0.30,
}
CURATION: dict[str, Any] = {"timestamp": "2026-02-02T22:56:00Z", "event": "memfas_curation", "token_savings": 25000}
COMPACTION: dict[str, Any] = {
    "timestamp": "2026-02-02T22:57:00Z",
    "event": "compaction_triggered",
    "tokens_before": 80000,
    "tokens_after": 40000,
    "chunks_summarized": 8,
}


def test_the_lines_of_the_design_are_summed_up() -> None:
    drops = [DROP, {**DROP, "relevance_score": 0.3}, {**DROP, "reason": "compaction", "relevance_score": 0.62}]
    recovered = [{"trigger": "automatic"}, {"trigger": "asked"}, {"trigger": "automatic"}]
    stats = log_stats(drops, [CURATION], [COMPACTION], recovered, [{"pct_used": 0.45}, {"pct_used": 0.4}])
    assert stats.reasons == {"low_relevance": 2, "compaction": 1}
    assert [one.count for one in stats.scores] == [0, 1, 0, 1, 0, 0, 1, 0, 0, 0]
    assert stats.thresholds == (0.3,)
    assert stats.curation == Spread(1, 25000, 25000, 25000.0, 25000.0, 25000)
    assert (stats.compaction.total, stats.summarised) == (40000, 8)
    assert stats.recovered == {"automatic": 2, "asked": 1}
    assert (stats.highest_pct, stats.dropped) == (0.45, 3)
    assert (stats.first, stats.last) == ("2026-02-02T22:55:00Z", "2026-02-02T22:57:00Z")


def test_lines_that_lack_something_count_as_what_they_have() -> None:
    stats = log_stats([{}, {"relevance_score": "high"}], [{"token_savings": None}], [{}], [{}], [{"pct_used": True}])
    assert stats.reasons == {"unknown": 2}
    assert stats.highest_pct == 0.0
    assert log_stats([], [], [], [], []).first is None


def test_a_spread_is_what_statistics_say() -> None:
    assert spread([1, 2, 3, 10]) == Spread(4, 16, 1, 2.5, 4.0, 10)
    assert spread([]) == Spread()


@given(st.lists(st.floats(-0.5, 1.5)))
def test_every_score_is_in_one_bin(scores: list[float]) -> None:
    assert sum(one.count for one in histogram(scores)) == len(scores)


def test_lines_are_chosen_by_time_and_session() -> None:
    later = {**DROP, "timestamp": "2026-02-03T00:00:00Z", "session_id": "other"}
    moment = datetime(2026, 2, 3, tzinfo=UTC)
    assert since([DROP, later], None, None) == [DROP, later]
    assert since([DROP, later], moment, None) == [later]
    assert since([DROP, later], None, "xyz789") == [DROP]
    assert since([{"timestamp": "2026-02-04T00:00:00"}, {"timestamp": "?"}], moment, None) != []
