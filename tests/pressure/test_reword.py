"""An LLM words the summaries of a compaction when there is time; nothing waits for it, and nothing is lost by it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
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
    """Observes a conversation in which a compaction summarizes what was said first."""
    await say(memory, " ".join(f"{SUBJECTS[1]} and rope number {number}." for number in range(9)))
    await hold(memory, [replace(turn, role="agent") for turn in talk(20, length=4)])
    await say(memory, f"{SUBJECTS[1]}, and which rope?")
    await hold(memory, [replace(turn, turn_id=None, role="agent") for turn in talk(12, length=4)])


@pytest.fixture(scope="module")
def compacted_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A conversation that was compacted while an LLM was set."""
    made = tmp_path_factory.mktemp("compacted") / "memory"
    llm = FakeLlm([])

    async def make() -> None:
        async with open_memory(made, KNOBS, clock=Clock(), llm=llm) as memory:
            await compact(memory)

    anyio.run(make)
    assert llm.asked == [], "no turn waits for the model"
    return made


Compacted = Callable[..., AbstractAsyncContextManager[tuple[Memory, FakeLlm]]]


@pytest.fixture
def compacted(workspace: Path, clock: Clock, compacted_workspace: Path) -> Compacted:
    """Opens the compacted conversation with an LLM that gives these answers."""
    shutil.rmtree(workspace)
    shutil.copytree(compacted_workspace, workspace)

    @asynccontextmanager
    async def opened(*answers: str | Exception) -> AsyncIterator[tuple[Memory, FakeLlm]]:
        llm = FakeLlm(answers)
        async with open_memory(workspace, KNOBS, clock=clock, llm=llm) as memory:
            yield memory, llm

    return opened


async def summaries(memory: Memory) -> dict[str, LiveChunk]:
    return {chunk.id: chunk for chunk in await live_set(memory, "s") if chunk.form == "summary"}


async def test_the_rules_summary_stands_at_once_and_the_models_takes_its_place(compacted: Compacted) -> None:
    async with compacted(*[BETTER] * 40) as (memory, llm):
        before = await summaries(memory)
        assert before
        assert set(await memory.state.keys_of(REWORDING)) >= set(before)

        assert await reword_all(memory) > 0
        after = await summaries(memory)

        assert {purpose for purpose, _ in llm.asked} == {"summary"}
        worded = {number: chunk for number, chunk in after.items() if chunk.shown == BETTER}
        assert worded
        for number, chunk in worded.items():
            record = memory.cold.find(number, "s")
            assert record.shown == BETTER
            assert chunk.tokens == memory.tokens.count(BETTER) <= 60
            assert record.content in "\n".join(prompt for _, prompt in llm.asked)
        assert BETTER in (await compile_context(memory, CompileRequest(session="s", budget=4000), ASKS)).text
        assert await memory.state.keys_of(REWORDING) == []
        assert await reword_all(memory) == 0, "once is enough"

        number = next(iter(worded))
        assert (await recover_chunk(memory, number, dry_run=False)).record.content.startswith(SUBJECTS[1][:20])


@pytest.mark.parametrize("answer", [LlmUnavailable("the day's cap is reached"), "", "Paris has museums.", "so " * 400])
async def test_without_a_usable_answer_the_rules_summary_stays(compacted: Compacted, answer: str | Exception) -> None:
    async with compacted(*[answer] * 40) as (memory, llm):
        before = await summaries(memory)

        assert await reword_all(memory) == 0

        assert await summaries(memory) == before
        asked = len(llm.asked)
        assert await reword_all(memory) == 0
        assert len(llm.asked) == asked, "it is asked once"


async def test_a_secret_in_an_answer_is_not_written(compacted: Compacted, workspace: Path) -> None:
    key = "sk-ant-api03-" + "x1Y2" * 20
    async with compacted(*[f"{BETTER} {key}"] * 40) as (memory, _):
        await reword_all(memory)
    written = [path.read_text() for path in (workspace / ".local/cold-storage").rglob("*.jsonl")]
    assert written
    assert not any(key in text for text in written)


async def test_what_came_back_meanwhile_and_a_session_that_is_over_are_no_trouble(compacted: Compacted) -> None:
    async with compacted(*[BETTER] * 40) as (memory, _):
        first, *_ = sorted(await summaries(memory))
        await recover_chunk(memory, first, dry_run=False)
        await end_session(memory, "s")

        changed = await reword_all(memory)

        stands = {record.chunk_id: record for record in memory.cold.of("s")}
        assert stands[first].form == "whole"
        assert sum(record.shown == BETTER for record in stands.values()) == changed


async def test_a_server_does_it_by_itself(compacted: Compacted) -> None:
    async with compacted(*[BETTER] * 40) as (memory, _), maintain(memory):

        async def worded() -> bool:
            return any(chunk.shown == BETTER for chunk in (await summaries(memory)).values())

        await eventually(worded)


async def test_without_an_llm_nothing_waits_for_one(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, KNOBS, clock=clock) as memory:
        await compact(memory)
        assert await memory.state.keys_of(REWORDING) == []
        assert await reword_all(memory) == 0
