"""Cron triggers of topics: what is due is set off, and what was missed while nothing ran is caught up with, once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import anyio
from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, Invalid, NotFound
from mcp_server.jobs import worker
from mcp_server.knowledge.condense import Period, condense
from mcp_server.knowledge.extract import extract_pending
from mcp_server.knowledge.prune_knowledge import prune_files
from mcp_server.memory import Memory
from mcp_server.settings import Settings
from mcp_server.storage.local import activations, logs
from mcp_server.storage.local.activations import Event
from mcp_server.topics.events import fire
from mcp_server.topics.topic import Cron

FIELDS = 5


def latest(expression: str, now: datetime, timezone: str) -> datetime:
    """The newest planned moment at or before `now`, in UTC. `expression` has five fields (`0 8 * * *`), `timezone` is
    an IANA name. Raises Invalid for what is no cron expression, or one that never comes true."""
    from cronsim import CronSim, CronSimError

    minute = now.astimezone(ZoneInfo(timezone)).replace(second=0, microsecond=0)
    try:
        if len(expression.split()) != FIELDS:
            raise CronSimError("wrong number of fields")
        moments = CronSim(expression, minute + timedelta(seconds=1), reverse=True)  # a second on: the minute counts
        return next(moments).astimezone(UTC)
    except (CronSimError, StopIteration) as error:
        raise Invalid(
            f"{expression!r} is no cron expression that comes true; five fields, as in '0 8 * * *'"
        ) from error


log = logging.getLogger(__name__)

NAMESPACE = "jobs"
LOOK_SECONDS_SCHEDULER = 30.0
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=6)
"""After a failure the next try waits so long, twice as long after each further one."""

RUNNER = "jobs"
"""The lock of the one process that runs jobs."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is done at planned times. `schedule` reads a cron expression from the settings, None: never by itself.

    `run` returns a sentence for log and table. It does nothing twice: a crash between its end and our note of it
    repeats it.
    """

    name: str
    what: str
    schedule: Callable[[Settings], str | None]
    run: Callable[[Memory], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Planned:
    """How a job stands: `due` is the missed or present moment that it is owed for, `last` when it last succeeded."""

    name: str
    what: str
    schedule: str | None
    due: datetime | None
    last: datetime | None
    outcome: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: what it says of itself, or why it failed."""

    name: str
    ok: bool
    outcome: str


async def planned(memory: Memory, jobs: Mapping[str, Job]) -> list[Planned]:
    """Every job, in its order. One that was never seen before is due from its next moment on, not for the past."""
    now = memory.clock()
    known: dict[str, dict[str, Any]] = await memory.state.entries(NAMESPACE)
    found: list[Planned] = []
    for job in jobs.values():
        note = known.get(job.name)
        schedule = job.schedule(memory.settings)
        due, problem = None, ""
        if schedule is not None:
            try:
                moment = latest(schedule, now, memory.timezone)
            except Invalid as error:
                problem = str(error)
            else:
                if note is None:
                    note = {"done": moment.isoformat()}
                    await memory.state.put(NAMESPACE, job.name, note)
                due = moment if moment > datetime.fromisoformat(note["done"]) else None
        note = note or {}
        last = datetime.fromisoformat(note["last"]) if note.get("last") else None
        found.append(Planned(job.name, job.what, schedule, due, last, note.get("outcome", ""), problem))
    return found


async def due(memory: Memory, jobs: Mapping[str, Job]) -> list[tuple[Job, datetime]]:
    """The jobs that are to be run now, each with the moment that it is owed for."""
    now = memory.clock()
    waiting = {job: failed["until"] for job, failed in (await memory.state.entries(f"{NAMESPACE}:failed")).items()}
    return [
        (jobs[one.name], one.due)
        for one in await planned(memory, jobs)
        if one.due and (one.name not in waiting or datetime.fromisoformat(waiting[one.name]) <= now)
    ]


async def run_due(memory: Memory, jobs: Mapping[str, Job]) -> list[Ran]:
    """Runs what is due, and logs it; nothing while another process is at it."""
    held = await run_sync(memory.locks.try_exclusive, RUNNER)
    if held is None:
        return []
    done = []
    try:
        for job, moment in await due(memory, jobs):
            ran = await _run(memory, job, moment)
            (log.info if ran.ok else log.warning)("job %s: %s", ran.name, ran.outcome)
            done.append(ran)
    finally:
        held.release()
    return done


async def run_now(memory: Memory, jobs: Mapping[str, Job], name: str) -> Ran:
    """Runs a job whatever the time. Raises NotFound for an unknown one."""
    if name not in jobs:
        raise NotFound(f"no job is called {name!r}; there are {', '.join(jobs)} (jobs list)")
    held = await run_sync(memory.locks.try_exclusive, RUNNER)
    if held is None:
        return Ran(name, False, "another process is running jobs just now; try again in a while")
    try:
        return await _run(memory, jobs[name], memory.clock())
    finally:
        held.release()


async def keep_schedule(memory: Memory, jobs: Mapping[str, Job], environ: Mapping[str, str] | None = None) -> None:
    """A duty of the maintaining process: looks again and again, until it is cancelled. With `environ`, where the
    settings of `memory` come from too, a child process runs what is due; without, this one."""
    while True:
        try:
            if await due(memory, jobs):
                aside = environ is not None and await worker.run("jobs", memory.files.root, environ)
                if not aside:
                    await run_due(memory, jobs)
        except ContextManagerError as error:  # a locked state, a full disk: the next look may go better
            log.warning("looking for jobs failed: %s", error)
        await anyio.sleep(LOOK_SECONDS_SCHEDULER)


async def _run(memory: Memory, job: Job, moment: datetime) -> Ran:
    """One job, whose failure is its own: noted, logged, told."""
    began = memory.clock()
    try:
        outcome, ok = await job.run(memory), True
    except Exception as error:  # a job that breaks must not stop the others
        log.debug("job %s failed", job.name, exc_info=True)
        outcome, ok = f"failed: {error}", False
    now = memory.clock()
    if ok:
        note = {"done": moment.isoformat(), "last": now.isoformat(), "outcome": outcome}
        await memory.state.put(NAMESPACE, job.name, note)
        await memory.state.remove(f"{NAMESPACE}:failed", job.name)
    else:
        before = await memory.state.get(f"{NAMESPACE}:failed", job.name) or {"times": 0}
        pause = min(FIRST_PAUSE * 2 ** min(before["times"], 20), LONGEST_PAUSE)
        note = {"times": before["times"] + 1, "until": (now + pause).isoformat(), "outcome": outcome}
        await memory.state.put(f"{NAMESPACE}:failed", job.name, note)
    line = {
        "at": began.isoformat(),
        "job": job.name,
        "planned": moment.isoformat(),
        "ok": ok,
        "outcome": outcome[:500],
        "seconds": round((now - began).total_seconds(), 3),
    }
    try:
        await run_sync(partial(logs.append, memory.files, "jobs", line))
    except (OSError, ContextManagerError) as error:
        log.warning("the log of jobs cannot be written: %s", error)
    return Ran(job.name, ok, outcome)


async def _hourly(memory: Memory) -> str:
    return f"{await extract_pending(memory)} conversations read"


async def _daily(memory: Memory) -> str:
    return await _condensed(memory, "daily")


async def _weekly(memory: Memory) -> str:
    said = await _condensed(memory, "weekly")
    moved = await prune_files(memory, dry_run=False)
    return f"{said}; {len(moved.of_fate('gone'))} files archived"


async def _monthly(memory: Memory) -> str:
    return await _condensed(memory, "monthly")


async def _condensed(memory: Memory, period: Period) -> str:
    done = await condense(memory, period)
    return "; ".join((f"{len(done.files)} file{'' if len(done.files) == 1 else 's'} changed", *done.notes))


JOBS: Mapping[str, Job] = {
    job.name: job
    for job in (
        Job(
            "extract-hourly",
            "closed conversations become knowledge, where lifecycle.extraction_trigger is hourly",
            lambda settings: "0 * * * *" if settings.lifecycle.extraction_trigger == "hourly" else None,
            _hourly,
        ),
        Job(
            "condense-daily",
            "closed conversations become knowledge",
            lambda settings: settings.lifecycle.condensation_schedule,
            _daily,
        ),
        Job(
            "condense-weekly",
            "MEMORY.md follows the other pages and keeps to its cap; unused files go to archive/",
            lambda settings: settings.lifecycle.pruning_schedule,
            _weekly,
        ),
        Job(
            "condense-monthly",
            "old journals and plans go to archive/, indexes are written anew",
            lambda settings: settings.lifecycle.monthly_schedule,
            _monthly,
        ),
    )
}

LOOK_SECONDS = 20.0
"""How often it looks; schedules are to the minute."""


async def keep_topic_times(memory: Memory) -> None:
    """For the process that maintains the workspace: sets off what is due, for ever."""
    while True:
        await fire_due(memory)
        await anyio.sleep(LOOK_SECONDS)


async def fire_due(memory: Memory) -> tuple[str, ...]:
    """Sets off every topic whose time has come since it was last done; returns their names. However often it was
    missed, it is set off once. A schedule that is seen for the first time begins now."""
    now = memory.clock()
    topics = await run_sync(memory.topics.read)
    planned = {
        f"{topic.name} {one.schedule}": (topic.name, one.schedule)
        for topic in topics.topics.values()
        for one in topic.triggers
        if isinstance(one, Cron) and topic.activation != "manual"
    }
    done = await activations.last_ran(memory.state)
    gone = done.keys() - planned.keys()
    if gone:
        await memory.state.remove(activations.SCHEDULE, *gone)
    fired: list[str] = []
    for key, (name, schedule) in planned.items():
        if key not in done:
            await activations.deliver(memory.state, (), {}, "", (key, now))
        elif await _due(memory, key, name, schedule, done[key], now):
            fired.append(name)
    return tuple(fired)


async def _due(memory: Memory, key: str, name: str, schedule: str, done: datetime, now: datetime) -> bool:
    planned = await run_sync(latest, schedule, now, memory.timezone)
    if planned <= done:
        return False
    event = Event(name, f"schedule {schedule}")
    return await fire(memory, [event], ran=(key, planned)) is not None
