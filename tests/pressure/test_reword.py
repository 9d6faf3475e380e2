"""An LLM words the summaries of a compaction when there is time; nothing waits for it, and nothing is lost by it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.agent_loop import NOTE, Message, aligned, face, mark, mirrored, note_of, said
from mcp_server.app import maintain, open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.sessions import end_session, session_turns
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.model import Turn
from mcp_server.pressure.cold import recover_chunk
from mcp_server.pressure.reword import REWORDING, reword_all
from mcp_server.relevance.chunks import LiveChunk, chunks_of
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
        told = {turn.number: turn.content for turn in await session_turns(memory, "s")}
        assert before
        for number, chunk in before.items():
            assert chunk.tokens <= 60
            assert memory.cold.find(number, "s").content == told[chunk.turn]
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


AT = datetime(2026, 2, 16, tzinfo=UTC)
Chunks = dict[int, dict[int, LiveChunk]]


def count(text: str) -> int:
    return len(text.split())


def heard(messages: Sequence[Message]) -> tuple[list[Turn], Chunks]:
    """The turns that the messages become, all live and whole."""
    turns: list[Turn] = []
    for message in messages:
        if one := said(message):
            turns.append(Turn(len(turns) + 1, one.role, one.content, AT, tool_calls=one.tool_calls))
    return turns, {turn.number: {c.part: c for c in chunks_of("s", turn, count)} for turn in turns}


def known(messages: Sequence[Message], turns: list[Turn], chunks: Chunks, handed: Mapping[str, int]) -> Any:
    return aligned(messages, turns, chunks, str, handed)


def rendered(
    messages: Sequence[Message], turns: list[Turn], chunks: Chunks, originals: Mapping[int, Message] | None = None
) -> list[Message]:
    numbers = known(messages, turns, chunks, {})
    by_number = {turn.number: turn for turn in turns}
    return mirrored(messages, numbers, by_number, chunks, originals or {}, {}, "")


def gone(chunks: Chunks, *turns: int) -> Chunks:
    return {
        number: {part: replace(one, form="cold") if number in turns else one for part, one in parts.items()}
        for number, parts in chunks.items()
    }


TALK: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "ok"},
    {"role": "assistant", "content": "Which boat?", "id": 7},
    {"role": "user", "content": "ok"},
]


def test_whole_messages_are_returned_unchanged_and_equal_messages_map_to_turns_in_order() -> None:
    turns, chunks = heard(TALK)
    assert all(one is two for one, two in zip(rendered(TALK, turns, chunks), TALK, strict=True))
    assert known(TALK, turns, chunks, {}) == [1, 2, 3, 4]
    assert known([*TALK, {"role": "user", "content": "ok"}], turns, chunks, {}) == [1, 2, 3, 4, None]
    assert known(TALK[2:], turns, chunks, {}) == [3, 4]


def test_what_is_cold_leaves_and_comes_back_in_its_place() -> None:
    turns, chunks = heard(TALK)
    short = rendered(TALK, turns, gone(chunks, 3))
    assert short == [TALK[0], TALK[1], TALK[3]]
    assert rendered(short, turns, chunks, {3: TALK[2]}) == TALK


def test_a_summary_stands_in_the_message_and_is_no_new_one() -> None:
    turns, chunks = heard(TALK)
    chunks[3] = {0: replace(chunks[3][0], form="summary", shown="Boat?")}
    short = rendered(TALK, turns, chunks)
    assert short[2] == {"role": "assistant", "content": "Boat?", "id": 7}
    assert known(short, turns, chunks, {}) == [1, 2, 3, 4]


def test_a_short_form_that_was_handed_out_is_still_known_when_it_is_whole_again() -> None:
    turns, chunks = heard(TALK)
    listed = [TALK[0], {"role": "assistant", "content": "Boat?"}]
    handed = {mark("Boat?"): 3}
    numbers = known(listed, turns, chunks, handed)
    assert numbers == [1, 3]
    made = mirrored(listed, numbers, {turn.number: turn for turn in turns}, chunks, {}, handed, "")
    assert made[1]["content"] == "Which boat?"


def test_an_answer_to_a_call_and_a_call_never_leave_alone() -> None:
    talk: list[Message] = [
        {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "a long file", "name": "read", "tool_call_id": "1"},
        {"role": "assistant", "content": [{"type": "text", "text": "See"}, {"type": "image", "data": "…"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "2"}]},
    ]
    turns, chunks = heard(talk)
    assert [turn.number for turn in turns] == [1, 2, 3]
    cold = gone(chunks, 1, 2, 3)
    short = rendered(talk, turns, cold)
    assert [set(one) for one in short] == [set(one) for one in talk]
    assert "recover c" in short[0]["content"]
    assert "recover c" in short[1]["content"]
    assert short[2]["content"][1] == {"type": "image", "data": "…"}
    assert short[3] is talk[3]
    assert known(short, turns, cold, {}) == [1, 2, 3, None]


def test_a_tool_in_one_line_says_how_it_comes_back() -> None:
    turns, chunks = heard([{"role": "tool", "content": "a long file", "name": "read"}])
    chunks[1] = {1: replace(chunks[1][1], form="one line")}
    assert f"recover {chunks[1][1].id}" in face(turns[0], chunks[1]).text


def test_the_note_names_the_newest_within_its_tokens_and_is_never_recorded() -> None:
    turns, chunks = heard([{"role": "user", "content": f"word {number}"} for number in range(20)])
    by_number = {turn.number: turn for turn in turns}
    cold = [replace(parts[0], form="cold") for parts in chunks.values()]
    note = note_of(by_number, cold, 60, count)
    assert count(note) <= 60
    assert "word 19" in note
    assert "more" in note
    assert note_of(by_number, [], 60, count) == ""
    assert note_of(by_number, cold, 3, count) == ""
    assert said({"role": "system", "content": note}) is None
    made = mirrored([{"role": "system", "content": "Be brief."}], [None], by_number, chunks, {}, {}, note)
    assert [one["content"].startswith(NOTE) for one in made] == [False, True]
    assert mirrored(made, [None, None], by_number, chunks, {}, {}, "") == made[:1]


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.sampled_from("ab")), min_size=1))
def test_a_list_that_only_grows_is_heard_once(talk: list[tuple[str, str]]) -> None:
    messages: list[Message] = [{"role": role, "content": words} for role, words in talk]
    turns, chunks = heard(messages)
    assert known(messages, turns, chunks, {}) == [turn.number for turn in turns]
    assert rendered(messages, turns, chunks) == messages
