"""Cron triggers of topics: what is due is set off, and what was missed while nothing ran is caught up with, once."""

from __future__ import annotations

from datetime import datetime

import anyio
from anyio.to_thread import run_sync

from mcp_server.jobs import cron
from mcp_server.memory import Memory
from mcp_server.storage import activations
from mcp_server.storage.activations import Event
from mcp_server.topics.events import fire
from mcp_server.topics.topic import Cron

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
    planned = await run_sync(cron.latest, schedule, now, memory.timezone)
    if planned <= done:
        return False
    event = Event(name, f"schedule {schedule}")
    return await fire(memory, [event], ran=(key, planned)) is not None
