"""Scores of knowledge, by values calculated by hand."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.context.slots.knowledge import score
from mcp_server.model import Hit
from tests.context.states import NOW, knowledge, passage


def hit(days: float, relevance: float = 0.8, *, imported: bool = False) -> Hit:
    return Hit(knowledge("Ana lives in Novi Sad.", at=NOW - timedelta(days=days)), relevance, {}, imported=imported)


def test_yesterdays_knowledge_is_worth_nine_tenths_of_its_relevance() -> None:
    assert score(hit(1), 0, NOW).total == pytest.approx(0.8 * math.exp(-0.1), abs=1e-6)


def test_age_counts_in_whole_days() -> None:
    assert score(hit(1.9), 0, NOW) == score(hit(1), 0, NOW)


def test_old_knowledge_keeps_six_tenths_and_stays_reachable() -> None:
    assert score(hit(400), 0, NOW).total == pytest.approx(0.48)


def test_what_was_said_and_what_was_imported_does_not_age() -> None:
    said = Hit(passage("I moved.", at=NOW - timedelta(days=900)), 0.8, {})
    assert score(said, 0, NOW).total == score(hit(900, imported=True), 0, NOW).total == 0.8


def test_a_file_without_a_date_and_one_from_the_future_do_not_age() -> None:
    undated = Hit(knowledge("x", at=None), 0.8, {})
    assert score(undated, 0, NOW).total == score(hit(-3), 0, NOW).total == 0.8


def test_ten_references_double_the_score() -> None:
    assert score(hit(0), 10, NOW).total == pytest.approx(1.6)


@given(st.floats(0, 5), st.floats(0, 3000), st.integers(0, 500))
def test_the_terms_multiply_to_the_score(relevance: float, days: float, references: int) -> None:
    found = score(hit(days, relevance), references, NOW)
    assert math.prod(found.terms().values()) == pytest.approx(found.total, abs=1e-6)
