"""An LLM improves a checkpoint later: nothing waits for it, and a failure loses nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_server.app import maintain, open_memory
from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import ENRICHING, make
from mcp_server.checkpoints.enrich import enrich, enrich_all
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session
from mcp_server.errors import NotFound
from mcp_server.knowledge.notes import notes_of
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.model import Caller
from tests.conftest import KEYWORDS_ONLY
from tests.end_to_end.servers import eventually
from tests.fake_llm import FakeLlm

pytestmark = pytest.mark.anyio
CALLER = Caller()
FIRST = "use two files for the cache"
SECOND = "store invoices as PDF"
BETTER = ("Use two files for the cache, so that one can be rebuilt", "Keep the blue door")
ITEM = "Call Ana about the winter berth before June"
ANSWER = json.dumps({"decisions": BETTER, "open_items": [ITEM]})


async def say(memory: Memory, content: str) -> None:
    await observe(memory, NewTurn("user", content, session="s1"), CALLER)


@asynccontextmanager
async def talked(workspace: Path, *answers: str | Exception) -> AsyncIterator[tuple[Memory, FakeLlm]]:
    """A memory with an LLM that gives these answers, and a conversation in it."""
    llm = FakeLlm(answers)
    async with open_memory(workspace, KEYWORDS_ONLY, llm=llm) as memory:
        for content in (f"Decision: {FIRST}", "TODO: call Ana about the winter berth", f"Decision: {SECOND}"):
            await say(memory, content)
        yield memory, llm


async def test_what_the_model_says_better_stands_and_what_it_does_not_cover_stays(workspace: Path) -> None:
    async with talked(workspace, ANSWER) as (memory, llm):
        made = await make(memory, "s1", "asked")
        assert llm.asked == [], "whoever asks for a checkpoint does not wait for the model"
        assert await enrich_all(memory) == 1
        found = await stored.read(memory, made.id)
        assert found.decisions == (*BETTER, SECOND)
        assert found.open_items == (ITEM,)
        ((purpose, prompt),) = llm.asked
        assert purpose == "enrichment"
        assert FIRST in prompt
        assert await memory.state.keys_of(ENRICHING) == []
        assert await enrich_all(memory) == 0, "once is enough"
        assert len(llm.asked) == 1


async def test_later_checkpoints_keep_what_was_learned_and_done_stays_done(workspace: Path) -> None:
    async with talked(workspace, ANSWER) as (memory, _):
        made = await make(memory, "s1", "asked")
        await say(memory, "- [x] call Ana about the winter berth")
        assert await enrich(memory, made.id)
        later = await make(memory, "s1", "asked")
        assert later.decisions == (*BETTER, SECOND)
        assert later.open_items == ()
        assert (await notes_of(memory, "s1")).turn == 4


@pytest.mark.parametrize(
    "answer", [LlmUnavailable("the day's cap is reached"), "I think it went well.", "", '{"decisions": "all"}', "{"]
)
async def test_without_a_usable_answer_the_checkpoint_stays_as_it_was(workspace: Path, answer: str | Exception) -> None:
    async with talked(workspace, answer) as (memory, llm):
        made = await make(memory, "s1", "asked")
        before = memory.files.read_text(f"checkpoints/s1/{made.id}.md")
        assert await enrich_all(memory) == 0
        assert memory.files.read_text(f"checkpoints/s1/{made.id}.md") == before
        assert await enrich_all(memory) == 0
        assert len(llm.asked) == 1, "it is asked once"


async def test_talk_and_questions_of_the_model_are_not_decisions(workspace: Path) -> None:
    bad = json.dumps({"decisions": ["You're right, I overcomplicated it", "Shall we use Rust?"], "open_items": []})
    async with talked(workspace, bad) as (memory, _):
        made = await make(memory, "s1", "asked")
        assert not await enrich(memory, made.id)
        assert (await stored.read(memory, made.id)).decisions == (FIRST, SECOND)


async def test_a_secret_in_an_answer_is_not_written(workspace: Path) -> None:
    key = "sk-ant-api03-" + "x1Y2" * 20
    async with talked(workspace, json.dumps({"decisions": [f"Use the key {key} for deploys"]})) as (memory, _):
        made = await make(memory, "s1", "asked")
        await enrich(memory, made.id)
        assert key not in memory.files.read_text(f"checkpoints/s1/{made.id}.md")


async def test_a_checkpoint_that_is_gone_does_not_stop_the_others(workspace: Path) -> None:
    async with talked(workspace, ANSWER) as (memory, _):
        await memory.state.put(ENRICHING, "ckp_0", {"session": "s1"})
        made = await make(memory, "s1", "asked")
        assert await enrich_all(memory) == 1
        assert (await stored.read(memory, made.id)).decisions == (*BETTER, SECOND)
        with pytest.raises(NotFound):
            await enrich(memory, "ckp_0")


async def test_a_server_does_it_by_itself_when_a_session_ends(workspace: Path) -> None:
    async with talked(workspace, ANSWER) as (memory, _), maintain(memory):
        await end_session(memory, "s1")

        async def enriched() -> bool:
            latest = await stored.latest(memory, "s1")
            return latest is not None and latest.decisions == (*BETTER, SECOND)

        await eventually(enriched)


async def test_without_an_llm_nothing_waits_for_one(memory: Memory) -> None:
    await say(memory, f"Decision: {FIRST}")
    made = await make(memory, "s1", "asked")
    assert await enrich_all(memory) == 0
    assert not await enrich(memory, made.id)
    assert await memory.state.keys_of(ENRICHING) == []
