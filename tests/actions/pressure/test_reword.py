"""An LLM words the summaries of a compaction when there is time; nothing waits for it, and nothing is lost by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_server.app import maintain, open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.sessions import end_session
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.pressure.cold import recover_chunk
from mcp_server.pressure.reword import REWORDING, reword_all
from mcp_server.relevance.chunks import LiveChunk
from mcp_server.relevance.live_set import live_set
from tests.conftest import Clock
from tests.end_to_end.servers import eventually
from tests.fake_llm import FakeLlm
from tests.pressing import ASKS, SUBJECTS, hold, limited, say, talk

pytestmark = pytest.mark.anyio

KNOBS = limited(4000, summary_target_tokens=60, relevance_keep=0.9, curation_trigger_pct=0.5)
BETTER = "The Galeb needs a winter berth in Split, a new mainsail, and forty pieces of rope."


async def compact(memory: Memory) -> None:
    """A conversation in which a compaction summarises what was said first."""
    await say(memory, " ".join(f"{SUBJECTS[1]} and rope number {number}." for number in range(40)))
    await hold(memory, [replace(turn, role="agent") for turn in talk(20, length=4)])
    await say(memory, f"{SUBJECTS[1]}, and which rope?")
    await hold(memory, [replace(turn, turn_id=None, role="agent") for turn in talk(12, length=4)])


@asynccontextmanager
async def compacted(workspace: Path, clock: Clock, *answers: str | Exception) -> AsyncIterator[tuple[Memory, FakeLlm]]:
    """A conversation that was compacted while an LLM was set that gives these answers."""
    llm = FakeLlm(answers)
    async with open_memory(workspace, KNOBS, clock=clock, llm=llm) as memory:
        await compact(memory)
        yield memory, llm


async def summaries(memory: Memory) -> dict[str, LiveChunk]:
    return {chunk.id: chunk for chunk in await live_set(memory, "s") if chunk.form == "summary"}


async def test_the_rules_summary_stands_at_once_and_the_models_takes_its_place(workspace: Path, clock: Clock) -> None:
    async with compacted(workspace, clock, *[BETTER] * 40) as (memory, llm):
        assert llm.asked == [], "no turn waits for the model"
        before = await summaries(memory)
        assert before
        assert set(await memory.state.keys_of(REWORDING)) >= set(before)

        assert await reword_all(memory) > 0
        after = await summaries(memory)

        assert {purpose for purpose, _ in llm.asked} == {"summary"}
        worded = {number: chunk for number, chunk in after.items() if chunk.shown == BETTER}
        assert worded
        for number, chunk in worded.items():
            record = memory.cold.get("s", number)
            assert record.shown == BETTER
            assert chunk.tokens == memory.tokens.count(BETTER) <= 60
            assert record.content in "\n".join(prompt for _, prompt in llm.asked)
        assert BETTER in (await compile_context(memory, CompileRequest(session="s", budget=4000), ASKS)).text
        assert await memory.state.keys_of(REWORDING) == []
        assert await reword_all(memory) == 0, "once is enough"

        number = next(iter(worded))
        assert (await recover_chunk(memory, number, dry_run=False)).record.content.startswith(SUBJECTS[1][:20])


@pytest.mark.parametrize("answer", [LlmUnavailable("the day's cap is reached"), "", "Paris has museums.", "so " * 400])
async def test_without_a_usable_answer_the_rules_summary_stays(
    workspace: Path, clock: Clock, answer: str | Exception
) -> None:
    async with compacted(workspace, clock, *[answer] * 40) as (memory, llm):
        before = await summaries(memory)

        assert await reword_all(memory) == 0

        assert await summaries(memory) == before
        asked = len(llm.asked)
        assert await reword_all(memory) == 0
        assert len(llm.asked) == asked, "it is asked once"


async def test_a_secret_in_an_answer_is_not_written(workspace: Path, clock: Clock) -> None:
    key = "sk-ant-api03-" + "x1Y2" * 20
    async with compacted(workspace, clock, *[f"{BETTER} {key}"] * 40) as (memory, _):
        await reword_all(memory)
        assert not any(key in path.read_text() for path in (workspace / ".local/cold-storage").rglob("*.jsonl"))


async def test_what_came_back_meanwhile_and_a_session_that_is_over_are_no_trouble(
    workspace: Path, clock: Clock
) -> None:
    async with compacted(workspace, clock, *[BETTER] * 40) as (memory, _):
        first, *_ = sorted(await summaries(memory))
        await recover_chunk(memory, first, dry_run=False)
        await end_session(memory, "s")

        changed = await reword_all(memory)

        stands = {record.chunk_id: record for record in memory.cold.of("s")}
        assert stands[first].form == "whole"
        assert sum(record.shown == BETTER for record in stands.values()) == changed


async def test_a_server_does_it_by_itself(workspace: Path, clock: Clock) -> None:
    async with compacted(workspace, clock, *[BETTER] * 40) as (memory, _), maintain(memory):

        async def worded() -> bool:
            return any(chunk.shown == BETTER for chunk in (await summaries(memory)).values())

        await eventually(worded)


async def test_without_an_llm_nothing_waits_for_one(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, KNOBS, clock=clock) as memory:
        await compact(memory)
        assert await memory.state.keys_of(REWORDING) == []
        assert await reword_all(memory) == 0
