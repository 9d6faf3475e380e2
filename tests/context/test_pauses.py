"""A pause stops what is pushed, everywhere or in one project, for a time or until it is ended."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mcp_server.context.pauses import NAMESPACE, pause, pauses, resume, why_silent
from mcp_server.memory import Memory
from mcp_server.project import Project
from mcp_server.settings_file import read_settings
from tests.conftest import Clock

pytestmark = pytest.mark.anyio
TEA = Project("name:tea", "tea", frozenset({"name:tea", "git:host/tea"}))
BREAD = Project("name:bread", "bread", frozenset({"name:bread"}))


async def test_a_pause_everywhere_holds_until_it_is_ended(memory: Memory) -> None:
    assert await why_silent(memory, TEA) is None
    made = await pause(memory)
    assert made.words == "paused everywhere"
    assert await why_silent(memory, TEA) == await why_silent(memory, Project()) == "paused everywhere"
    assert await resume(memory) == [made]
    assert await why_silent(memory, TEA) is None


async def test_a_pause_of_one_project_leaves_the_others(memory: Memory) -> None:
    await pause(memory, TEA)
    assert await why_silent(memory, TEA) == "paused in tea"
    assert await why_silent(memory, BREAD) is None
    renamed = Project("git:host/tea", "green-tea", frozenset({"name:tea", "git:host/tea"}))
    assert await why_silent(memory, renamed) == "paused in tea"
    assert await resume(memory, BREAD) == []
    assert [one.name for one in await resume(memory, renamed)] == ["tea"]
    assert await pauses(memory) == []


async def test_ending_one_projects_pause_leaves_the_general_one(memory: Memory) -> None:
    everywhere = await pause(memory)
    await pause(memory, TEA)
    assert [one.name for one in await resume(memory, TEA)] == ["tea"]
    assert await pauses(memory) == [everywhere]


async def test_a_pause_runs_out_by_itself(memory: Memory, clock: Clock) -> None:
    await pause(memory, duration=timedelta(hours=2))
    assert await why_silent(memory, TEA) == "paused everywhere until 2026-02-16 20:45 UTC"
    clock.forward(hours=2)
    assert await why_silent(memory, TEA) is None


async def test_what_another_version_wrote_is_left_alone(memory: Memory) -> None:
    await memory.state.put(NAMESPACE, "*", {"forever": True})
    assert await pauses(memory) == []


@pytest.mark.parametrize(("value", "pushes"), [("1", False), ("true", False), ("0", True), ("", True), ("off", True)])
def test_one_variable_switches_it_off(value: str, pushes: bool) -> None:
    assert read_settings({}, {"CONTEXT_MANAGER_PAUSE": value}, "x").hooks.inject is pushes
    assert read_settings({}, {"CONTEXT_MANAGER_PAUSE": value}, "x").problems == ()
