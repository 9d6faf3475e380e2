"""What a client's window holds of ours, and when it has lost it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcp_server.context import windows
from mcp_server.context.windows import Window
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller
from tests.conftest import Clock

pytestmark = pytest.mark.anyio

HELD = Window(frozenset({"0123456789ab"}), brief=True, checkpoint="cp_1")


async def say(memory: Memory, role: str, text: str, name: str | None = None) -> None:
    await observe(memory, NewTurn(role, text, "s", name=name), Caller())


async def test_what_was_sent_is_known_after_it_was_kept(memory: Memory) -> None:
    assert await windows.window_of(memory, "s") == Window()
    await windows.keep(memory, "s", HELD)
    assert await windows.window_of(memory, "s") == replace(HELD, at=memory.clock().isoformat())
    assert await windows.window_of(memory, "beside") == Window()


async def test_a_compaction_of_which_the_client_tells_empties_it_once(memory: Memory) -> None:
    await say(memory, "user", "The hull is green.")
    await windows.keep(memory, "s", HELD)
    await windows.compacted(memory, "s")
    assert (await windows.window_of(memory, "s")).lines, "it had not begun to compact"

    await windows.compacting(memory, "s")
    await windows.compacted(memory, "s")
    emptied = await windows.window_of(memory, "s")
    assert (emptied.lines, emptied.brief, emptied.checkpoint) == (frozenset(), False, "")

    await windows.keep(memory, "s", replace(emptied, lines=HELD.lines))
    await say(memory, "system", "compacted", COMPACTION)  # its turn is recorded later
    assert (await windows.window_from(memory, "s", 2)).lines == HELD.lines


async def test_a_compaction_of_which_only_the_transcript_tells_empties_it_too(memory: Memory) -> None:
    await windows.keep(memory, "s", HELD)
    assert (await windows.window_from(memory, "s", None)).lines == HELD.lines
    assert await windows.window_from(memory, "s", 2) == Window(start=2, at=memory.clock().isoformat())


async def test_windows_are_forgotten_after_two_months(memory: Memory, clock: Clock) -> None:
    await windows.keep(memory, "old", HELD)
    clock.forward(days=59)
    await windows.keep(memory, "new", HELD)
    clock.forward(days=2)
    assert await windows.forget_old(memory) == 1
    assert not (await windows.window_of(memory, "old")).brief
    assert (await windows.window_of(memory, "new")).brief
