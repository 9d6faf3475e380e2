"""What left a conversation's live context comes back, byte for byte, and can be sent away again."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_server.app import catch_up
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import Invalid, NotFound
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.memory import Memory
from mcp_server.model import ToolCall
from mcp_server.recovery.recover import recover
from mcp_server.recovery.recoverable import Recoverable, as_text, meant, recoverable
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.relevance.live_set import live_set
from tests.conftest import Clock
from tests.small_context import USER, grow, small_memory

pytestmark = pytest.mark.anyio


@pytest.fixture
async def memory(workspace: Path, clock: Clock) -> AsyncIterator[Memory]:
    async with small_memory(workspace, clock) as opened:
        yield opened


async def cold(memory: Memory) -> list[Recoverable]:
    return [one for one in await recoverable(memory, limit=100) if one.kind == "cold"]


async def forms(memory: Memory) -> dict[str, LiveChunk]:
    return {chunk.id: chunk for chunk in await live_set(memory, "s")}


def files_of(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and ".git" not in path.parts and not path.name.startswith("state.db")
    }


async def test_each_cold_chunk_comes_back_byte_for_byte(memory: Memory) -> None:
    said = await grow(memory)
    listed = await cold(memory)
    assert listed
    for one in listed:
        done = await recover(memory, one.id, USER, apply=True)
        chunk = (await forms(memory))[one.id]
        assert done.content == said[chunk.turn - 1]
        assert (done.applied, chunk.form) == (True, "whole")
    assert not await cold(memory)


@pytest.mark.parametrize(
    "content", ["line\r\nend \u2028 \\## x\n\n", "```\ncode\n```", "🙂 ćčšžđ " * 40, "\u0007 <!-- -->"]
)
async def test_any_text_comes_back_as_it_was(memory: Memory, content: str) -> None:
    await observe(memory, NewTurn("user", content * 3, session="s", delivery="replace"), USER)
    await grow(memory)
    (first,) = [chunk for chunk in (await forms(memory)).values() if chunk.turn == 1]
    assert first.form != "whole"
    assert (await recover(memory, first.id, USER)).content == content * 3


async def test_a_dry_run_says_what_would_come_and_leaves_every_byte(memory: Memory, workspace: Path) -> None:
    await grow(memory)
    (one, *_) = await cold(memory)
    before, live = files_of(workspace), await forms(memory)
    shown = await recover(memory, one.id, USER)
    assert not shown.applied
    assert "would be recovered" in shown.markdown
    assert "tokens in the live context" in shown.markdown
    assert shown.diff.startswith("--- /dev/null")
    assert files_of(workspace) == before
    assert await forms(memory) == live


async def test_its_undo_puts_everything_where_it_was_and_can_be_undone(memory: Memory) -> None:
    await grow(memory)
    (one, *_) = await cold(memory)
    record, live = memory.cold.find(one.id), (await forms(memory))[one.id]
    done = await recover(memory, one.id, USER, apply=True)
    assert done.undo is not None
    shown = await recover(memory, done.undo, USER)
    assert "would go back to cold storage" in shown.markdown
    assert (await forms(memory))[one.id].form == "whole"
    undone = await recover(memory, done.undo, USER, apply=True)
    assert undone.undo == one.id
    assert memory.cold.find(one.id) == record
    assert (await forms(memory))[one.id] == live
    assert [f"sends {one.id} back to cold storage"] == [
        kept.summary for kept in await recoverable(memory) if kept.kind == "replaced"
    ]


async def test_a_tool_s_result_comes_back_from_its_line(memory: Memory) -> None:
    call = ToolCall("read", "notes.txt", "A long file about nothing much. " * 30)
    await observe(memory, NewTurn("agent", "I look.", session="s", delivery="replace", tool_calls=(call,)), USER)
    await grow(memory, turns=8)
    (tool,) = [chunk for chunk in (await forms(memory)).values() if chunk.kind == "tool"]
    assert tool.form in ("one line", "cold")
    done = await recover(memory, tool.id, USER, apply=True)
    assert done.content == f"[tool:read] notes.txt → {call.result}"
    assert (await forms(memory))[tool.id].form == "whole"


async def test_words_find_it_and_one_thing_is_meant_or_none(memory: Memory) -> None:
    await grow(memory)
    await catch_up(memory)
    found = await recoverable(memory, "tulips in bed four on day 1")
    assert found[0].matched >= found[-1].matched
    assert (await meant(memory, "part 2 winter berth day 2")).path == "session s, turn 2"
    with pytest.raises(Invalid, match="equally well"):
        await meant(memory, "winter berth")
    with pytest.raises(NotFound, match="has to do with"):
        await meant(memory, "xylophone")


async def test_after_the_conversation_ended_its_text_is_still_there(memory: Memory) -> None:
    said = await grow(memory)
    (one, *_) = await cold(memory)
    turn = memory.cold.find(one.id).turn
    await end_session(memory, "s")
    assert one.id in {left.id for left in await cold(memory)}
    done = await recover(memory, one.id, USER, apply=True)
    assert done.content == said[turn - 1]
    assert "its conversation is over" in done.markdown
    assert done.undo is not None
    await recover(memory, done.undo, USER, apply=True)
    assert one.id in {left.id for left in await cold(memory)}
    await recover(memory, one.id, USER, apply=True)
    await observe(memory, NewTurn("user", "Let us go on.", session="s"), USER)
    assert (await forms(memory))[one.id].form == "whole"


async def test_what_was_forgotten_does_not_come_back(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "The code is violet umbrella nine.", session="s", delivery="replace"), USER)
    await grow(memory)
    (first,) = [chunk for chunk in (await forms(memory)).values() if chunk.turn == 1]
    assert first.form == "cold"
    undo = (await recover(memory, first.id, USER, apply=True)).undo
    assert undo is not None
    await forget(memory, ForgetTarget(text="violet umbrella nine"))
    await recover(memory, undo, USER, apply=True)
    assert "violet" not in str((await recover(memory, first.id, USER)).content)


async def test_an_id_that_nobody_has_is_refused(memory: Memory) -> None:
    with pytest.raises(NotFound, match="cold-storage list"):
        await recover(memory, "c00000000000", USER)
    with pytest.raises(NotFound, match="no kept copy"):
        await recover(memory, "before-00000000", USER)
    assert as_text([]) == "There is nothing to recover."
