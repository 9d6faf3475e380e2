"""What a checkpoint says of a conversation is noted with every turn, and follows from the transcript alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.actions.checkpoints.noted import NAMESPACE, forget_old, noted
from mcp_server.actions.forgetting.forget import forget
from mcp_server.actions.forgetting.forget_target import ForgetTarget
from mcp_server.actions.imports import ImportedSession, ImportedTurn, append_turns, record_session
from mcp_server.actions.observe import NewTurn, observe
from mcp_server.actions.sessions import end_session
from mcp_server.app import open_memory
from mcp_server.core.checkpoints.noted import Noted
from mcp_server.core.model import Caller, ToolCall
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from tests.conftest import KEYWORDS_ONLY, Clock

pytestmark = pytest.mark.anyio
CALLER = Caller()
CALL = ToolCall("Bash", "pytest -q", "3 passed", ("tests/test_oven.py",))
ANSWER = "I compared both.\n\nWe'll use SQLite for the ledger, because it is one file.\n\n" + "It is small. " * 40


async def talk(memory: Memory, session: str = "s1") -> None:
    for role, content, calls in (
        ("user", "Which store shall the ledger have?", ()),
        ("agent", ANSWER, (CALL,)),
        ("user", "yes, do it", ()),
        ("user", "TODO: call Ana about the winter berth", ()),
    ):
        await observe(memory, NewTurn(role, content, session=session, tool_calls=calls), CALLER)


def assert_whole(notes: Noted) -> None:
    assert notes.decisions == ("We'll use SQLite for the ledger, because it is one file.",)
    assert notes.open_items == ("call Ana about the winter berth",)
    assert notes.last_tool_call == CALL
    assert notes.files == ("tests/test_oven.py",)


async def test_each_turn_is_noted_when_it_is_acknowledged(memory: Memory) -> None:
    await talk(memory)
    stored = await memory.state.get(NAMESPACE, "s1")
    assert stored["turn"] == 4
    assert_whole(await noted(memory, "s1"))


async def test_the_last_tool_call_is_there_in_another_process_at_once(memory: Memory, workspace: Path) -> None:
    await observe(memory, NewTurn("agent", "", session="s1", tool_calls=(CALL,)), CALLER)
    async with open_memory(workspace, KEYWORDS_ONLY) as other:
        assert (await noted(other, "s1")).last_tool_call == CALL


async def test_lost_notes_are_made_again_from_the_transcript(memory: Memory) -> None:
    await talk(memory)
    before = await noted(memory, "s1")
    await memory.state.remove(NAMESPACE, "s1")
    assert await noted(memory, "s1") == before
    await observe(memory, NewTurn("agent", "Going with two files", session="s1"), CALLER)
    assert (await noted(memory, "s1")).decisions == (*before.decisions, "Going with two files")
    assert (await memory.state.get(NAMESPACE, "s1"))["turn"] == 5


async def test_turns_that_a_crash_left_unnoted_are_noted_with_the_next(memory: Memory) -> None:
    await talk(memory)
    early = {**(await memory.state.get(NAMESPACE, "s1")), "turn": 1, "decisions": [], "open_items": []}
    await memory.state.put(NAMESPACE, "s1", early)
    await observe(memory, NewTurn("user", "thanks", session="s1"), CALLER)
    assert_whole(await noted(memory, "s1"))


async def test_notes_can_be_seen_as_of_an_earlier_turn(memory: Memory) -> None:
    await talk(memory)
    assert (await noted(memory, "s1", until=2)).decisions == ()
    assert (await noted(memory, "s1", until=3)).decisions
    assert (await noted(memory, "s1", until=99)) == await noted(memory, "s1")


async def test_imported_and_captured_conversations_have_notes_too(memory: Memory, clock: Clock) -> None:
    turns = (
        ImportedTurn("user", "Store?", clock(), turn_id="t0"),
        ImportedTurn("agent", ANSWER, clock(), turn_id="t1"),
        ImportedTurn("user", "ok, do it", clock(), turn_id="t2"),
    )
    await record_session(memory, ImportedSession("imported", turns, "import:test"))
    await append_turns(memory, ImportedSession("captured", turns, "import:test"))
    for session in ("imported", "captured"):
        assert len((await noted(memory, session)).decisions) == 1


async def test_what_is_forgotten_is_not_noted_any_more(memory: Memory) -> None:
    await talk(memory)
    await forget(memory, ForgetTarget(text="call Ana about the winter berth"))
    assert not any("berth" in item for item in (await noted(memory, "s1")).open_items)


async def test_the_notes_of_sessions_that_are_long_over_are_dropped_and_come_back(memory: Memory, clock: Clock) -> None:
    await talk(memory)
    before = await noted(memory, "s1")
    await end_session(memory, "s1")
    assert await forget_old(memory) == 0
    clock.forward(days=31)
    assert await forget_old(memory) == 1
    assert await memory.state.get(NAMESPACE, "s1") is None
    assert await noted(memory, "s1") == before


async def test_a_session_that_never_was_has_no_notes(memory: Memory) -> None:
    with pytest.raises(NotFound):
        await noted(memory, "never")
