"""The maintaining process keeps briefs ready."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from mcp_server.app import open_memory
from mcp_server.context import briefs
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.jobs import duties
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.search.search import SearchRequest, find
from mcp_server.storage.values import Change
from tests.end_to_end.servers import eventually

pytestmark = pytest.mark.anyio


async def test_a_brief_follows_what_it_is_made_of(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "QUIET_SECONDS", 0.01)
    place = Path(memory.disk.local / "brief" / briefs.GLOBAL_FILE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(duties.keep_briefs, memory)
        await eventually(place.exists)
        await remember(memory, NewFact("The sky over the harbour is green."), Caller())
        await eventually(lambda: "harbour is green" in place.read_text("utf-8"))
        tasks.cancel_scope.cancel()


async def test_what_the_passages_of_a_large_file_are_about_is_read_in_the_background(place: Path | str) -> None:
    text = "\n\n".join(f"## Day {number}\n\nWe close at six on day {number}." for number in range(20))
    async with open_memory(place, {}) as memory, anyio.create_task_group() as tasks:
        tasks.start_soon(duties.keep_read, memory)
        memory.files.write_atomic("knowledge/reference/hours.md", text)
        await memory.index.refresh()
        memory.changes.publish(Change("index"))
        with anyio.fail_after(60):
            while any(hit.about is None for hit in (await find(memory, SearchRequest("close at six"))).hits):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert await memory.index.read_ahead(9) == 0
        tasks.cancel_scope.cancel()


async def test_what_was_said_last_is_indexed_and_read_when_the_server_ends(
    place: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "LAST_SECONDS", 60.0)  # a busy machine may need more than five
    async with open_memory(place, {}) as memory:
        for said in (
            "I decided to keep Postgres 15 for the billing tables.",
            "We have two kittens called Pip and Mia.",
        ):
            await observe(memory, NewTurn("user", said, "s"), Caller())
            await observe(memory, NewTurn("agent", "Noted.", "s"), Caller())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(duties.keep_live, memory)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        hits = (await find(memory, SearchRequest("which database do the billing tables use?", page=True))).page
    assert "Postgres 15" in "".join(hit.passage.text for hit in hits)
    assert all(hit.about is not None for hit in hits)


def test_only_what_a_brief_is_made_of_concerns_it() -> None:
    assert duties.concerns_briefs(Change("file", "knowledge/identity/USER.md"))
    assert duties.concerns_briefs(Change("session", None, "s"))
    assert duties.concerns_briefs(Change("file"))
    assert not duties.concerns_briefs(Change("file", "raw/conversations/x.md"))
    assert not duties.concerns_briefs(Change("turn", "raw/x.md", "s"))
    assert not duties.concerns_briefs(Change("index"))
