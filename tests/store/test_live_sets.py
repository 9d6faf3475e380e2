"""Live sets in the state."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mcp_server.core.pressure.chunks import LiveChunk
from mcp_server.memory import Memory
from mcp_server.store.live_sets import LiveSets

pytestmark = pytest.mark.anyio

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def chunk(turn: int, tokens: int = 10, part: int = 0) -> LiveChunk:
    return LiveChunk(f"c{turn}.{part}", "message", turn, part, tokens, AT, accessed=AT, tags=("a", "ž"))


async def test_chunks_come_back_as_they_were_in_the_order_in_which_they_came(memory: Memory) -> None:
    live = LiveSets(memory.state)
    chunks = [chunk(2), chunk(1, part=1), chunk(1), chunk(10)]
    await live.put("s", chunks)
    await live.put("other", [chunk(3, 999)])
    assert await live.of("s") == [chunks[2], chunks[1], chunks[0], chunks[3]]
    assert await live.tokens("s") == 40


async def test_what_is_cold_costs_nothing_and_keeps_its_row(memory: Memory) -> None:
    from dataclasses import replace

    live = LiveSets(memory.state)
    await live.put("s", [chunk(1), chunk(2)])
    await live.put("s", [replace(chunk(1), form="cold")])
    assert await live.tokens("s") == 10
    assert [one.form for one in await live.of("s")] == ["cold", "whole"]
    await live.clear("s")
    assert await live.of("s") == []
