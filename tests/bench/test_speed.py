"""The speed table has a row for every bar; how fast this machine is, is no test."""

from __future__ import annotations

import pytest

from mcp_server.bench import clarity, made_up, speed
from mcp_server.bench.speed import Measured, measure_speed
from mcp_server.bench.workbench import Workbench


def test_made_up_conversations_are_the_same_each_time_and_as_many_as_asked() -> None:
    assert list(made_up.sessions(250)) == list(made_up.sessions(250))
    assert [len(session.turns) for session in made_up.sessions(250)] == [100, 100, 50]
    assert len({session.session_id for session in made_up.sessions(250)}) == 3


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
    for name in ("STARTS", "OBSERVED", "QUERIES", "CHANGES", "SERVERS", "PLAIN_QUERIES", "HOOKS", "TOPICS", "MESSAGES"):
        monkeypatch.setattr(speed, name, 1)
    monkeypatch.setattr(clarity, "POINTS", (20, 50))
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
        "index build",
        "changed file",
        "topics",
        "memory, one server",
        "hook",
    ):
        assert what in words
    assert all(row.median > 0 for row in report.rows)
    assert all(row.plain for row in report.rows if row.what in plain)
