"""How full conversations are, what left them, and what the logs say of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.pressure.cold import cold_records
from mcp_server.pressure.health import health, histogram, log_stats, since, spread, tuning
from mcp_server.recovery.recover import recover
from tests.conftest import Clock
from tests.pressing import SMALL, USER, grow

pytestmark = pytest.mark.anyio


@pytest.fixture
async def memory(workspace: Path, clock: Clock) -> AsyncIterator[Memory]:
    async with open_memory(workspace, SMALL, clock=clock) as opened:
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


async def test_a_chunk_that_is_asked_for_again_within_ten_exchanges_counts_against_the_policy(
    memory: Memory, clock: Clock
) -> None:
    await grow(memory)
    first, second, *_ = await cold_records(memory, "s")
    before = (await tuning(memory))[0]["stats"]["soon"]
    await recover(memory, first.chunk_id, USER, apply=True)
    assert (await tuning(memory))[0]["stats"]["soon"] == before + 1
    for number in range(11):
        await observe(memory, NewTurn("user", f"Something else: {number}.", session="s"), USER)
    await recover(memory, second.chunk_id, USER, apply=True)
    assert (await tuning(memory))[0]["stats"]["soon"] == before + 1


async def test_the_logs_are_summed_up_by_session_and_time(memory: Memory, clock: Clock) -> None:
    assert not any((await tuning(memory))[0]["lines"].values())
    await grow(memory)
    await observe(memory, NewTurn("user", "Something else entirely.", session="other"), USER)
    found, _ = await tuning(memory)
    assert sum(found["stats"]["reasons"].values()) == len(await cold_records(memory)) + sum(
        found["stats"]["recovered"].values()
    )
    assert found["stats"]["compaction"]["total"] > 0
    assert found["knobs"]["relevance_cutoff"] == 0.3
    assert (await tuning(memory, "s"))[0]["lines"]["drops"] == found["lines"]["drops"]
    assert (await tuning(memory, "other"))[0]["lines"]["drops"] == 0
    assert not any((await tuning(memory, start=clock() + timedelta(days=1)))[0]["lines"].values())


DROP: dict[str, Any] = {
    "timestamp": "2026-02-02T22:55:00Z",
    "event": "chunk_dropped",
    "chunk_id": "abc123",
    "session_id": "xyz789",
    "reason": "low_relevance",
    "relevance_score": 0.15,
    "threshold_used": 0.30,
}

CURATION: dict[str, Any] = {"timestamp": "2026-02-02T22:56:00Z", "event": "memfas_curation", "token_savings": 25000}

COMPACTION: dict[str, Any] = {
    "timestamp": "2026-02-02T22:57:00Z",
    "event": "compaction_triggered",
    "tokens_before": 80000,
    "tokens_after": 40000,
    "chunks_summarized": 8,
}


def test_the_lines_of_the_design_are_summed_up() -> None:
    drops = [DROP, {**DROP, "relevance_score": 0.3}, {**DROP, "reason": "compaction", "relevance_score": 0.62}]
    recovered = [{"trigger": "automatic"}, {"trigger": "asked"}, {"trigger": "automatic"}]
    stats = log_stats(drops, [CURATION], [COMPACTION], recovered, [{"pct_used": 0.45}, {"pct_used": 0.4}])
    assert stats["reasons"] == {"low_relevance": 2, "compaction": 1}
    assert [one["count"] for one in stats["scores"]] == [0, 1, 0, 1, 0, 0, 1, 0, 0, 0]
    assert stats["thresholds"] == [0.3]
    assert stats["curation"] == spread([25000])
    assert (stats["compaction"]["total"], stats["summarised"]) == (40000, 8)
    assert stats["recovered"] == {"automatic": 2, "asked": 1}
    assert stats["highest_pct"] == 0.45
    assert (stats["first"], stats["last"]) == ("2026-02-02T22:55:00Z", "2026-02-02T22:57:00Z")


def test_lines_that_lack_something_count_as_what_they_have() -> None:
    stats = log_stats([{}, {"relevance_score": "high"}], [{"token_savings": None}], [{}], [{}], [{"pct_used": True}])
    assert stats["reasons"] == {"unknown": 2}
    assert stats["highest_pct"] == 0.0
    assert log_stats([], [], [], [], [])["first"] is None


def test_a_spread_is_what_statistics_say() -> None:
    assert list(spread([1, 2, 3, 10]).values()) == [4, 16, 1, 2.5, 4.0, 10]
    assert set(spread([]).values()) == {0}


@given(st.lists(st.floats(-0.5, 1.5)))
def test_every_score_is_in_one_bin(scores: list[float]) -> None:
    assert sum(one["count"] for one in histogram(scores)) == len(scores)


def test_lines_are_chosen_by_time_and_session() -> None:
    later = {**DROP, "timestamp": "2026-02-03T00:00:00Z", "session_id": "other"}
    moment = datetime(2026, 2, 3, tzinfo=UTC)
    assert since([DROP, later], None, None) == [DROP, later]
    assert since([DROP, later], moment, None) == [later]
    assert since([DROP, later], None, "xyz789") == [DROP]
    assert since([{"timestamp": "2026-02-04T00:00:00"}, {"timestamp": "?"}], moment, None) != []
