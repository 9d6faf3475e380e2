"""A live set that was lost: who asks sees it as it was, who only looks leaves it lost, who acts keeps it again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_server.app import open_memory
from mcp_server.conversations.observe import ContextChunk
from mcp_server.memory import Memory
from mcp_server.model import ToolCall
from mcp_server.pressure.advisor import view_of
from mcp_server.pressure.health import health
from mcp_server.pressure.prune import prune
from mcp_server.recovery.recover import recover
from mcp_server.relevance.live_set import gauges, live_set
from tests.conftest import Clock
from tests.pressing import ASKS, forms, hold, limited, say, talk

pytestmark = pytest.mark.anyio


def every_byte(root: Path) -> Mapping[str, str]:
    """Hashes of all files, the database and its log of changes among them."""
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(root.rglob("*"))
        if file.is_file() and not file.name.endswith("-shm")  # shared memory: readers mark their places in it
    }


async def grown(memory: Memory) -> None:
    """A session with live, cold and shortened chunks of every kind, as `SMALL` leaves it."""
    call = ToolCall("Read", "src/oven.py", "def bake(): ... " * 60, files=("src/oven.py",))
    await say(memory, "I read it.", "agent", tool_calls=(call,), chunks=(ContextChunk("file", "src/oven.py", 90),))
    await hold(memory, talk(24))


SMALL = limited(2000, auto_recover=0)


async def test_looking_at_a_lost_set_changes_no_byte(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, SMALL, clock=clock) as memory:
        await grown(memory)
        kept = {chunk.id: chunk.form for chunk in await live_set(memory, "s")}
        full = (await gauges(memory, "s")).live_tokens
        record = memory.cold.of("s")[0]
        await memory.live.clear("s")
        before = every_byte(workspace)
        assert {chunk.id: chunk.form for chunk in await live_set(memory, "s")} == kept
        assert (await gauges(memory, "s")).live_tokens == full
        assert (await health(memory, "s"))[0].current_tokens == full
        for strategy in ("auto", "compact", "advisor", "clarity"):
            assert (await prune(memory, strategy, "s", True, ASKS)).dry_run
        assert (await recover(memory, record.chunk_id, ASKS)).content == record.content
        await view_of(memory, "s", "What does the oven do?", asked=True)
        assert every_byte(workspace) == before
        assert await memory.live.of("s") == []


async def test_what_is_done_to_a_lost_set_is_what_the_dry_run_said_and_loses_no_chunk(
    workspace: Path, clock: Clock
) -> None:
    async with open_memory(workspace, SMALL, clock=clock) as memory:
        await grown(memory)
        turns = {chunk.turn for chunk in await live_set(memory, "s")}
        await memory.live.clear("s")
        shown = await prune(memory, "compact", "s", True, ASKS, target=20)
        done = await prune(memory, "compact", "s", False, ASKS, target=20)
        assert [(one.id, one.fate) for one in done.fates] == [(one.id, one.fate) for one in shown.fates]
        assert done.after == shown.after
        assert {chunk.turn for chunk in await memory.live.of("s")} == turns
        assert (await gauges(memory, "s")).live_tokens == done.after


async def test_recovering_into_a_lost_set_keeps_all_of_it(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, SMALL, clock=clock) as memory:
        await grown(memory)
        before = forms(await live_set(memory, "s"))
        record = next(one for one in memory.cold.of("s") if one.form == "cold")
        await memory.live.clear("s")
        undo = (await recover(memory, record.chunk_id, ASKS, apply=True)).undo
        assert forms(await memory.live.of("s")) == before | {record.turn: "whole"}
        await memory.live.clear("s")
        assert undo is not None
        await recover(memory, undo, ASKS, apply=True)
        assert forms(await memory.live.of("s")) == before
