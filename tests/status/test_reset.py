"""A reset deletes what can be made again, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_server.context.pauses import pause, pauses
from mcp_server.conversations import sessions
from mcp_server.errors import Unavailable
from mcp_server.knowledge.remember import NewFact, remember
from mcp_server.memory import Memory
from mcp_server.relevance.live_set import live_set
from mcp_server.search.search import SearchRequest, search
from mcp_server.status.doctor import plan_reset, reset
from tests.conftest import Clock
from tests.small_context import USER, grow, small_memory

pytestmark = pytest.mark.anyio


@pytest.fixture
async def memory(workspace: Path, clock: Clock) -> AsyncIterator[Memory]:
    async with small_memory(workspace, clock) as opened:
        yield opened


def kept(root: Path) -> dict[str, str]:
    """Every file that a reset must not touch."""
    gone = (".local/index", ".local/state.db", ".local/logs", ".local/advisor", ".local/locks")
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and not path.relative_to(root).as_posix().startswith(gone)
    }


async def test_looking_changes_nothing_and_says_what_would_go(memory: Memory, workspace: Path) -> None:
    await grow(memory)
    before = kept(workspace)
    planned = await plan_reset(memory)
    assert not planned.done
    sizes = {part.what: part.files for part in planned.parts}
    assert sizes["logs"] >= 3
    assert sizes["live state"] >= 1
    assert sizes["expired cold records"] == 0
    assert kept(workspace) == before
    assert (await plan_reset(memory)).parts[3] == planned.parts[3]


async def test_conversations_knowledge_and_cold_records_stay_and_the_rest_is_made_again(
    memory: Memory, workspace: Path
) -> None:
    await grow(memory)
    await remember(memory, NewFact("the blue kayak needs a new paddle"), USER)
    await pause(memory)
    before, live = kept(workspace), await live_set(memory, "s")
    done = await reset(memory)
    assert done.done
    assert kept(workspace) == before
    assert not list((workspace / ".local/logs").rglob("*.jsonl"))
    (row,) = await sessions.list_sessions(memory)
    assert (row.session, row.turns, row.status) == ("s", 12, "open")
    again = await live_set(memory, "s")
    assert [(one.id, one.form, one.tokens) for one in again] == [(one.id, one.form, one.tokens) for one in live]
    assert len(await pauses(memory)) == 1
    assert (await search(memory, SearchRequest("kayak paddle", scope="all"))).hits
    assert (await reset(memory)).done


async def test_records_whose_time_is_over_go(memory: Memory, clock: Clock) -> None:
    await grow(memory)
    count = len(list(memory.cold.all()))
    clock.forward(days=31)
    await grow(memory, "later")
    await reset(memory)
    left = list(memory.cold.all())
    assert left
    assert {record.session_id for record in left} == {"later"}
    assert count


async def test_while_a_server_works_nothing_is_deleted(memory: Memory, workspace: Path) -> None:
    await grow(memory)
    held = memory.locks.try_maintainer()
    assert held is not None
    with pytest.raises(Unavailable, match="close the clients"):
        await reset(memory)
    assert list((workspace / ".local/logs").rglob("*.jsonl"))
    held.release()
    assert (await reset(memory)).done
