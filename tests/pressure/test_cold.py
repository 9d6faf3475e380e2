"""What left the live context comes back: asked for, by itself, after the session's end; in the end it goes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.observe import ContextChunk, observe
from mcp_server.conversations.sessions import end_session, session_turns
from mcp_server.errors import NotFound
from mcp_server.pressure.cold import IMMUNE, expire, find_cold, go_cold_again, recover_chunk
from mcp_server.pressure.prune import prune
from mcp_server.recovery.recoverable import recoverable
from mcp_server.relevance.live_set import live_set
from mcp_server.search.search import SearchRequest, search
from tests.conftest import Clock
from tests.pressing import ASKS, SUBJECTS, about, forms, hold, limited, say, talk

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("grown")
async def test_recovering_is_dropping_backwards(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        turns = await session_turns(memory, "s")
        first, *_, last = memory.cold.of("s")
        for record in (first, last):
            before = await live_set(memory, "s")
            looked = await recover_chunk(memory, record.chunk_id, dry_run=True)
            assert (looked.done, looked.record) == (False, record)
            assert await live_set(memory, "s") == before
            back = await recover_chunk(memory, record.chunk_id, dry_run=False)
            assert back.record.content == turns[record.turn - 1].content
            chunk = next(one for one in await live_set(memory, "s") if one.id == record.chunk_id)
            assert (chunk.form, chunk.tokens) == ("whole", record.tokens)
            with pytest.raises(NotFound):
                memory.cold.find(record.chunk_id)
            await go_cold_again(memory, back.record)
            assert await live_set(memory, "s") == before
            assert memory.cold.find(record.chunk_id) == record


@pytest.mark.usefixtures("grown")
async def test_a_lost_state_gives_the_same_live_set(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        before = {chunk.id: (chunk.form, chunk.shown, chunk.tokens) for chunk in await live_set(memory, "s")}
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (workspace / ".local" / name).unlink(missing_ok=True)
    async with open_memory(workspace, limited(1_000_000, auto_recover=0), clock=clock) as again:
        await say(again, "Where were we?")
        after = {chunk.id: (chunk.form, chunk.shown, chunk.tokens) for chunk in await live_set(again, "s")}
        assert {name: after[name] for name in before} == before
        assert len(after) == len(before) + 1


@pytest.mark.usefixtures("grown")
async def test_what_the_talk_returns_to_comes_back_by_itself_and_stays_a_while(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        await prune(memory, "compact", "s", False, ASKS, target=0)
        stood = forms(await live_set(memory, "s"))
        turns = await session_turns(memory, "s")
        gone = {number for number in about(turns, 1) if stood[number] == "cold"}
        assert gone
        heard = await say(memory, "Which winter berth and which mainsail did we want for the Galeb in Split harbour?")
        assert any("came back from cold storage" in note for note in heard.notes)
        chunks = await live_set(memory, "s")
        back = {number for number in gone if forms(chunks)[number] == "whole"}
        assert 1 <= len(back) <= memory.settings.context.auto_recover
        for _ in range(IMMUNE):
            await say(memory, "The tax office asked again about the greenhouse form of our accountant Marko. " * 3)
            stands = forms(await live_set(memory, "s"))
            assert all(stands[number] == "whole" for number in back)
    lines = (workspace / ".local/logs/context/recovery.jsonl").read_text("utf-8").splitlines()
    logged = [json.loads(line) for line in lines]
    assert {line["turn"] for line in logged} >= back
    assert all(line["trigger"] == "automatic" and line["relevance_score"] >= 0.5 for line in logged)


async def test_nothing_comes_back_for_small_talk(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(30_000), clock=clock) as memory:
        await hold(memory, talk(15))
        await prune(memory, "compact", "s", False, ASKS, target=0)
        before = forms(await live_set(memory, "s"))
        for message in ("ok, thanks", "continue", "👍", ""):
            await say(memory, message)
            await say(memory, "Fine.", "agent")
        after = forms(await live_set(memory, "s"))
        assert {number: after[number] for number in before} == before
        await say(memory, "Which winter berth and which mainsail for the Galeb?")
        back = forms(await live_set(memory, "s"))
        assert [number for number in before if back[number] != before[number]]


async def test_cold_chunks_are_found_by_their_words(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        await say(memory, "Read it.", chunks=(ContextChunk("file", "src/oboe_player.py", 700),))
        await hold(memory, talk(16))
        found = await find_cold(memory, "winter berth in Split harbour", "s", 3)
        assert len(found) == 3
        assert all(one.content.startswith(SUBJECTS[1]) for one in found)
        (named,) = [one for one in await find_cold(memory, "oboe_player.py", limit=100) if one.kind == "file"]
        assert named.name == "src/oboe_player.py"
        answer = await search(memory, SearchRequest("winter berth in Split harbour", scope="all"))
        cold = {found.turn: found.chunk_id for found in await find_cold(memory, "winter berth", "s", 99)}
        for hit in answer.hits:
            assert answer.cold_id(hit) == cold.get(hit.passage.turn or 0)
        assert "· cold: recover c" in answer.markdown


@pytest.mark.usefixtures("grown")
async def test_at_its_end_a_session_goes_to_cold_storage_and_comes_back_when_it_goes_on(
    workspace: Path, clock: Clock
) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        before = {chunk.id: chunk.form for chunk in await live_set(memory, "s")}
        context = await compile_context(memory, CompileRequest(session="s"), ASKS)
        await end_session(memory, "s")
        assert await memory.live.of("s") == []
        assert {record.chunk_id for record in memory.cold.of("s")} == set(before)
        closed = await compile_context(memory, CompileRequest(session="s"), ASKS)
        assert _unstamped(closed.text) == _unstamped(context.text)
        record = next(record for record in memory.cold.of("s") if record.form == "cold")
        back = await recover_chunk(memory, record.chunk_id, dry_run=False)
        assert "ended" in back.note
    async with open_memory(workspace, limited(6000, auto_recover=0), clock=clock) as memory:
        await say(memory, "One more thing.")
        after = {chunk.id: chunk.form for chunk in await live_set(memory, "s")}
        assert {name: after[name] for name in before} == before | {record.chunk_id: "whole"}
        assert {one.form for one in memory.cold.of("s")} == {"cold"}


async def test_what_came_back_is_still_protected_when_its_session_ends_and_goes_on(
    workspace: Path, clock: Clock
) -> None:
    async with open_memory(workspace, limited(30_000, auto_recover=0), clock=clock) as memory:
        await hold(memory, talk(8))
        await prune(memory, "compact", "s", False, ASKS, target=0)
        record = next(record for record in memory.cold.of("s") if record.form == "cold")
        await recover_chunk(memory, record.chunk_id, dry_run=False)
        before = {chunk.id: chunk.immune for chunk in await live_set(memory, "s")}
        assert before[record.chunk_id] > 0
        await end_session(memory, "s")
        await say(memory, "One more thing.")
        after = {chunk.id: chunk.immune for chunk in await live_set(memory, "s")}
        assert after[record.chunk_id] == before[record.chunk_id]


def _unstamped(text: str) -> str:
    """A context without the section of the checkpoint: the end of a session makes another one."""
    return re.sub(r"<!-- checkpoint.*?(?=\n\n<!--|\Z)", "", text, flags=re.DOTALL)


@pytest.mark.usefixtures("grown")
async def test_records_go_when_their_time_is_over_and_search_still_has_the_words(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        held = len(memory.cold.of("s"))
        assert await expire(memory) == 0
        clock.forward(days=31)
        assert await expire(memory) == held
        assert await expire(memory) == 0
        assert (await search(memory, SearchRequest("winter berth", scope="all"))).hits


async def test_what_expired_does_not_come_back_by_itself_and_nobody_stumbles_over_it(
    workspace: Path, clock: Clock
) -> None:
    async with open_memory(workspace, limited(30_000), clock=clock) as memory:
        await hold(memory, talk(16))
        await catch_up(memory)
        await prune(memory, "compact", "s", False, ASKS, target=0)
        gone = {record.turn for record in memory.cold.of("s")}
        memory.cold.remove_all(memory.cold.of("s"))
        heard = await say(memory, "Which winter berth and which mainsail for the Galeb?")
        assert not [note for note in heard.notes if "came back" in note or "failed" in note]
        stands = forms(await live_set(memory, "s"))
        assert {stands[number] for number in gone} == {"cold"}
        assert await recoverable(memory, session="s") == []


async def test_what_comes_back_among_equals_is_the_newest(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(30_000, auto_recover=2), clock=clock) as memory:
        same = [f"{SUBJECTS[1]}." for _ in range(6)]
        for place, content in enumerate([*same, *(turn.content for turn in talk(16)[8:])]):
            await say(memory, content, turn_id=f"n{place}")
        await catch_up(memory)
        await prune(memory, "compact", "s", False, ASKS, target=0)
        clock.forward(hours=2)
        await say(memory, "Which winter berth and which mainsail for the Galeb, Marko?")
        stands = forms(await live_set(memory, "s"))
        assert [number for number in range(1, 7) if stands[number] == "whole"] == [5, 6]


@pytest.mark.usefixtures("grown")
async def test_of_a_conversation_that_is_no_longer_there_the_text_still_comes(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        record = memory.cold.of("s")[0]
        lost = replace(record, session_id="of another time", chunk_id="c00000000001")
        memory.cold.put_all([lost])
        shown = await recover_chunk(memory, lost.chunk_id, dry_run=True)
        assert (shown.record.content, shown.tokens_added) == (record.content, 0)
        assert "no longer exists" in shown.note


@pytest.mark.usefixtures("grown")
async def test_in_replace_the_context_shows_the_live_set_and_names_what_went(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        compiled = await compile_context(memory, CompileRequest(message="unheard of", session="s", budget=4096), ASKS)
        stands = forms(await live_set(memory, "s"))
        for turn in await session_turns(memory, "s"):
            assert (f"{turn.role}: {turn.content}" in compiled.text) == (stands[turn.number] == "whole")
        newest = [record for record in memory.cold.of("s") if record.form == "cold"][-1]
        assert f"- {newest.chunk_id} " in compiled.text
        assert "chunks more (recover lists them)" in compiled.text
        slot = next(slot for slot in compiled.receipt.slots if slot.name == "dropped")
        assert 0 < slot.tokens <= 200
        listed = [one.id for one in compiled.receipt.considered if one.slot == "dropped"]
        assert newest.chunk_id in listed


async def test_the_last_thing_the_user_said_is_always_shown(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1000), clock=clock) as memory:
        await say(memory, "The question is: " + " ".join(f"clause {n} stands." for n in range(300)))
        for number in range(8):
            await say(memory, f"Step {number} is done. " * 12, "agent")
        compiled = await compile_context(memory, CompileRequest(session="s", budget=8000), ASKS)
        assert "clause 299 stands" in compiled.text


async def test_the_mirror_of_a_client_says_that_it_is_one(workspace: Path, clock: Clock) -> None:
    async with open_memory(workspace, limited(1500), clock=clock) as memory:
        notes: list[str] = []
        for turn in talk(16):
            notes += (await observe(memory, replace(turn, delivery="add"), ASKS)).notes
        assert any("our mirror" in note and "/compact" in note for note in notes)
        compiled = await compile_context(memory, CompileRequest(session="s"), ASKS)
        assert "<!-- dropped" not in compiled.text
        record = memory.cold.of("s")[0]
        assert "own window" in (await recover_chunk(memory, record.chunk_id, dry_run=True)).note
