"""An LLM reviews a checkpoint's items later: nothing waits for it, and a failure loses nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcp_server.app import maintain, open_memory
from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import ENRICHING, make
from mcp_server.checkpoints.stored import enrich, enrich_all
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

FIRST, SECOND, ITEM = "use two files for the cache", "store invoices as PDF", "call Ana about the winter berth"
BETTER = "Use two separate files for the cache"
QUOTE = "Perhaps the blue door stays as it is."
ANSWER = json.dumps(
    {"reword": [{"id": "i1", "text": BETTER}], "add": [{"kind": "decision", "turn": 2, "quote": QUOTE}]}
)


async def say(memory: Memory, content: str) -> None:
    await observe(memory, NewTurn("user", content, session="s1"), Caller())


@asynccontextmanager
async def talked(place: Path | str, *answers: str | Exception) -> AsyncIterator[tuple[Memory, FakeLlm]]:
    """A memory with an LLM that gives these answers, and a conversation in it."""
    llm = FakeLlm(answers)
    async with open_memory(place, KEYWORDS_ONLY, llm=llm) as memory:
        for content in (f"Decision: {FIRST}", f"TODO: {ITEM}\n\n{QUOTE}", f"Decision: {SECOND}"):
            await say(memory, content)
        yield memory, llm


async def test_a_captured_decision_that_the_model_does_not_cover_is_kept(place: Path | str) -> None:
    async with talked(place, ANSWER) as (memory, llm):
        made = await make(memory, "s1", "asked")
        assert (made.decisions, made.open_items) == ((FIRST, SECOND), (ITEM,))
        assert llm.asked == [], "whoever asks for a checkpoint does not wait for the model"
        assert await enrich_all(memory) == 1
        found = await stored.read(memory, made.id)
        assert found.decisions == (BETTER, QUOTE, SECOND)
        assert found.open_items == (ITEM,)
        ((purpose, prompt),) = llm.asked
        assert purpose == "review"
        assert f"i1 (decision, message 1): {FIRST}" in prompt
        assert await memory.state.keys_of(ENRICHING) == []
        assert await enrich_all(memory) == 0, "once is enough"
        assert len(llm.asked) == 1


async def test_later_checkpoints_keep_what_was_learned_and_done_stays_done(place: Path | str) -> None:
    async with talked(place, ANSWER) as (memory, _):
        made = await make(memory, "s1", "asked")
        await say(memory, "- [x] call Ana about the winter berth")
        assert await enrich(memory, made.id)
        later = await make(memory, "s1", "asked")
        assert later.decisions == (BETTER, QUOTE, SECOND)
        assert later.open_items == ()
        assert (await notes_of(memory, "s1")).turn == 4


@pytest.mark.parametrize(
    "answer", [LlmUnavailable("the day's cap is reached"), "I think it went well.", '{"drop": ["i1"]}']
)
async def test_without_a_usable_answer_the_checkpoint_stays_as_it_was(
    place: Path | str, answer: str | Exception
) -> None:
    async with talked(place, answer) as (memory, llm):
        made = await make(memory, "s1", "asked")
        before = memory.files.read_text(f"checkpoints/s1/{made.id}.md")
        assert await enrich_all(memory) == 0
        assert memory.files.read_text(f"checkpoints/s1/{made.id}.md") == before
        assert await enrich_all(memory) == 0
        assert len(llm.asked) == 1, "it is asked once"


async def test_a_checkpoint_that_is_gone_does_not_stop_the_others(place: Path | str) -> None:
    async with talked(place, ANSWER) as (memory, _):
        await memory.state.put(ENRICHING, "ckp_0", {"session": "s1"})
        made = await make(memory, "s1", "asked")
        assert await enrich_all(memory) == 1
        assert (await stored.read(memory, made.id)).decisions == (BETTER, QUOTE, SECOND)
        with pytest.raises(NotFound):
            await enrich(memory, "ckp_0")


async def test_a_server_does_it_by_itself_when_a_session_ends(place: Path | str) -> None:
    async with talked(place, ANSWER) as (memory, _), maintain(memory):
        await end_session(memory, "s1")

        async def enriched() -> bool:
            latest = await stored.latest(memory, "s1")
            return latest is not None and latest.decisions == (BETTER, QUOTE, SECOND)

        await eventually(enriched)


async def test_without_an_llm_nothing_waits_for_one(memory: Memory) -> None:
    await say(memory, f"Decision: {FIRST}")
    made = await make(memory, "s1", "asked")
    assert await enrich_all(memory) == 0
    assert not await enrich(memory, made.id)
    assert await memory.state.keys_of(ENRICHING) == []
