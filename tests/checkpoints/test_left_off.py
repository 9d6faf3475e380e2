"""After its window was emptied, a conversation's first contexts say where it stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.checkpoints import stored
from mcp_server.checkpoints.resume import resume
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.context.slots.checkpoint import EXCHANGES
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, append_turns
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller
from tests.conftest import Clock
from tests.small_context import USER, small_memory, words

pytestmark = pytest.mark.anyio
CALLER = Caller()
DECIDED = "- use two files for the cache"


async def say(memory: Memory, content: str, session: str = "s", **more: str) -> None:
    await observe(memory, NewTurn("user", content, session=session, **more), USER)  # type: ignore[arg-type]


async def text(memory: Memory, session: str = "s") -> str:
    return (await compile_context(memory, CompileRequest(session=session), CALLER)).text


async def compacted_by_the_client(memory: Memory, clock: Clock) -> None:
    await say(memory, f"Decision: {DECIDED.removeprefix('- ')}")
    boundary = ImportedTurn("system", "The client compacted its context.", clock(), turn_id="c1", name=COMPACTION)
    await append_turns(memory, ImportedSession("s", (boundary,), "import:claude-code"))


async def test_the_contexts_after_the_clients_compaction_say_it_and_later_ones_do_not(
    memory: Memory, clock: Clock
) -> None:
    await say(memory, "Hello")
    assert "<!-- checkpoint" not in await text(memory)
    await compacted_by_the_client(memory, clock)
    for number in range(EXCHANGES):
        await say(memory, f"And what about part {number}?")
        assert DECIDED in await text(memory)
    await say(memory, "And that?")
    assert "<!-- checkpoint" not in await text(memory)


async def test_what_was_settled_since_the_compaction_is_told_with_the_newest_checkpoint(
    memory: Memory, clock: Clock
) -> None:
    from mcp_server.checkpoints.checkpoint import make

    await compacted_by_the_client(memory, clock)
    await say(memory, "Decision: paint the fence green")
    made = await make(memory, "s", "asked")
    await say(memory, "And now?")
    shown = await text(memory)
    assert DECIDED in shown
    assert "- paint the fence green" in shown
    assert f"read checkpoints/s/{made.id}.md" in shown


async def test_our_own_compaction_of_a_prompt_that_we_compile_says_it_too(workspace: Path, clock: Clock) -> None:
    async with small_memory(workspace, clock) as memory:
        await say(memory, f"Decision: {DECIDED.removeprefix('- ')}", delivery="replace")
        for number in range(1, 12):
            await say(memory, words(number), delivery="replace")
        heads = await stored.listed(memory, "s")
        assert heads
        assert {head.reason for head in heads} == {"compaction"}
        assert DECIDED in await text(memory)


async def test_where_the_client_keeps_its_window_our_compaction_empties_nothing(workspace: Path, clock: Clock) -> None:
    async with small_memory(workspace, clock) as memory:
        await say(memory, f"Decision: {DECIDED.removeprefix('- ')}")
        for number in range(1, 12):
            await say(memory, words(number))
        assert await stored.listed(memory, "s")
        assert "<!-- checkpoint" not in await text(memory)


async def test_resuming_makes_what_was_said_before_missing_and_what_comes_present(memory: Memory) -> None:
    await say(memory, f"Decision: {DECIDED.removeprefix('- ')}")
    await say(memory, "The mooring at the north pier costs 340 euros a year.")
    await memory.index.refresh()
    await say(memory, "what does the mooring at the north pier cost?")
    assert "340 euros" not in await text(memory), "the client has it in its window"

    done = await resume(memory, "s", CALLER)
    assert DECIDED in done.compiled.text
    assert "340 euros" in done.compiled.text
    assert done.compiled.receipt.delivery == "replace"
    assert not done.earlier
    assert (await resume(memory, "s", CALLER)).checkpoint.id == done.checkpoint.id, "nothing was said since"

    await say(memory, "so what does the mooring at the north pier cost?")
    await memory.index.refresh()
    shown = await text(memory)
    assert DECIDED in shown
    assert "340 euros" in shown, "a fresh window does not have it"


async def test_a_budget_holds_for_what_is_resumed(memory: Memory) -> None:
    for number in range(30):
        await say(memory, words(number + 1))
    done = await resume(memory, "s", CALLER, budget=700)
    assert done.compiled.tokens <= 700
    assert "<!-- checkpoint" in done.compiled.text
    assert "Part 30 " in done.compiled.text, "what was said last"


async def test_what_is_not_there_cannot_be_resumed(memory: Memory) -> None:
    with pytest.raises(NotFound, match="no conversation to resume"):
        await resume(memory, None, CALLER)
    await say(memory, "Hello", session="kitchen")
    with pytest.raises(NotFound, match="did you mean 'kitchen'"):
        await resume(memory, "kitchem", CALLER)
    with pytest.raises(NotFound, match="no checkpoint"):
        await resume(memory, "ckp_nothing", CALLER)
    assert (await resume(memory, None, CALLER)).session == "kitchen"
