"""Scores of chunks in the live context, by values calculated by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.relevance.chunks import score
from mcp_server.settings import Context

W = Context()


@pytest.mark.parametrize(
    ("similarity", "age", "important", "total"),
    [
        (1.0, 0, False, 0.8),
        (1.0, 0, True, 0.9),
        (0.5, 0.5, False, 0.4),
        (0.5, 24, False, 0.3),
        (0.04, 24, False, 0.0),  # under memfas_min_score
        (0.05, 24, False, 0.03),
        (0.0, 24, True, 0.1),
    ],
)
def test_the_formula_gives_what_a_hand_calculates(similarity: float, age: float, important: bool, total: float) -> None:
    assert score(similarity, age, important, W).total == pytest.approx(total)


@given(st.floats(0, 1), st.floats(0, 1e6), st.booleans())
def test_the_terms_add_up_and_age_never_helps(similarity: float, age: float, important: bool) -> None:
    now = score(similarity, age, important, W)
    assert score(similarity, age + 1, important, W).total <= now.total <= 0.9 + 1e-9
