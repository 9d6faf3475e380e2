"""Clarity scores, by values calculated by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.relevance.clarity_scores import ClarityWeights, score

W = ClarityWeights()


@pytest.mark.parametrize(
    ("mentions", "references", "silent", "anchored", "total"),
    [
        (1, 0, 0, False, 10 + 20),  # said once, just now
        (3, 0, 0, False, 20 + 20),  # log2(4) = 2
        (3, 0, 1, False, 20 + 15),  # a quarter of the bonus is gone
        (3, 0, 3, False, 20 + 5),  # the last exchange of the window
        (3, 0, 4, False, 20 * 0.5 ** (1 / 5)),  # one exchange beyond it
        (3, 0, 8, False, 10),  # five beyond: half of the base
        (3, 2, 8, False, 10 + 30),  # what answers referred to does not fade
        (7, 0, 13, False, 30 / 4),  # log2(8) = 3, two half-lives
        (0, 0, 0, True, 20 + 100),  # anchored before anybody named it
        (3, 0, 8, True, 110),
    ],
)
def test_the_formula_gives_what_a_hand_calculates(
    mentions: int, references: int, silent: int, anchored: bool, total: float
) -> None:
    assert score(mentions, references, silent, anchored, W).total == pytest.approx(total)


stats = (st.integers(0, 10_000), st.integers(0, 100), st.integers(0, 500))


@given(*stats, st.booleans())
def test_the_terms_add_up_to_the_score(mentions: int, references: int, silent: int, anchored: bool) -> None:
    scored = score(mentions, references, silent, anchored, W)
    assert sum(scored.terms().values()) == pytest.approx(scored.total)
    assert scored.total >= 0


@given(*stats)
def test_silence_never_raises_a_score_and_an_anchor_never_lowers_one(
    mentions: int, references: int, silent: int
) -> None:
    now = score(mentions, references, silent, False, W).total
    assert score(mentions, references, silent + 1, False, W).total <= now
    assert score(mentions, references, silent, True, W).total > now
