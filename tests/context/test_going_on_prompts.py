"""Where a conversation was left off, for the next one of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.context import previous_session
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.project import Project
from tests.conftest import Clock
from tests.knowledge.tea_project import talk

pytestmark = pytest.mark.anyio


async def last(memory: Memory, project: Project, without: str = "now") -> list[str]:
    found = await previous_session.last_session(memory, project, without)
    return [turn.content for turn in found.turns] if found else []


async def test_it_is_the_projects_conversation_that_was_last_worked_in_and_no_subagents(
    memory: Memory, folder: Path, clock: Clock
) -> None:
    await talk(memory, folder, "first", "We talk of cups.", "Of cups.")
    clock.forward(hours=1)
    project = await talk(memory, folder, "second", "We talk of pots.", "Of pots.")
    clock.forward(hours=1)
    agent = NewTurn("user", "Search for spoons.", "second-agent-1", kind="subagent")
    await observe(memory, agent, Caller(folder=str(folder)))
    assert await last(memory, project) == ["We talk of pots.", "Of pots."]
    assert await last(memory, project, without="second") == ["We talk of cups.", "Of cups."]
    assert await last(memory, Project()) == []
    await talk(memory, folder, "first", "And of saucers.")
    assert (await last(memory, project))[-1] == "And of saucers."


async def test_it_is_the_last_exchanges_and_of_each_how_the_answer_ended(memory: Memory, folder: Path) -> None:
    said = [f"{who} {number}" for number in range(5) for who in ("Question", "Answer")]
    project = await talk(memory, folder, "first", *said)
    await observe(memory, NewTurn("agent", "One more answer", "first"), Caller(folder=str(folder)))
    assert await last(memory, project) == [*said[4:9], "One more answer"]


async def test_one_that_cannot_be_read_is_passed_over(memory: Memory, folder: Path, clock: Clock) -> None:
    await talk(memory, folder, "first", "We talk of cups.", "Of cups.")
    clock.forward(hours=1)
    project = await talk(memory, folder, "second", "We talk of pots.", "Of pots.")
    await sessions.end_session(memory, "second")
    memory.files.remove((await sessions.require(memory, "second")).path)
    assert await last(memory, project) == ["We talk of cups.", "Of cups."]
