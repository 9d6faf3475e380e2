"""An agent loop with its own list of messages, which the memory keeps short."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_server.agent import AgentMemory, ContextLoop
from mcp_server.agent_loop import NOTE, Message
from mcp_server.conversations.sessions import session_turns
from tests.conftest import KEYWORDS_ONLY

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]
WINDOW = 1_000


@pytest.fixture
async def memory(workspace: Path, empty_memory: None) -> AsyncIterator[AgentMemory]:
    async with AgentMemory.open(workspace, project="boat", environ=KEYWORDS_ONLY) as opened:
        yield opened


class Agent:
    """An agent that only notes what it is told."""

    def __init__(self) -> None:
        self.messages: list[Message] = [{"role": "system", "content": "You keep a logbook."}]
        self.handed: list[list[Message]] = []

    def put(self, messages: list[Message]) -> None:
        self.messages = messages
        self.handed.append(list(messages))

    def loop(self, memory: AgentMemory, **options: Any) -> ContextLoop:
        return memory.loop(lambda: self.messages, self.put, **options)

    async def talk(self, loop: ContextLoop, first: int, last: int) -> None:
        """Entries of some 60 tokens each, compacted where the loop says so."""
        for number in range(first, last):
            said = f"Entry {number}: the pump of kind {number} was mended. " * 6
            self.messages.append({"role": "user", "content": said, "mine": number})
            if (await loop.before_response(WINDOW)).needs_compaction:
                await loop.compact()
            self.messages.append({"role": "assistant", "content": f"Noted {number}."})

    def texts(self) -> list[str]:
        return [str(message["content"]) for message in self.messages]


async def test_the_context_stays_within_its_share_and_what_is_recovered_comes_back_as_it_was(
    memory: AgentMemory,
) -> None:
    agent = Agent()
    loop = agent.loop(memory)
    await agent.talk(loop, 0, 14)
    status = await loop.before_response(WINDOW)
    assert status.pct_used < 0.7
    assert agent.handed
    assert any(text.startswith(NOTE) for text in agent.texts())
    turns = await session_turns(memory.memory, loop.session)
    assert [turn.content for turn in turns if turn.role == "agent"] == [f"Noted {number}." for number in range(14)]
    assert sum(turn.role == "user" for turn in turns) == 14
    assert turns[0].content == "You keep a logbook."
    kept = [message for message in agent.messages if "mine" in message]
    assert kept  # what else an agent keeps in a message is still in it
    assert agent.messages[0] == {"role": "system", "content": "You keep a logbook."}

    done = await loop.compact()
    recovered = await memory.recover(done.dropped[0], apply=True)
    assert recovered.content not in agent.texts()
    status = await loop.before_response(WINDOW)
    assert status.needs_compaction
    await loop.compact()
    assert recovered.content in agent.texts()
    order = [turn.content for turn in await session_turns(memory.memory, loop.session)]
    places = [order.index(text) for text in agent.texts() if text in order]
    assert places == sorted(places)
    assert len(order) == 29


async def test_nothing_is_asked_for_while_there_is_room(memory: AgentMemory) -> None:
    agent = Agent()
    loop = agent.loop(memory)
    agent.messages.append({"role": "user", "content": "Hello."})
    before = list(agent.messages)
    status = await loop.before_response(WINDOW)
    assert (status.needs_compaction, status.why) == (False, "")
    assert status.session == loop.session
    done = await loop.compact()
    assert (done.dropped, done.shortened) == ((), ())
    assert agent.messages == before
    assert all(one is two for one, two in zip(agent.messages, before, strict=True))


async def test_another_process_goes_on_with_the_list(memory: AgentMemory) -> None:
    agent = Agent()
    first = agent.loop(memory, session="telegram-7")
    await agent.talk(first, 0, 10)
    done = await first.compact()
    second = agent.loop(memory, session="telegram-7")
    await second.before_response(WINDOW)
    assert len(await session_turns(memory.memory, "telegram-7")) == 21
    await memory.recover(done.dropped[0], apply=True)
    await agent.talk(second, 10, 12)
    assert len(await session_turns(memory.memory, "telegram-7")) == 24  # the last answer is heard with what comes next


async def test_what_stands_around_the_messages_counts_as_the_agent_counts_it(memory: AgentMemory) -> None:
    agent = Agent()

    async def count() -> int:
        return 300 + sum(memory.memory.tokens.count(text) for text in agent.texts())

    loop = agent.loop(memory, get_token_count=count)
    await agent.talk(loop, 0, 9)
    await loop.before_response(WINDOW)
    done = await loop.compact()
    assert done.tokens_after == await count()
    assert done.tokens_after < 750  # the newest entries stay, whatever stands around them


async def test_secrets_are_redacted_and_still_known(memory: AgentMemory) -> None:
    agent = Agent()
    loop = agent.loop(memory)
    agent.messages.append({"role": "user", "content": "The key is sk-ant-api03-" + "Ab1" * 31 + ", keep it."})
    for _ in range(3):
        await loop.before_response(WINDOW)
    turns = await session_turns(memory.memory, loop.session)
    assert len(turns) == 2
    assert "redacted" in turns[1].content


async def test_the_end_records_the_rest_and_closes_the_conversation(memory: AgentMemory) -> None:
    agent = Agent()
    loop = agent.loop(memory)
    agent.messages.append({"role": "user", "content": "Good night."})
    await loop.session_end()
    row = await memory.memory.state.session(loop.session)
    assert row is not None
    assert (row.status, row.turns) == ("closed", 2)
    assert len(memory.memory.cold.of(loop.session)) == 2
    empty = memory.loop(list, agent.put)
    await empty.session_end()
    assert await memory.memory.state.session(empty.session) is None


async def test_the_callbacks_may_be_coroutines(memory: AgentMemory) -> None:
    agent = Agent()

    async def get() -> list[Message]:
        return agent.messages

    async def put(messages: list[Message]) -> None:
        agent.put(messages)

    loop = memory.loop(get, put)
    await agent.talk(loop, 0, 10)
    assert agent.handed
