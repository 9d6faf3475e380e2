"""The constants that are proposed for the gate."""

from __future__ import annotations

from mcp_server.bench.injection import candidate_thresholds


def test_a_constant_that_shuts_out_more_lets_in_less() -> None:
    answerable = [value / 100 for value in range(30, 100)]
    others = [value / 100 for value in range(0, 60)]
    rows = candidate_thresholds(answerable, others, (0.02, 0.2))
    assert rows[0]["threshold"] < rows[1]["threshold"]
    assert rows[0]["others_let_in"] > rows[1]["others_let_in"]
    assert rows[0]["answerable_shut_out"] < rows[1]["answerable_shut_out"] <= 0.2
    assert candidate_thresholds([], others) == []
