"""The maintaining process keeps briefs ready."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from mcp_server.context import briefs, push
from mcp_server.jobs import duties
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.storage.values import Change
from mcp_server.understanding import encoder

pytestmark = pytest.mark.anyio


async def test_a_brief_follows_what_it_is_made_of(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "QUIET_SECONDS", 0.01)
    place = Path(memory.disk.local / "brief" / briefs.GLOBAL_FILE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(duties.keep_briefs, memory)
        with anyio.fail_after(60):
            while not place.exists():  # noqa: ASYNC110 - a file gives us no event
                await anyio.sleep(0.01)
            await remember(memory, NewFact("The sky over the harbour is green."), Caller())
            while "harbour is green" not in place.read_text("utf-8"):  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def test_the_lines_of_pages_are_read_before_a_prompt_needs_them(memory: Memory) -> None:
    source = "[src: 3](/raw/conversations/2026/05/01/0900-ses_old-tea.md)"
    page = f"# tea\n\n## Facts\n\n- 2026-05-01: Ana drinks sencha at the office. {source}\n- a person's own line\n"
    memory.files.write_atomic("knowledge/projects/tea/context.md", page)
    encoder.vector.cache_clear()
    await push.read_ahead(memory)
    assert encoder.vector.cache_info().currsize == 1
    encoder.vector("Ana drinks sencha at the office.")
    assert encoder.vector.cache_info().hits == 1


def test_only_what_a_brief_is_made_of_concerns_it() -> None:
    assert duties.concerns_briefs(Change("file", "knowledge/identity/USER.md"))
    assert duties.concerns_briefs(Change("session", None, "s"))
    assert duties.concerns_briefs(Change("file"))
    assert not duties.concerns_briefs(Change("file", "raw/conversations/x.md"))
    assert not duties.concerns_briefs(Change("turn", "raw/x.md", "s"))
    assert not duties.concerns_briefs(Change("index"))
