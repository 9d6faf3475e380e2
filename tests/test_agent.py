"""The memory for agents written in Python."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from pathlib import Path

import anyio
import pytest

from mcp_server import agent
from mcp_server.agent import AgentMemory
from mcp_server.errors import Conflict, ContextManagerError, Invalid, Refused
from tests.conftest import KEYWORDS_ONLY

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]


@pytest.fixture
async def memory(workspace: Path, empty_memory: None) -> AsyncIterator[AgentMemory]:
    async with AgentMemory.open(workspace, project="boat", environ=KEYWORDS_ONLY) as opened:
        yield opened


async def test_what_is_said_is_in_the_compiled_prompt(memory: AgentMemory) -> None:
    heard = await memory.observe("user", "The boiler runs at 2 bar.", delivery="replace")
    assert (heard.turn, heard.recorded) == (1, True)
    await memory.observe("assistant", "Noted.", tool_calls=[{"name": "gauge", "result": "2 bar", "files": ["a.py"]}])
    prompt = await memory.compile(budget=500)
    assert "user: The boiler runs at 2 bar." in prompt
    assert "agent: Noted." in prompt
    assert "gauge" in prompt
    assert memory.session == heard.session


async def test_without_a_name_there_is_one_session_and_with_names_there_are_several(memory: AgentMemory) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(memory.observe, "user", f"Message {number}.")
    own = memory.session
    assert (await memory.observe("user", "Once more.")).turn == 6
    other = await memory.observe("user", "Elsewhere.", session="telegram-42", turn_id="m1", name="Ana")
    assert other.session == "telegram-42"
    assert not (await memory.observe("user", "Elsewhere.", session="telegram-42", turn_id="m1")).recorded
    assert memory.session == own


async def test_another_conversation_finds_it_after_the_memory_was_closed(workspace: Path) -> None:
    async with AgentMemory.open(workspace, project="boat", environ=KEYWORDS_ONLY) as memory:
        await memory.observe("user", "The boiler runs at 2 bar.", at=datetime(2026, 1, 5, tzinfo=UTC), important=True)
        await memory.end()
        assert memory.session is None
    async with AgentMemory.open(str(workspace), project="boat", environ=KEYWORDS_ONLY) as memory:
        assert "2 bar" in await memory.compile("What is the pressure of the boiler?", budget=400)
        assert "2 bar" not in await memory.compile("ok, thanks", budget=400)
    async with AgentMemory.open(workspace, project="house", environ=KEYWORDS_ONLY) as memory:
        assert "2 bar" not in await memory.compile("What is the pressure of the boiler?", budget=400)
        assert "2 bar" in await memory.compile("What is the pressure of the boiler?", budget=400, scope="all")


async def test_facts_are_remembered_changed_and_recovered(memory: AgentMemory, workspace: Path) -> None:
    file = workspace / "knowledge/memory/MEMORY.md"
    first = file.read_text()
    done = await memory.remember("The berth is number 14.", project="global")
    assert "berth" in done.diff
    (version,) = [one for one in await memory.recoverable() if one.path == "knowledge/memory/MEMORY.md"]
    shown = await memory.recover(version.id)
    assert "-" in shown.diff
    assert "berth" in file.read_text()
    recovered = await memory.recover(version.id, apply=True)
    assert file.read_text() == first
    assert [one.id for one in await memory.recoverable("berth")] == [recovered.undo]
    assert recovered.undo
    await memory.recover(recovered.undo, apply=True)
    assert "berth" in file.read_text()


async def test_a_project_fact_goes_to_the_project(memory: AgentMemory) -> None:
    assert (await memory.remember("The hull is steel.", kind="project")).path.startswith("knowledge/projects/boat/")


async def test_an_agent_searches_reads_and_anchors(memory: AgentMemory) -> None:
    heard = await memory.observe("user", "The boiler of the Galeb runs at 2 bar.", at=datetime(2026, 1, 5, tzinfo=UTC))
    found = await memory.search("boiler", since=date(2026, 1, 5), until="2026-01-05")
    assert [hit.passage.session for hit in found.hits] == [heard.session]
    assert not (await memory.search("boiler", until=date(2026, 1, 4))).hits
    assert "2 bar" in (await memory.read(found.hits[0].passage.path)).text
    assert (await memory.anchor("Galeb", note="the boat")).changed
    assert not (await memory.anchor("Galeb", on=False)).on
    assert (await memory.status("sessions")).views["sessions"]


async def test_pruning_and_forgetting_only_show_until_they_are_applied(memory: AgentMemory, workspace: Path) -> None:
    with pytest.raises(Invalid, match="pass the `session`"):
        await memory.checkpoint()
    await memory.observe("user", "The berth is number 14.", delivery="replace")
    saved = await memory.checkpoint("before the storm")
    assert saved.note == "before the storm"
    assert not (await memory.recover(saved.id)).applied
    assert (await memory.prune("compact")).dry_run
    assert not (await memory.prune("compact", apply=True)).dry_run
    await memory.end()
    (transcript,) = (workspace / "raw").rglob("*.md")
    assert not (await memory.forget("The berth is number 14.")).done
    assert "berth" in transcript.read_text()
    assert (await memory.forget("The berth is number 14.", apply=True)).done
    assert "berth" not in "".join(path.read_text() for path in (workspace / "raw").rglob("*.md"))


def test_every_answer_can_be_imported_from_it() -> None:
    for name in agent.__all__:
        assert getattr(agent, name).__name__ == name


async def test_identity_is_not_an_agents_to_recover(memory: AgentMemory, workspace: Path) -> None:
    (workspace / "knowledge/identity/USER.md").write_text("Mine.\n")
    with pytest.raises(Refused, match="only the user may"):
        await memory.recover("knowledge/identity/USER.md@HEAD", apply=True)


async def test_mistakes_are_errors_that_say_what_to_do(memory: AgentMemory) -> None:
    with pytest.raises(Invalid, match="pass the `session`"):
        await memory.end()
    with pytest.raises(Invalid, match="a tool call has"):
        await memory.observe("agent", "x", tool_calls=[{"nam": "x"}])
    with pytest.raises(Invalid, match="128"):
        await memory.compile("x", budget=5)
    await memory.observe("user", "Hello.", delivery="replace")
    with pytest.raises(Conflict, match="already"):
        await memory.observe("user", "Hello again.", delivery="add")
    with pytest.raises(ContextManagerError):
        await memory.recover("nothing")


async def test_an_error_of_the_callers_own_code_arrives_as_it_is(workspace: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with AgentMemory.open(workspace, environ=KEYWORDS_ONLY):
            raise ZeroDivisionError
    with pytest.raises(ExceptionGroup, match="mine"):
        async with AgentMemory.open(workspace, environ=KEYWORDS_ONLY):
            raise ExceptionGroup("mine", [ValueError("1"), ValueError("2")])


async def test_two_programs_share_a_workspace(memory: AgentMemory, workspace: Path) -> None:
    async with AgentMemory.open(workspace, project="boat", environ=KEYWORDS_ONLY) as other:
        heard = await other.observe("user", "The anchor weighs 20 kg.", delivery="replace")
        assert "20 kg" in await memory.compile(session=heard.session, budget=400)
