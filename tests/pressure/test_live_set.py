"""A live set that was lost: who asks sees it as it was, who only looks leaves it lost, who acts keeps it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.conversations.observe import ContextChunk
from mcp_server.conversations.sessions import end_session, session_turns
from mcp_server.memory import Memory
from mcp_server.model import ToolCall
from mcp_server.pressure.advisor import view_of
from mcp_server.pressure.cold import recover_chunk
from mcp_server.pressure.health import health
from mcp_server.pressure.prune import prune
from mcp_server.recovery.recover import recover
from mcp_server.relevance.chunks import LONGEST_COUNTED
from mcp_server.relevance.live_set import asking_turns, gauges, live_set, query_of
from mcp_server.text.words import LONGEST
from tests.conftest import Clock
from tests.pressing import ASKS, SUBJECTS, forms, hold, limited, say, talk
from tests.workspaces import bytes_of

pytestmark = pytest.mark.anyio


async def grown(memory: Memory) -> None:
    """A session with live, cold and shortened chunks of every kind, as `SMALL` leaves it."""
    call = ToolCall("Read", "src/oven.py", "def bake(): ... " * 60, files=("src/oven.py",))
    await say(memory, "I read it.", "agent", tool_calls=(call,), chunks=(ContextChunk("file", "src/oven.py", 90),))
    await hold(memory, talk(24))


SMALL = limited(2000, auto_recover=0)


async def test_looking_at_a_lost_set_changes_no_byte(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, SMALL, clock=clock) as memory:
        await grown(memory)
        kept = {chunk.id: chunk.form for chunk in await live_set(memory, "s")}
        full = (await gauges(memory, "s")).live_tokens
        record = memory.cold.of("s")[0]
        await memory.live.clear("s")
        before = bytes_of(workspace)
        assert {chunk.id: chunk.form for chunk in await live_set(memory, "s")} == kept
        assert (await gauges(memory, "s")).live_tokens == full
        assert (await health(memory, "s"))[0].current_tokens == full
        for strategy in ("auto", "compact", "advisor", "clarity"):
            assert (await prune(memory, strategy, "s", True, ASKS)).dry_run
        assert (await recover(memory, record.chunk_id, ASKS)).content == record.content
        await view_of(memory, "s", "What does the oven do?", asked=True)
        assert bytes_of(workspace) == before
        assert await memory.live.of("s") == []


async def test_what_is_done_to_a_lost_set_is_what_the_dry_run_said_and_loses_no_chunk(
    workspace: Path, clock: Clock
) -> None:
    async with open_memory(workspace, SMALL, clock=clock) as memory:
        await grown(memory)
        turns = {chunk.turn for chunk in await live_set(memory, "s")}
        await memory.live.clear("s")
        shown = await prune(memory, "compact", "s", True, ASKS, target=20)
        done = await prune(memory, "compact", "s", False, ASKS, target=20)
        assert [(one.id, one.fate) for one in done.fates] == [(one.id, one.fate) for one in shown.fates]
        assert done.after == shown.after
        assert {chunk.turn for chunk in await memory.live.of("s")} == turns
        assert (await gauges(memory, "s")).live_tokens == done.after


async def test_recovering_into_a_lost_set_keeps_all_of_it(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, SMALL, clock=clock) as memory:
        await grown(memory)
        before = forms(await live_set(memory, "s"))
        record = next(one for one in memory.cold.of("s") if one.form == "cold")
        await memory.live.clear("s")
        undo = (await recover(memory, record.chunk_id, ASKS, apply=True)).undo
        assert forms(await memory.live.of("s")) == before | {record.turn: "whole"}
        await memory.live.clear("s")
        assert undo is not None
        await recover(memory, undo, ASKS, apply=True)
        assert forms(await memory.live.of("s")) == before


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
        log = "".join(f"line {n}: the compiler says nothing new\n" for n in range(1_000))
        await say(memory, f"Look at this log.\n{log}Does the accountant know about the greenhouse and form seven?")
        turns = await session_turns(memory, "s")
        query = query_of(asking_turns(turns, alone=True))
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
    long = "The rye bread burns and the oven cracks. " * (LONGEST_COUNTED // 40)
    assert len(long) > LONGEST_COUNTED
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
