"""The similarity of chunks to a message: words that all chunks share do not count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.sessions import end_session, session_turns
from mcp_server.memory import Memory
from mcp_server.pressure.cold import recover_chunk
from mcp_server.pressure.prune import prune
from mcp_server.relevance.live_set import live_set
from mcp_server.relevance.similar import query_of
from mcp_server.text.words import LONGEST
from tests.conftest import Clock
from tests.pressing import ASKS, SUBJECTS, forms, hold, limited, say, talk

pytestmark = pytest.mark.anyio

BERTH = "Which winter berth and which mainsail for the Galeb?"


async def indexed(memory: Memory, *said: str) -> None:
    for content in said:
        await say(memory, content)
        await catch_up(memory)


async def test_a_short_piece_among_near_identical_ones_does_not_come_back_for_standing_there(
    workspace: Path, clock: Clock
) -> None:
    same = [f"{SUBJECTS[1]}, and Ante rows out on day {n}. Is the rope dry?" for n in range(12)]
    async with open_memory(workspace, limited(30_000, auto_recover=20), clock=clock) as memory:
        await indexed(memory, *same[:6], "Zanzibar!", *same[6:], *(turn.content for turn in talk(6)))
        await prune(memory, "compact", "s", False, ASKS, target=0)
        before = forms(await live_set(memory, "s"))
        assert {before[number] for number in range(1, 14)} == {"cold"}
        await say(memory, "What of the mainsail for the Galeb, and of the berth?")
        after = forms(await live_set(memory, "s"))
        assert after[7] == "cold"
        assert [after[number] for number in range(1, 14)].count("whole") >= 9


async def test_a_question_that_was_asked_before_does_not_keep_its_answer_away(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(30_000, auto_recover=0), clock=clock) as memory:
        await indexed(memory, "By the crane the Galeb is safe: Ante says the berth there has shelter from the bora.")
        await indexed(memory, *(turn.content for turn in talk(12) if not turn.content.startswith(SUBJECTS[1])))
        await prune(memory, "compact", "s", False, ASKS, target=0)
        assert forms(await live_set(memory, "s"))[1] == "cold"
        await indexed(memory, BERTH)
        await say(memory, "The printer is out of toner, and nobody ordered any.", "agent")
    clock.forward(hours=2)
    async with open_memory(workspace, limited(30_000), clock=clock) as memory:
        await say(memory, BERTH)
        assert forms(await live_set(memory, "s"))[1] == "whole"


async def test_of_a_long_message_beginning_and_end_are_compared_and_kept_with_what_goes(
    workspace: Path, clock: Clock
) -> None:
    async with open_memory(workspace, limited(2000), clock=clock) as memory:
        await hold(memory, talk(12))
        await catch_up(memory)
        log = "".join(f"line {n}: the compiler says nothing new\n" for n in range(20_000))
        await say(memory, f"Look at this log.\n{log}Does the accountant know about the greenhouse and form seven?")
        turns = await session_turns(memory, "s")
        query = query_of(turns)
        assert query.startswith("Look at this log.")
        assert query.endswith("form seven?")
        assert len(query) <= LONGEST + 1
        records = [one for one in memory.cold.of("s") if one.turn < 13]
        assert records
        assert all(len(record.prompt_at_drop) <= LONGEST + 1 for record in records)
        await end_session(memory, "s")
        assert all(len(record.prompt_at_drop) <= LONGEST + 1 for record in memory.cold.of("s"))
    for log_file in (workspace / ".local/logs/context").glob("*.jsonl"):
        for line in log_file.read_text("utf-8").splitlines():
            assert len(line) < 4 * LONGEST, json.loads(line)["event"]


async def test_a_long_text_counts_the_same_in_the_set_and_in_its_record(workspace: Path, clock: Clock) -> None:
    long = "The rye bread burns and the oven cracks. " * 50_000
    async with open_memory(workspace, limited(3_000_000, auto_recover=0), clock=clock) as memory:
        await say(memory, long)
        await hold(memory, talk(6))
        before = (await live_set(memory, "s"))[0]
        await prune(memory, "compact", "s", False, ASKS, target=0)
        record = memory.cold.find(before.id, "s")
        assert record.content == long
        assert record.tokens == before.tokens
        await recover_chunk(memory, before.id, dry_run=False)
        assert (await live_set(memory, "s"))[0].tokens == before.tokens
