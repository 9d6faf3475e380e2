"""How full conversations are, what left them, and what the logs say of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.pressure.cold import cold_records, drops
from mcp_server.pressure.health import health
from mcp_server.pressure.log import tuning
from mcp_server.recovery.recover import recover
from tests.conftest import Clock
from tests.small_context import USER, grow, small_memory

pytestmark = pytest.mark.anyio


@pytest.fixture
async def memory(workspace: Path, clock: Clock) -> AsyncIterator[Memory]:
    async with small_memory(workspace, clock) as opened:
        yield opened


async def test_the_gauges_are_those_of_the_live_set(memory: Memory) -> None:
    assert await health(memory) == []
    await grow(memory)
    (one,) = await health(memory)
    assert one.current_tokens == await memory.live.tokens("s")
    assert one.memcached_chunks + one.forms["cold"] == 12
    assert one.cold_storage_chunks == one.forms["cold"]
    assert one.next_compaction_estimate == 500
    assert one.pct_used < 0.5
    assert one.client_pct is None
    assert "this is the prompt" in one.next_step


async def test_what_the_client_says_of_its_own_window_is_beside_it(memory: Memory) -> None:
    await observe(memory, NewTurn("user", "Hello there.", session="s", context_tokens=800), USER)
    (one,) = await health(memory)
    assert (one.client_tokens, one.client_pct, one.highest_pct) == (800, 0.8, 0.8)
    assert "the client keeps its own window" in one.next_step
    assert one.as_dict()["client_pct"] == 0.8


async def test_an_ended_conversation_is_shown_when_it_is_named(memory: Memory) -> None:
    await grow(memory)
    await end_session(memory, "s")
    assert await health(memory) == []
    (one,) = await health(memory, "s")
    assert (one.current_tokens, one.cold_storage_chunks) == (0, 12)
    assert "it has ended" in one.next_step
    with pytest.raises(NotFound):
        await health(memory, "nobody")


async def test_each_drop_is_listed_and_whether_it_can_come_back(memory: Memory) -> None:
    await grow(memory)
    listed = await drops(memory, "s")
    assert {one.chunk_id for one in listed} == {record.chunk_id for record in await cold_records(memory, "s")}
    assert all(one.recoverable and one.reason in ("compaction", "low_relevance") for one in listed)
    await recover(memory, listed[0].chunk_id, USER, apply=True)
    again = await drops(memory, "s")
    assert [one.recoverable for one in again].count(False) == 1
    assert len(again) == len(listed)
    assert await drops(memory, "s", limit=2) == again[:2]


async def test_without_the_log_cold_storage_tells(memory: Memory, workspace: Path) -> None:
    await grow(memory)
    before = await drops(memory)
    (workspace / ".local/logs/context/drops.jsonl").unlink()
    after = await drops(memory)
    assert {one.chunk_id for one in after} == {one.chunk_id for one in before}
    assert all(one.threshold_used is None for one in after)
    await end_session(memory, "s")  # what was live to the end is in cold storage too, and was never dropped
    assert {one.chunk_id for one in await drops(memory)} == {one.chunk_id for one in before}


async def test_a_chunk_that_is_asked_for_again_within_ten_exchanges_counts_against_the_policy(
    memory: Memory, clock: Clock
) -> None:
    await grow(memory)
    first, second, *_ = await drops(memory, "s")
    before = (await tuning(memory)).stats.soon
    await recover(memory, first.chunk_id, USER, apply=True)
    assert (await tuning(memory)).stats.soon == before + 1
    for number in range(11):
        await observe(memory, NewTurn("user", f"Something else: {number}.", session="s"), USER)
    await recover(memory, second.chunk_id, USER, apply=True)
    assert (await tuning(memory)).stats.soon == before + 1


async def test_the_logs_are_summed_up_by_session_and_time(memory: Memory, clock: Clock) -> None:
    assert not any((await tuning(memory)).lines.values())
    await grow(memory)
    await observe(memory, NewTurn("user", "Something else entirely.", session="other"), USER)
    found = await tuning(memory)
    assert found.stats.dropped == len(await cold_records(memory)) + sum(found.stats.recovered.values())
    assert found.stats.compaction.total > 0
    assert found.knobs["relevance_cutoff"] == 0.3
    assert (await tuning(memory, "s")).lines["drops"] == found.lines["drops"]
    assert (await tuning(memory, "other")).lines["drops"] == 0
    assert not any((await tuning(memory, start=clock() + timedelta(days=1))).lines.values())
