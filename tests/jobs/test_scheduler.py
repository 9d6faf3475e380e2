"""Jobs run at their times, once each, in one process; what was missed is caught up once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_server.app import open_memory
from mcp_server.errors import Invalid, NotFound
from mcp_server.jobs import scheduler
from mcp_server.jobs.scheduler import Job, latest, planned, run_due, run_now
from mcp_server.memory import Memory
from mcp_server.storage import logs
from tests.conftest import KEYWORDS_ONLY, Clock

pytestmark = pytest.mark.anyio


class Work:
    """A job that counts its runs, and fails as often as it is told."""

    def __init__(self, fails: int = 0) -> None:
        self.runs = 0
        self.fails = fails

    async def __call__(self, memory: Memory) -> str:
        self.runs += 1
        if self.runs <= self.fails:
            raise OSError("no space")
        return f"run {self.runs}"


def daily(work: Work, schedule: str | None = "0 23 * * *") -> Mapping[str, Job]:
    return {"condense": Job("condense", "sums up the day", lambda settings: schedule, work)}


def lines(memory: Memory) -> list[dict[str, Any]]:
    return list(logs.newest_first(memory.files, "jobs"))


async def test_a_new_memory_owes_nothing_for_the_past(memory: Memory, clock: Clock) -> None:
    work = Work()
    assert await run_due(memory, daily(work)) == []
    clock.forward(hours=5)
    (ran,) = await run_due(memory, daily(work))
    assert (ran.ok, ran.outcome) == (True, "run 1")
    assert await run_due(memory, daily(work)) == []


async def test_what_was_missed_for_days_is_caught_up_once(memory: Memory, clock: Clock) -> None:
    work = Work()
    await run_due(memory, daily(work))
    clock.forward(days=9)
    await run_due(memory, daily(work))
    assert await run_due(memory, daily(work)) == []
    assert work.runs == 1
    assert lines(memory)[0]["planned"] == "2026-02-24T23:00:00+00:00"


async def test_a_failed_job_is_tried_again_less_and_less_often(memory: Memory, clock: Clock) -> None:
    work = Work(fails=3)
    await run_due(memory, daily(work))
    clock.forward(hours=5)
    tries = 0
    for _ in range(8):
        tries += len(await run_due(memory, daily(work)))
        clock.forward(minutes=1)
    assert (tries, work.runs) == (4, 4), "after 1, 2 and 4 minutes"
    assert [line["ok"] for line in lines(memory)] == [True, False, False, False]
    assert "no space" in lines(memory)[1]["outcome"]


async def test_two_processes_do_not_run_the_same_job(workspace: Path, clock: Clock) -> None:
    work = Work()
    begun, go_on = anyio.Event(), anyio.Event()

    async def slow(memory: Memory) -> str:
        begun.set()
        await go_on.wait()
        return await work(memory)

    jobs = {"condense": Job("condense", "sums up", lambda settings: "0 23 * * *", slow)}
    async with (
        open_memory(workspace, KEYWORDS_ONLY, clock=clock) as one,
        open_memory(workspace, KEYWORDS_ONLY, clock=clock) as other,
    ):
        await planned(one, jobs)
        clock.forward(hours=5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_due, one, jobs)
            await begun.wait()
            assert await run_due(other, jobs) == []
            assert not (await run_now(other, jobs, "condense")).ok
            go_on.set()
        assert await run_due(other, jobs) == []
    assert work.runs == 1


async def test_a_job_runs_when_it_is_asked_for(memory: Memory, clock: Clock) -> None:
    work = Work()
    assert (await run_now(memory, daily(work, None), "condense")).outcome == "run 1"
    (one,) = await planned(memory, daily(work, None))
    assert (one.schedule, one.due, one.last, one.outcome) == (None, None, clock.now, "run 1")
    with pytest.raises(NotFound, match="condense"):
        await run_now(memory, daily(work), "condese")


async def test_a_broken_schedule_is_told_and_stops_nothing_else(memory: Memory, clock: Clock) -> None:
    work = Work()
    jobs = {**daily(work), "odd": Job("odd", "never", lambda settings: "every day", Work())}
    await run_due(memory, jobs)
    clock.forward(days=1)
    assert [ran.name for ran in await run_due(memory, jobs)] == ["condense"]
    assert "cron expression" in (await planned(memory, jobs))[1].problem


async def test_the_schedule_is_kept_until_it_is_cancelled(
    memory: Memory, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "LOOK_SECONDS", 0.01)
    done = anyio.Event()

    async def work(memory: Memory) -> str:
        done.set()
        return "done"

    jobs = {"condense": Job("condense", "sums up", lambda settings: "0 23 * * *", work)}
    await planned(memory, jobs)
    clock.forward(days=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduler.keep_schedule, memory, jobs)
        with anyio.fail_after(60):
            await done.wait()
        tasks.cancel_scope.cancel()


NOON = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "timezone", "expected"),
    [
        ("0 12 * * *", "UTC", NOON),
        ("0 8 * * *", "UTC", NOON.replace(hour=8)),
        ("0 14 * * *", "Europe/Belgrade", NOON),
        ("0 15 * * *", "Europe/Belgrade", datetime(2026, 6, 30, 13, 0, tzinfo=UTC)),
        ("30 3 * * SUN", "UTC", datetime(2026, 6, 28, 3, 30, tzinfo=UTC)),
        ("0 0 1 1 *", "Europe/Belgrade", datetime(2025, 12, 31, 23, 0, tzinfo=UTC)),
    ],
)
def test_the_last_planned_moment_is_in_the_users_zone(expression: str, timezone: str, expected: datetime) -> None:
    assert latest(expression, NOON, timezone) == expected
    assert latest(expression, NOON.replace(second=59), timezone) == expected


@pytest.mark.parametrize("expression", ["", "daily", "* * * *", "0 0 0 1 1 1", "61 * * * *", "0 0 31 2 *"])
def test_what_is_no_expression_is_named(expression: str) -> None:
    with pytest.raises(Invalid, match="cron expression"):
        latest(expression, NOON, "UTC")
