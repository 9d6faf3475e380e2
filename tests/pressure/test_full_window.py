"""Clients that say how full their window is get checkpoints before they compact it."""

from __future__ import annotations

import pytest

from mcp_server.checkpoints import stored
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller

pytestmark = pytest.mark.anyio


async def hear(memory: Memory, tokens: int | None) -> list[int]:
    """The turns after which checkpoints were made, once the client has said how full its window is."""
    turn = NewTurn("agent", f"I have read {tokens}", session="s", context_tokens=tokens)
    await observe(memory, turn, Caller())
    return [head.turn for head in reversed(await stored.listed(memory, "s"))]


async def test_a_checkpoint_is_made_at_the_trigger_and_with_each_further_tenth(memory: Memory) -> None:
    assert await hear(memory, 99_000) == []
    assert await hear(memory, 101_000) == [2]
    assert await hear(memory, 119_000) == [2]
    assert await hear(memory, None) == [2]
    assert await hear(memory, 121_000) == [2, 5]
    assert await hear(memory, 190_000) == [2, 5, 6], "one, however many tenths came at once"


async def test_a_window_that_was_emptied_without_a_word_begins_anew(memory: Memory) -> None:
    await hear(memory, 150_000)
    assert await hear(memory, 20_000) == [1]
    assert await hear(memory, 110_000) == [1, 3]


async def test_a_client_that_says_nothing_gets_none(memory: Memory) -> None:
    assert await hear(memory, None) == []
