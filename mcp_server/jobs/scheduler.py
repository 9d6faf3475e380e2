"""Work at planned times: the scheduled jobs of a memory, and the topics with a cron trigger.

Only one process of a workspace runs jobs. A server's maintaining process checks for due jobs every LOOK_SECONDS;
without a server, `context-manager jobs run --due` does the same from the system's own cron. If planned times were
missed while no process ran, the job runs once for all of them. A failed job is tried again, at growing intervals.
"""

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
from mcp_server.jobs.maintainer import attempt
from mcp_server.knowledge.condense import Period, condense
from mcp_server.knowledge.extract import extract_pending
from mcp_server.knowledge.prune_knowledge import prune_files
from mcp_server.memory import Memory
from mcp_server.settings import Settings
from mcp_server.storage import logs
from mcp_server.storage import topics as activations
from mcp_server.storage.topics import Event
from mcp_server.text.prose import counted
from mcp_server.topics.watch import fire

log = logging.getLogger(__name__)

NAMESPACE = "jobs"
LOOK_SECONDS = 30.0
"""Seconds between checks for due jobs."""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=6)
"""The pause after a failure: it doubles with each further failure, up to the longest."""

RUNNER = "jobs"
"""Name of the lock of the process that runs jobs."""

TOPIC_LOOK_SECONDS = 20.0
"""Seconds between checks for due topics. Schedules have a resolution of one minute."""


def latest(expression: str, now: datetime, timezone: str) -> datetime:
    """Returns the latest planned moment at or before `now`, in UTC.

    `expression` is a cron expression with five fields (`0 8 * * *`), `timezone` an IANA name. Raises Invalid if the
    expression is invalid or never matches.
    """
    from cronsim import CronSim, CronSimError

    minute = now.astimezone(ZoneInfo(timezone)).replace(second=0, microsecond=0)
    try:
        if len(expression.split()) != 5:
            raise CronSimError("wrong number of fields")
        # Plus one second, so that the current minute is included.
        moments = CronSim(expression, minute + timedelta(seconds=1), reverse=True)
        return next(moments).astimezone(UTC)
    except (CronSimError, StopIteration) as error:
        advice = "give five fields, as in '0 8 * * *'"
        raise Invalid(f"{expression!r} is not a cron expression, or it never matches; {advice}") from error


@dataclass(frozen=True, slots=True)
class Job:
    """A job. `schedule` returns its cron expression from the settings, or None if it runs only by hand.

    `run` returns a sentence for the log and the table. It is idempotent, because a crash right after it runs it again.
    """

    name: str
    what: str
    schedule: Callable[[Settings], str | None]
    run: Callable[[Memory], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Planned:
    """The status of a job: `due` is the planned time to run it for, if any; `last` is its last success."""

    name: str
    what: str
    schedule: str | None
    due: datetime | None
    last: datetime | None
    outcome: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of one run: the job's sentence, or why it failed."""

    name: str
    ok: bool
    outcome: str


async def planned(memory: Memory, jobs: Mapping[str, Job]) -> list[Planned]:
    """Returns the status of every job, in order. A job seen for the first time is due from its next planned time on."""
    now = memory.clock()
    known: dict[str, dict[str, Any]] = await memory.state.entries(NAMESPACE)
    found: list[Planned] = []
    for job in jobs.values():
        note = known.get(job.name, {})
        schedule, moment, problem = job.schedule(memory.settings), None, ""
        try:
            moment = latest(schedule, now, memory.timezone) if schedule is not None else None
        except Invalid as error:
            problem = str(error)
        if moment is not None and not note:
            note = {"done": moment.isoformat()}
            await memory.state.put(NAMESPACE, job.name, note)
        due = moment if moment is not None and moment > datetime.fromisoformat(note["done"]) else None
        last = datetime.fromisoformat(note["last"]) if note.get("last") else None
        found.append(Planned(job.name, job.what, schedule, due, last, note.get("outcome", ""), problem))
    return found


async def due(memory: Memory, jobs: Mapping[str, Job]) -> list[tuple[Job, datetime]]:
    """Returns the jobs to run now, each with its planned time. Failed jobs wait for their next try."""
    now = memory.clock()
    waiting = {job: failed["until"] for job, failed in (await memory.state.entries(f"{NAMESPACE}:failed")).items()}
    return [
        (jobs[one.name], one.due)
        for one in await planned(memory, jobs)
        if one.due and (one.name not in waiting or datetime.fromisoformat(waiting[one.name]) <= now)
    ]


async def run_due(memory: Memory, jobs: Mapping[str, Job]) -> list[Ran]:
    """Runs and logs the due jobs. Does nothing while another process runs jobs."""
    held = await run_sync(memory.locks.try_exclusive, RUNNER)
    if held is None:
        return []
    done = []
    with held:
        for job, moment in await due(memory, jobs):
            ran = await _run(memory, job, moment)
            (log.info if ran.ok else log.warning)("job %s: %s", ran.name, ran.outcome)
            done.append(ran)
    return done


async def run_now(memory: Memory, jobs: Mapping[str, Job], name: str) -> Ran:
    """Runs a job now, due or not. Raises NotFound for an unknown name."""
    if name not in jobs:
        raise NotFound(f"no job is called {name!r}; there are {', '.join(jobs)} (jobs list)")
    held = await run_sync(memory.locks.try_exclusive, RUNNER)
    if held is None:
        return Ran(name, False, "another process is running jobs; try again later")
    with held:
        return await _run(memory, jobs[name], memory.clock())


async def keep_schedule(memory: Memory, jobs: Mapping[str, Job], environ: Mapping[str, str] | None = None) -> None:
    """Runs due jobs until it is cancelled, as a duty of the maintaining process.

    With `environ`, the environment that the settings of `memory` come from, a worker process runs them.
    """

    async def look() -> None:
        is_due = await due(memory, jobs)
        if is_due and (environ is None or not await worker.run("jobs", memory.disk.root, environ)):
            await run_due(memory, jobs)

    while True:
        await attempt("looking for jobs", look)
        await anyio.sleep(LOOK_SECONDS)


async def _run(memory: Memory, job: Job, moment: datetime) -> Ran:
    """Runs one job. Stores and logs its result, even if it fails."""
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


async def _weekly(memory: Memory) -> str:
    said = await _condense("weekly", memory)
    moved = await prune_files(memory, dry_run=False)
    return f"{said}; {len(moved.of_fate('gone'))} files archived"


async def _condense(period: Period, memory: Memory) -> str:
    done = await condense(memory, period)
    return "; ".join((f"{counted(len(done.files), 'file')} changed", *done.notes))


JOBS: Mapping[str, Job] = {
    job.name: job
    for job in (
        Job(
            "extract-hourly",
            "extracts knowledge from closed conversations, if lifecycle.extraction_trigger is hourly",
            lambda settings: "0 * * * *" if settings.lifecycle.extraction_trigger == "hourly" else None,
            _hourly,
        ),
        Job(
            "condense-daily",
            "extracts knowledge from closed conversations",
            lambda settings: settings.lifecycle.condensation_schedule,
            partial(_condense, "daily"),
        ),
        Job(
            "condense-weekly",
            "updates MEMORY.md from the other pages, within its line limit, and archives unused files",
            lambda settings: settings.lifecycle.pruning_schedule,
            _weekly,
        ),
        Job(
            "condense-monthly",
            "archives old journals and plans, and rewrites the indexes",
            lambda settings: settings.lifecycle.monthly_schedule,
            partial(_condense, "monthly"),
        ),
    )
}


async def keep_topic_times(memory: Memory) -> None:
    """Activates due topics until it is cancelled, as a duty of the maintaining process."""
    while True:
        await fire_due(memory)
        await anyio.sleep(TOPIC_LOOK_SECONDS)


async def fire_due(memory: Memory) -> tuple[str, ...]:
    """Activates every topic with a planned time since its last activation, once, and returns their names.

    A new schedule counts from now on: its earlier times are ignored.
    """
    now = memory.clock()
    topics = await run_sync(memory.topics.read)
    planned = {
        f"{topic.name} {one.match[0]}": (topic.name, one.match[0])
        for topic in topics.topics.values()
        for one in topic.triggers
        if one.kind == "cron" and topic.activation != "manual"
    }
    done = await activations.last_ran(memory.state)
    if gone := done.keys() - planned.keys():
        await memory.state.remove(activations.SCHEDULE, *gone)
    fired: list[str] = []
    for key, (name, schedule) in planned.items():
        if key not in done:
            await activations.deliver(memory.state, (), {}, "", (key, now))
            continue
        due_at = await run_sync(latest, schedule, now, memory.timezone)
        event = Event(name, f"schedule {schedule}")
        if due_at > done[key] and await fire(memory, [event], ran=(key, due_at)) is not None:
            fired.append(name)
    return tuple(fired)
