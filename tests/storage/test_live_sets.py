"""Live sets in the state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.relevance.chunks import ColdRecord, LiveChunk, Standing, read_record
from mcp_server.storage.live_sets import ColdStorage
from mcp_server.storage.values import LiveSetCounts, Reading

pytestmark = pytest.mark.anyio

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def chunk(turn: int, tokens: int = 10, part: int = 0) -> LiveChunk:
    return LiveChunk(f"c{turn}.{part}", "message", turn, part, tokens, AT, accessed=AT, tags=("a", "ž"))


async def test_chunks_come_back_as_they_were_in_the_order_in_which_they_came(memory: Memory) -> None:
    live = memory.live
    chunks = [chunk(2), chunk(1, part=1), chunk(1), chunk(10)]
    await live.put("s", chunks)
    await live.put("other", [chunk(3, 999)])
    assert await live.of("s") == [chunks[2], chunks[1], chunks[0], chunks[3]]
    assert await live.tokens("s") == 40


async def test_what_is_cold_costs_nothing_and_keeps_its_row(memory: Memory) -> None:
    live = memory.live
    await live.put("s", [chunk(1), chunk(2)])
    await live.put("s", [replace(chunk(1), form="cold")])
    assert await live.tokens("s") == 10
    assert [one.form for one in await live.of("s")] == ["cold", "whole"]
    await live.clear("s")
    assert await live.of("s") == []


async def test_a_turn_is_added_only_behind_the_turn_before_it(memory: Memory) -> None:
    live, keep = memory.live, timedelta(minutes=5)
    assert await live.add("s", 2, [chunk(2)], AT, None, keep) is None
    assert await live.of("s") == []
    assert await live.shortened_chunks("s") is None
    first = Reading(AT, 10, 500)
    assert await live.add("s", 1, [chunk(1)], AT, 500, keep) == LiveSetCounts(first, (), 1, 0, 0)
    later = AT + timedelta(minutes=4)
    second = Reading(later, 20)
    assert await live.add("s", 2, [chunk(2)], later, None, keep) == LiveSetCounts(second, (first,), 2, 0, 0)
    assert await live.readings("s") == [first, second]
    assert await live.counts("s") == LiveSetCounts(second, (first,), 2, 0, 0)
    latest = later + timedelta(minutes=9)
    await live.add("s", 3, [replace(chunk(3), form="cold")], latest, None, keep)
    assert [one.at for one in await live.readings("s")] == [later, latest]
    assert await live.counts("s") == LiveSetCounts(Reading(latest, 20), (second,), 2, 1, 1)
    await live.clear("s")
    assert await live.readings("s") == []


async def test_what_does_not_stand_whole_is_told_apart(memory: Memory) -> None:
    live = memory.live
    cold, short = replace(chunk(1), form="cold"), replace(chunk(2), form="summary", shown="in short")
    await live.put("s", [cold, short, chunk(3)])
    assert await live.shortened_chunks("s") == [
        Standing("c1.0", "message", 1, 0, "cold"),
        Standing("c2.0", "message", 2, 0, "summary", "in short"),
    ]
    counts = await live.counts("s")
    assert (counts.cold, counts.live, counts.shortened) == (1, 2, 2)
    assert await live.cold_turns([("s", 1), ("s", 2), ("other", 1)]) == {("s", 1): "c1.0"}
    assert await live.cold_turns([]) == {}


async def test_it_is_known_which_sessions_have_a_set_and_what_of_them_stands_whole(memory: Memory) -> None:
    live = memory.live
    assert (await live.sessions(), await live.whole(None), await live.any_of("s")) == ([], frozenset(), False)
    await live.put("s", [chunk(1), replace(chunk(2), form="cold"), replace(chunk(3), form="summary", shown="short")])
    await live.put("other", [chunk(4)])
    assert await live.sessions() == ["other", "s"]
    assert (await live.any_of("s"), await live.any_of("none")) == (True, False)
    assert await live.whole(None) == {"c1.0", "c4.0"}
    assert await live.whole("s") == {"c1.0"}


RECORDED = datetime(2026, 2, 2, 22, 55, tzinfo=UTC)


RECORD = ColdRecord(
    chunk_id="c1",
    session_id="xyz 789/ž",
    timestamp=RECORDED,
    content="The oven\u2028fails.\n",
    tokens=1500,
    drop_reason="low_relevance",
    relevance_score=0.15,
    prompt_at_drop="journal search",
    recoverable_until=RECORDED + timedelta(days=30),
)


async def test_a_record_is_found_by_its_chunk_and_by_its_session(memory: Memory) -> None:
    cold = ColdStorage(memory.files)
    cold.put_all([RECORD])
    cold.put_all([replace(RECORD, chunk_id="c0", turn=7)])
    cold.put_all([replace(RECORD, chunk_id="c9", session_id="else")])
    assert cold.find("c1") == RECORD
    assert [record.chunk_id for record in cold.of("xyz 789/ž")] == ["c1", "c0"]
    assert len(list(cold.all())) == 3


async def test_the_same_chunk_again_replaces_its_record(memory: Memory) -> None:
    cold = ColdStorage(memory.files)
    cold.put_all([RECORD])
    cold.put_all([replace(RECORD, drop_reason="asked")])
    assert [record.drop_reason for record in cold.of(RECORD.session_id)] == ["asked"]
    cold.remove_all([RECORD])
    cold.remove_all([RECORD])
    with pytest.raises(NotFound, match="cold-storage list"):
        cold.find("c1")


async def test_files_that_hold_no_record_are_skipped(memory: Memory) -> None:
    cold = ColdStorage(memory.files)
    cold.put_all([RECORD])
    memory.files.write_atomic(".local/cold-storage/x/broken.jsonl", "{not json\n")
    memory.files.write_atomic(".local/cold-storage/x/list.jsonl", "[1]\n")
    assert list(cold.all()) == [RECORD]


@given(st.text(max_size=200), st.text(max_size=40))
def test_any_text_comes_back_byte_for_byte(content: str, prompt: str) -> None:
    said = replace(
        RECORD,
        content=content.encode("utf-8", "ignore").decode(),
        prompt_at_drop=prompt.encode("utf-8", "ignore").decode(),
    )
    line = said.as_line()
    assert line.count("\n") == 1
    assert read_record(line) == said


async def test_many_records_are_written_and_deleted_together(memory: Memory) -> None:
    cold = ColdStorage(memory.files)
    many = [replace(RECORD, chunk_id=f"c{n}", session_id=f"s{n % 2}", turn=n) for n in range(6)]
    cold.put_all(many)
    assert cold.find("c3", "s1") == many[3]
    assert [record.turn for record in cold.of("s0")] == [0, 2, 4]
    cold.remove_all([*many[:5], *many[:2]])
    assert list(cold.all()) == [many[5]]
    with pytest.raises(NotFound):
        cold.find("c0", "s0")
