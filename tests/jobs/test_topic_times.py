"""Cron triggers: on time, once, and after a pause once for all that was missed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.jobs.scheduler import fire_due
from mcp_server.memory import Memory
from mcp_server.topics.listing import list_topics
from tests.conftest import Clock
from tests.serving import PLAIN
from tests.topics.playbooks import context, say, write

pytestmark = pytest.mark.anyio

DAILY = "---\ntriggers:\n  - {type: cron, schedule: '0 8 * * *'}\n---\n# Standup\n\nWhat is next?\n"


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2026, 2, 16, 7, 30, tzinfo=UTC))


async def active(memory: Memory) -> list[str]:
    return [row.by for row in (await list_topics(memory, "s")).topics if row.state == "active"]


async def test_a_topic_comes_up_when_its_time_has_come(memory: Memory, clock: Clock) -> None:
    write(memory, "topics/standup.md", DAILY)
    await say(memory, "hello")
    assert await fire_due(memory) == ()  # seen for the first time: it begins now
    clock.forward(minutes=29)
    assert await fire_due(memory) == ()
    clock.forward(minutes=1)
    assert await fire_due(memory) == ("standup",)
    assert await fire_due(memory) == ()
    assert await active(memory) == ["schedule 0 8 * * *"]
    assert "What is next?" in await context(memory)


async def test_what_was_missed_while_nothing_ran_is_caught_up_with_once(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, PLAIN, clock=clock) as memory:
        write(memory, "topics/standup.md", DAILY)
        await fire_due(memory)
    clock.forward(days=5)
    async with open_memory(workspace, PLAIN, clock=clock) as memory:
        assert await fire_due(memory) == ("standup",)
        assert await fire_due(memory) == ()
        await say(memory, "good morning")  # no conversation was open: the next one gets it
        assert await active(memory) == ["schedule 0 8 * * *"]
        clock.forward(hours=1)
        assert await fire_due(memory) == ("standup",)


async def test_two_processes_set_it_off_once(memory: Memory, workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, PLAIN, clock=clock) as other:
        write(memory, "topics/standup.md", DAILY)
        await fire_due(memory)
        clock.forward(hours=1)
        assert await fire_due(memory) == ("standup",)
        assert await fire_due(other) == ()


async def test_manual_topics_are_never_set_off_and_removed_ones_are_forgotten(memory: Memory, clock: Clock) -> None:
    write(memory, "topics/standup.md", DAILY)
    write(memory, "topics/quiet.md", DAILY.replace("triggers", "activation: manual\ntriggers"))
    await fire_due(memory)
    clock.forward(hours=1)
    assert await fire_due(memory) == ("standup",)
    (memory.disk.root / "topics" / "standup.md").unlink()
    await fire_due(memory)
    write(memory, "topics/standup.md", DAILY)
    clock.forward(days=1)
    assert await fire_due(memory) == ()  # a new schedule begins when it is first seen
