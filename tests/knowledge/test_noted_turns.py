"""The items of a checkpoint are found turn by turn, and can be found again from the transcript alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.checkpoints.checkpoint import make
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, append_turns, record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import NotFound
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.extract import refresh
from mcp_server.knowledge.notes import NAMESPACE, Noted, forget_old, from_dict, keep, notes_of, outcome_of
from mcp_server.memory import Memory
from mcp_server.model import Caller, ToolCall
from mcp_server.understanding import encoder
from tests.conftest import KEYWORDS_ONLY, Clock

pytestmark = pytest.mark.anyio
CALLER = Caller()
CALL = ToolCall("Bash", "pytest -q", "3 passed", ("tests/test_oven.py",))
ANSWER = "I suggest SQLite for the ledger, because it is one file. Shall I do that?"
DECISION = "I suggest SQLite for the ledger, because it is one file."


async def talk(memory: Memory, session: str = "s1") -> None:
    for role, content, calls in (
        ("user", "Which store shall the ledger have?", ()),
        ("agent", ANSWER, (CALL,)),
        ("user", "yes, do it", ()),
        ("user", "TODO: call Ana about the winter berth", ()),
    ):
        await observe(memory, NewTurn(role, content, session=session, tool_calls=calls), CALLER)


async def decisions(memory: Memory, session: str, until: int | None = None) -> tuple[str, ...]:
    return (await outcome_of(memory, await notes_of(memory, session, until))).decisions


async def assert_whole(memory: Memory, notes: Noted) -> None:
    outcome = await outcome_of(memory, notes)
    assert outcome.decisions == (DECISION,)
    assert outcome.open_items == ("call Ana about the winter berth",)
    assert notes.last_tool_call == CALL
    assert notes.files == ("tests/test_oven.py",)


async def test_notes_are_stored_in_a_pause_and_with_a_checkpoint(memory: Memory) -> None:
    await talk(memory)
    await assert_whole(memory, await notes_of(memory, "s1"))
    await refresh(memory)
    stored = await memory.state.get(NAMESPACE, "s1")
    assert stored["turn"] == 4
    assert from_dict(stored) == await notes_of(memory, "s1")
    await observe(memory, NewTurn("user", "thanks", session="s1"), CALLER)
    await make(memory, "s1", "asked")
    assert (await memory.state.get(NAMESPACE, "s1"))["turn"] == 5


async def test_notes_that_an_earlier_version_stored_are_the_same_notes(memory: Memory) -> None:
    await talk(memory)
    await keep(memory, "s1")
    stored = await memory.state.get(NAMESPACE, "s1")
    del stored["recent"]
    await memory.state.put(NAMESPACE, "s1", stored)
    await assert_whole(memory, await notes_of(memory, "s1"))


async def test_pairs_that_were_read_in_a_pause_are_not_read_again(memory: Memory) -> None:
    for content in (
        "Decision: we deploy every Friday",
        "ok",
        "Decision: we deploy on Tuesdays now, not on Fridays",
        "ok",
    ):
        await observe(memory, NewTurn("user", content, session="s1"), CALLER)
    await keep(memory, "s1")
    stored = await notes_of(memory, "s1")
    assert stored.estimates
    encoder.pair.cache_clear()
    found = await outcome_of(memory, stored)
    assert encoder.pair.cache_info().misses == 0
    assert found == await outcome_of(memory, replace(stored, estimates={}))
    assert found.replaced == ("we deploy every Friday",)


async def test_the_last_tool_call_is_there_in_another_process_at_once(memory: Memory, place: Path | str) -> None:
    await observe(memory, NewTurn("agent", "", session="s1", tool_calls=(CALL,)), CALLER)
    async with open_memory(place, KEYWORDS_ONLY) as other:
        assert (await notes_of(other, "s1")).last_tool_call == CALL


async def test_lost_notes_are_made_again_from_the_transcript(memory: Memory) -> None:
    await talk(memory)
    before = await notes_of(memory, "s1")
    await memory.state.remove(NAMESPACE, "s1")
    assert await notes_of(memory, "s1") == before
    await observe(memory, NewTurn("user", "Decision: two cache files", session="s1"), CALLER)
    assert await decisions(memory, "s1") == (DECISION, "two cache files")


async def test_turns_that_a_crash_left_unnoted_are_noted_with_the_next(memory: Memory) -> None:
    await talk(memory)
    await memory.state.put(NAMESPACE, "s1", Noted(1).as_dict())
    await observe(memory, NewTurn("user", "thanks", session="s1"), CALLER)
    await assert_whole(memory, await notes_of(memory, "s1"))


async def test_notes_can_be_seen_as_of_an_earlier_turn(memory: Memory) -> None:
    await talk(memory)
    assert await decisions(memory, "s1", until=2) == ()
    assert await decisions(memory, "s1", until=3) == (DECISION,)
    assert (await notes_of(memory, "s1", until=99)) == await notes_of(memory, "s1")


async def test_imported_and_captured_conversations_have_notes_too(memory: Memory, clock: Clock) -> None:
    turns = (
        ImportedTurn("user", "Which store shall the ledger have?", clock(), turn_id="t0"),
        ImportedTurn("agent", ANSWER, clock(), turn_id="t1"),
        ImportedTurn("user", "yes, do it", clock(), turn_id="t2"),
    )
    await record_session(memory, ImportedSession("imported", turns, "import:test"))
    await append_turns(memory, ImportedSession("captured", turns, "import:test"))
    for session in ("imported", "captured"):
        assert await decisions(memory, session) == (DECISION,)


async def test_what_is_forgotten_is_not_noted_any_more(memory: Memory) -> None:
    await talk(memory)
    await forget(memory, ForgetTarget(text="call Ana about the winter berth"))
    assert (await outcome_of(memory, await notes_of(memory, "s1"))).open_items == ()


async def test_the_notes_of_sessions_that_are_long_over_are_dropped_and_come_back(memory: Memory, clock: Clock) -> None:
    await talk(memory)
    before = await notes_of(memory, "s1")
    await keep(memory, "s1")
    await end_session(memory, "s1")
    assert await forget_old(memory) == 0
    clock.forward(days=31)
    assert await forget_old(memory) == 1
    assert await memory.state.get(NAMESPACE, "s1") is None
    assert await notes_of(memory, "s1") == before


async def test_a_session_that_never_was_has_no_notes(memory: Memory) -> None:
    with pytest.raises(NotFound):
        await notes_of(memory, "never")
