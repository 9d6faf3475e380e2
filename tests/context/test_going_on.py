"""Which messages only ask to go on with what was done before."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from mcp_server.context.compile import last_session
from mcp_server.context.window_text import asks_to_go_on
from mcp_server.context.windows import PAUSES, pause, pauses, resume, why_silent
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller, Project, ToolCall
from mcp_server.settings_file import read_settings
from tests.conftest import Clock
from tests.knowledge.tea_project import talk

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "message",
    [
        "continue",
        "Continue, please!",
        "ok, let's continue where we left off",
        "Where were we?",
        "What did we do last time?",
        "what was I working on yesterday?",
        "pick up where we left off",
        "resume the work on this project",
        "Gde smo stali?",
        "nastavi",
        "Wo waren wir?",
        "Good morning. Where were we?",
    ],
)
def test_it_does(message: str) -> None:
    assert asks_to_go_on(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "ok, thanks",
        "yes",
        "👍",
        "/resume",
        "!continue",
        "# continue",
        "<command-name>continue</command-name>",
        "continue with the invoices",
        "good morning",
        "what did we decide last time about the mooring?",
        "Which port does the staging database listen on?",
        "does the for loop need a continue statement?",
        "write a haiku about autumn leaves",
        "continue " * 40,
    ],
)
def test_it_does_not(message: str) -> None:
    assert not asks_to_go_on(message)


def test_the_name_of_the_project_is_no_subject_in_it() -> None:
    assert asks_to_go_on("Where were we with harbor?", "harbor")
    assert asks_to_go_on("let's continue with the harbor-api", "harbor-api")
    assert not asks_to_go_on("Where were we with harbor?", "lantern")


async def last(memory: Memory, project: Project, without: str = "now") -> list[str]:
    found = await last_session(memory, project, without)
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


async def test_a_single_question_is_not_what_one_goes_on_with(memory: Memory, folder: Path, clock: Clock) -> None:
    project = await talk(memory, folder, "first", "We talk of cups.", "Of cups.", "Of blue ones.", "Blue.")
    clock.forward(hours=1)
    await talk(memory, folder, "second", "What is a monad?", "A monoid.")
    assert (await last(memory, project))[-1] == "Blue."
    assert await last(memory, project, without="first") == ["What is a monad?", "A monoid."]
    call = ToolCall("Edit", "pots.py")
    await observe(memory, NewTurn("user", "Paint the pots.", "third"), Caller(folder=str(folder)))
    await observe(memory, NewTurn("agent", "Done.", "third", tool_calls=(call,)), Caller(folder=str(folder)))
    assert (await last(memory, project))[-1] == "Done."


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


TEA = Project("name:tea", "tea", frozenset({"name:tea", "git:host/tea"}))


BREAD = Project("name:bread", "bread", frozenset({"name:bread"}))


async def test_a_pause_of_one_project_leaves_the_others(memory: Memory) -> None:
    await pause(memory, TEA)
    assert why_silent(memory, TEA, await pauses(memory)) == "paused in tea"
    assert why_silent(memory, BREAD, await pauses(memory)) is None
    renamed = Project("git:host/tea", "green-tea", frozenset({"name:tea", "git:host/tea"}))
    assert why_silent(memory, renamed, await pauses(memory)) == "paused in tea"
    assert await resume(memory, BREAD) == []
    assert [one.name for one in await resume(memory, renamed)] == ["tea"]
    assert await pauses(memory) == []


async def test_a_pause_runs_out_by_itself(memory: Memory, clock: Clock) -> None:
    await pause(memory, duration=timedelta(hours=2))
    assert why_silent(memory, TEA, await pauses(memory)) == "paused everywhere until 2026-02-16 20:45 UTC"
    clock.forward(hours=2)
    assert why_silent(memory, TEA, await pauses(memory)) is None


async def test_what_another_version_wrote_is_left_alone(memory: Memory) -> None:
    await memory.state.put(PAUSES, "*", {"forever": True})
    assert await pauses(memory) == []


@pytest.mark.parametrize(("value", "pushes"), [("1", False), ("true", False), ("0", True), ("", True), ("off", True)])
def test_one_variable_switches_it_off(value: str, pushes: bool) -> None:
    assert read_settings({}, {"CONTEXT_MANAGER_PAUSE": value}, "x").hooks.inject is pushes
    assert read_settings({}, {"CONTEXT_MANAGER_PAUSE": value}, "x").problems == ()
