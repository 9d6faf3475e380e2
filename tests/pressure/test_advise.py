"""What the pruning advisor proposes in each phase of the work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mcp_server.pressure.advisor import Advice, advise, phase_of
from mcp_server.relevance.advisor_items import ContextItem, Lexicon

NOW = datetime(2026, 1, 18, 10, 30, tzinfo=UTC)
EMPTY = Lexicon({}, {}, frozenset())


def item(path: str, minutes: float = 500, accesses: int = 0, tokens: int = 500, loaded: float = 500) -> ContextItem:
    return ContextItem(
        f"file:{path}",
        "file",
        path,
        NOW - timedelta(minutes=loaded),
        NOW - timedelta(minutes=minutes),
        accesses,
        tokens,
    )


def ask(items: list[ContextItem], share: float, **more: bool) -> Advice:
    return advise(items, "the oven", share, NOW, EMPTY, **more)


SPREAD = [
    item("a.md"),  # 0
    item("b.md", 100, 4),  # 2 + 6
    item("c.md", 20, 2),  # 6 + 4
    item("d.md", 3, 2),  # 10 + 4
    item("e.md", 3, 8),  # 10 + 8
    item("oven.md", 3, 12),  # 30
    item("oven-b.md", 3, 12),
    item("oven-c.md", 3, 12),
]


@pytest.mark.parametrize(
    ("share", "phase"),
    [
        (0.69, "quiet"),
        (0.70, "identify"),
        (0.80, "aggressive"),
        (0.90, "critical"),
        (0.95, "too late"),
        (1.4, "too late"),
    ],
)
def test_phases_follow_the_gauge(share: float, phase: str) -> None:
    assert phase_of(share) == phase


def test_under_seventy_percent_there_is_no_advice_unless_asked() -> None:
    assert ask(SPREAD, 0.5) == Advice("quiet")
    assert [one.item.path for one in ask(SPREAD, 0.5, asked=True).recommendations] == ["a.md", "b.md"]


def test_from_eighty_percent_on_scores_under_ten_go_and_ten_to_fifteen_are_reviewed() -> None:
    proposed = [(one.item.path, one.proposal) for one in ask(SPREAD, 0.85).recommendations]
    assert proposed == [("a.md", "prune"), ("b.md", "prune"), ("c.md", "review"), ("d.md", "review")]


def test_from_ninety_percent_on_all_under_sixteen_go_with_a_warning() -> None:
    advice = ask(SPREAD, 0.92)
    assert {one.proposal for one in advice.recommendations} == {"prune"}
    assert len(advice.recommendations) == 4
    assert "critical" in advice.warnings[0]


def test_at_most_five_are_named_with_what_they_save() -> None:
    advice = ask([item(f"{n}.md", tokens=100) for n in range(40)], 0.85)
    assert (len(advice.recommendations), advice.savings) == (5, 500)


def test_where_all_of_it_matters_old_decisions_and_skills_are_named_instead() -> None:
    advice = ask([item("oven.md", 3, 12), item("oven-b.md", 3, 12)], 0.85)
    assert not advice.recommendations
    assert "archive old decisions" in advice.warnings[0]
