"""The speed table has a row for every bar; how fast this machine is, is no test."""

from __future__ import annotations

import sys

import pytest

from benchmarks import speed
from benchmarks.speed import Measured, curve, measure_speed
from benchmarks.workbench import Workbench, made_up_sessions
from mcp_server.relevance.clarity_scores import MOST_CANDIDATES, MOST_ITEMS
from tests.preloaded import programs


def test_made_up_conversations_are_the_same_each_time_and_as_many_as_asked() -> None:
    assert list(made_up_sessions(250)) == list(made_up_sessions(250))
    assert [len(session.turns) for session in made_up_sessions(250)] == [100, 100, 50]
    assert len({session.session_id for session in made_up_sessions(250)}) == 3


@pytest.mark.parametrize(
    ("row", "met"),
    [
        (Measured("x", "ms", 10, 21, 9, 20), False),
        (Measured("x", "ms", 10, 21, 9, 20, deciding="median"), True),
        (Measured("x", "1/s", 10, 10, 1, 20, at_least=True), False),
        (Measured("x", "ms", 10, 21, 9, None), None),
    ],
)
def test_a_bar_is_met_by_the_figure_that_decides(row: Measured, met: bool | None) -> None:
    assert row.met is met
    assert row.as_dict()["met"] is met


@pytest.mark.anyio
async def test_every_bar_is_measured(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = "STARTS OBSERVED QUERIES CHANGES SERVERS PLAIN_QUERIES HOOKS PAGE_VISITS TOPICS MESSAGES"
    for name in counts.split():
        monkeypatch.setattr(speed, name, 1)
    monkeypatch.setattr(speed, "POINTS", (20, 50))
    monkeypatch.setattr(sys, "executable", str(programs() / "python"))  # how long imports take is no matter here
    report = await measure_speed(bench, 100)
    assert [point.exchanges for point in report.curve] == [20, 50]
    assert report.passages >= 100
    plain = ("first answer after start", "observe, durable", "search, warm")
    words = " ".join(row.what for row in report.rows)
    for what in (
        "first answer",
        "observe",
        "search",
        "compile",
        "page: State",
        "index build",
        "changed file",
        "topics",
        "memory, one server",
        "hook",
    ):
        assert what in words
    assert all(row.median > 0 for row in report.rows)
    assert all(row.plain for row in report.rows if row.what in plain)


def test_what_claritys_tracker_holds_does_not_grow_with_the_exchanges() -> None:
    early, late = curve((1_000, 3_000))
    assert (early.exchanges, late.exchanges) == (1_000, 3_000)
    for point in (early, late):
        assert point.items <= MOST_ITEMS
        assert point.candidates <= MOST_CANDIDATES
    assert late.state_bytes < 1.1 * early.state_bytes
    assert late.exchange_us > 0
