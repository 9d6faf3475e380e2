"""Clarity as messages come in: counted once, the same again from the transcript, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations.imports import ImportedSession, ImportedTurn, record_session
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session, require, session_turns
from mcp_server.errors import Invalid, NotFound
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.jobs.duties import keep_house
from mcp_server.knowledge.anchor import anchor
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller, ToolCall
from mcp_server.relevance import clarity
from mcp_server.relevance.clarity import view
from mcp_server.relevance.clarity_scores import Tracker
from tests.conftest import KEYWORDS_ONLY, Clock

pytestmark = pytest.mark.anyio
ASKS = Caller(explicit_sessions=True)


async def said(memory: Memory, content: str, role: str = "user", session: str = "s", **more: object) -> None:
    await observe(memory, replace(NewTurn(role, content, session), **more), ASKS)  # type: ignore[arg-type]


async def live(memory: Memory, session: str = "s") -> Tracker:
    """The counts as they are stored."""
    stored = await memory.state.get(clarity.NAMESPACE, f"{clarity.STATE}:{session}")
    return Tracker.from_dict(stored)


async def replayed(memory: Memory, session: str = "s") -> Tracker:
    """The counts as the transcript alone gives them."""
    tracker = Tracker()
    for turn in await session_turns(memory, session):
        tracker.take(turn)
    return tracker


words = st.sampled_from(
    [
        "ClaraCore", "focus-engine", "the oven", "SOUL.md", "`web_search`", "gardens", "ok thanks", "", "src/app.py",
        "sk-ant-REDACTED", "## heading\n> [tool:x] y → z", "<!-- {} -->", "čamac\u202e", "\x00\ud800",
        "http://x.org/FooBar", "\\## x", "😀", "word\r\nnext",
    ]
)  # fmt: skip
calls = st.lists(
    st.builds(
        ToolCall,
        name=st.sampled_from(["Bash", "web_search", "we ird"]),
        summary=words,
        files=st.lists(st.sampled_from(["src/app.py", "a,b.py", "ClaraCore", "über.md"]), max_size=2).map(tuple),
    ),
    max_size=2,
).map(tuple)
turns = st.lists(
    st.tuples(
        st.sampled_from(["user", "user", "agent", "system"]), st.lists(words, max_size=4).map(" ".join), calls,
        st.sampled_from(["", "anchor", "unanchor", "end", "reopen"]),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@given(turns)
@settings(max_examples=10)
def test_a_tracker_replayed_from_the_transcript_equals_the_live_one(
    place: Path | str, said_in_turn: list[tuple[str, str, tuple[ToolCall, ...], str]]
) -> None:
    """Whatever is said, with secrets and marks in it, whatever is anchored in between, and over restarts."""

    async def run() -> None:
        environ, clock = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_GIT__AUTO_COMMIT": "false"}, Clock()
        opened = open_memory(place, environ, clock=clock)
        memory = await opened.__aenter__()
        session = memory.new_id()
        try:
            for role, text, made, then in said_in_turn:
                clock.forward(seconds=1, microseconds=1999)
                await said(memory, text, role, session, tool_calls=made)
                if then == "anchor":
                    await anchor(memory, "oven", True)
                elif then == "unanchor" and memory.files.exists("anchors.yaml"):
                    is_held = "oven" in memory.files.read_text("anchors.yaml")
                    with nullcontext() if is_held else pytest.raises(NotFound):
                        await anchor(memory, "oven", False)
                elif then == "end":
                    await end_session(memory, session)
                elif then == "reopen":
                    await opened.__aexit__(None, None, None)
                    opened = open_memory(place, environ, clock=clock)
                    memory = await opened.__aenter__()
            counted, again = await live(memory, session), await replayed(memory, session)
            assert counted == again
            assert list(counted.items) == list(again.items)
            assert list(counted.candidates) == list(again.candidates)
            await clarity.forget(memory, session)
            assert (await clarity.judged(memory, session)).counts.items.keys() >= again.items.keys()
            assert (await clarity.judged(memory, session)).counts.exchange == again.exchange
        finally:
            await opened.__aexit__(None, None, None)

    anyio.run(run)


async def test_the_state_has_the_seeds_shape(memory: Memory) -> None:
    await said(memory, "ClaraCore is down")
    stored = await memory.state.get("clarity", "clarity:relevance_state:s")
    (item,) = stored["items"]
    assert item["id"] == "claracore"
    assert {"mentionCount", "referenceCount", "lastMentionTurn", "anchored", "createdAt"} <= item.keys()
    assert {"currentTurn", "lastPersistAt", "items"} <= stored.keys()


async def test_turns_that_were_recorded_and_not_counted_are_counted_with_the_next(memory: Memory) -> None:
    await said(memory, "ClaraCore")
    await said(memory, "ClaraCore again")
    await clarity.forget(memory, "s")  # as if the process had died between the transcript and the state
    assert (await clarity.judged(memory, "s")).counts.items["claracore"].mentions == 2
    await said(memory, "ClaraCore once more")
    assert (await live(memory)).items["claracore"].mentions == 3


async def test_a_damaged_state_is_counted_anew(memory: Memory) -> None:
    await said(memory, "ClaraCore")
    await memory.state.put(clarity.NAMESPACE, f"{clarity.STATE}:s", {"currentTurn": "x"})
    await said(memory, "ClaraCore again")
    assert (await live(memory)).items["claracore"].mentions == 2


async def test_a_long_import_is_counted_once_and_the_same_each_time(memory: Memory) -> None:
    turns = tuple(
        ImportedTurn("agent" if number % 2 else "user", f"ClaraCore and NewThing{number % 7}", memory.clock())
        for number in range(clarity.WORTH_KEEPING + 20)
    )
    await record_session(memory, ImportedSession("old", turns, "import:test"))
    assert await memory.state.keys_of(clarity.NAMESPACE) == []
    before = (await clarity.judged(memory, "old")).verdicts
    assert await memory.state.keys_of(clarity.NAMESPACE) == [f"{clarity.STATE}:old"]
    assert (await clarity.judged(memory, "old")).verdicts == before
    await clarity.forget(memory, "old")
    first = await clarity.block_of(memory, await require(memory, "old"))
    assert await memory.state.keys_of(clarity.NAMESPACE) == [f"{clarity.STATE}:old"]
    assert await clarity.block_of(memory, await require(memory, "old")) == first
    await said(memory, "ClaraCore goes on", session="old")
    assert (await live(memory, "old")).items["claracore"].mentions == 61


async def test_the_counts_of_a_session_that_ended_long_ago_go_and_come_again(memory: Memory, clock: Clock) -> None:
    await said(memory, "ClaraCore")
    await said(memory, "ClaraCore", session="open")
    await memory.state.put(clarity.NAMESPACE, f"{clarity.PRUNED}:s", {"claracore": 1})
    await end_session(memory, "s")
    kept = [f"{clarity.PRUNED}:s", f"{clarity.STATE}:open", f"{clarity.STATE}:s"]
    await keep_house(memory)
    assert sorted(await memory.state.keys_of(clarity.NAMESPACE)) == kept
    clock.forward(days=31)
    await keep_house(memory)
    assert await memory.state.keys_of(clarity.NAMESPACE) == [f"{clarity.STATE}:open"]
    assert (await clarity.judged(memory, "s")).counts.items["claracore"].mentions == 1


async def test_what_was_forgotten_is_counted_no_more(memory: Memory) -> None:
    await said(memory, "the secret plan is called zebra-tango")
    await said(memory, "hello ClaraCore")
    assert "zebra-tango" in (await live(memory)).items
    await forget(memory, ForgetTarget(text="the secret plan is called zebra-tango"))
    assert set((await clarity.judged(memory, "s")).counts.items) == {"claracore"}
    assert "zebra" not in json.dumps(await memory.state.entries(clarity.NAMESPACE))


async def test_switched_off_nothing_is_counted_and_the_block_is_empty(
    place: Path | str, clock: Clock, new_id: Callable[[], str]
) -> None:
    environ = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_CLARITY__ENABLED": "false"}
    async with open_memory(place, environ, clock=clock, new_id=new_id) as memory:
        await said(memory, "ClaraCore")
        assert await memory.state.entries(clarity.NAMESPACE) == {}
        assert await clarity.block_of(memory, await require(memory, "s")) == ()


async def test_pruning_takes_an_item_out_of_the_block_until_it_is_mentioned_or_anchored(memory: Memory) -> None:
    for name in ("ClaraCore", "focus-engine"):
        await said(memory, name)
    for number in range(20):
        await said(memory, f"NewThing{number} {number}")
    before = await live(memory)
    dry = await clarity.prune(memory, "s", dry_run=True)
    assert await live(memory) == before
    assert await clarity.prune(memory, "s", dry_run=True) == dry, "nothing was removed"
    pruned = await clarity.prune(memory, "s", dry_run=False)
    assert [one.item.id for one in pruned.gone] == [one.item.id for one in dry.gone]
    gone = {one.item.id for one in pruned.gone}
    assert {"claracore", "focus-engine"} <= gone
    assert (await live(memory)).items["claracore"].mentions == 1
    await said(memory, "NewThing19 with web_search", "agent")
    await said(memory, "so ClaraCore again")
    await anchor(memory, "focus-engine", True)
    shown = {item.id for item in await clarity.block_of(memory, await require(memory, "s"))}
    assert {"claracore", "focus-engine"} <= shown
    assert not (gone - {"claracore", "focus-engine"}) & shown
    left = {one.item.id for one in (await clarity.prune(memory, "s", dry_run=True)).gone}
    assert not left & gone


async def test_a_compaction_of_the_clients_own_prunes(memory: Memory) -> None:
    await said(memory, "ClaraCore and focus-engine")
    for number in range(15):
        await said(memory, f"so what about {'number' if number % 4 == 0 else 'that'} {number}?")
    assert clarity.stats_of(await clarity.judged(memory, "s"))["pruned"] == 0
    await said(memory, "The client compacted its window.", "system", name=COMPACTION)
    assert clarity.stats_of(await clarity.judged(memory, "s"))["pruned"] == 2
    await said(memory, "ClaraCore and focus-engine explained", "agent")
    assert [item.id for item in await clarity.block_of(memory, await require(memory, "s"))] == ["number"]


async def test_identity_files_and_anchors_are_the_essential_tier(
    place: Path | str, clock: Clock, new_id: Callable[[], str]
) -> None:
    environ = {**KEYWORDS_ONLY, "CONTEXT_MANAGER_CLARITY__STRICT_MODE": "true"}
    async with open_memory(place, environ, clock=clock, new_id=new_id) as memory:
        await said(memory, "read SOUL.md about ClaraCore and focus-engine")
        await anchor(memory, "focus-engine", True)
        for number in range(30):
            await said(memory, f"so what about number {number}?")
        verdicts = {one.item.id: one for one in (await clarity.judged(memory, "s")).verdicts}
    assert (verdicts["soul.md"].keep, verdicts["soul.md"].why) == (True, "essential")
    assert (verdicts["focus-engine"].keep, verdicts["focus-engine"].why) == (True, "anchored")
    assert not verdicts["claracore"].keep


@pytest.mark.both_engines
async def test_the_block_is_in_the_compiled_text_and_in_its_receipt_and_within_its_tokens(memory: Memory) -> None:
    await said(memory, "ClaraCore")
    await said(memory, "ClaraCore " + " ".join(f"NewThing{number} new_tool_{number}" for number in range(18)))
    compiled = await compile_context(memory, CompileRequest(session="s"), ASKS)
    assert "[CLARITY CONTEXT]" in compiled.text
    shown_block = compiled.text[compiled.text.index("[CLARITY CONTEXT]") :].split("\n\n")[0]
    assert 0 < memory.tokens.count(shown_block) <= 150
    assert (await view(memory, "status", "s")).data["block"] == shown_block
    shown = [one for one in compiled.receipt.considered if one.slot == "clarity"]
    assert shown[0].id == "clarity:claracore"
    assert abs(sum(shown[0].relevance.values()) - (shown[0].score or 0)) < 1e-6
    assert any(one.reason == "no room in the block" for one in shown)
    small = await compile_context(memory, CompileRequest(session="s", budget=256), ASKS)
    assert small.tokens <= 256


async def test_a_failing_tracker_costs_no_turn(memory: Memory) -> None:
    await said(memory, "ClaraCore")
    memory.files.write_bytes_atomic("anchors.yaml", b"\xff\xfe not utf-8")
    await said(memory, "still here")
    assert [turn.content for turn in await session_turns(memory, "s")] == ["ClaraCore", "still here"]


async def test_every_view_says_something_true_of_the_session_last_heard_of(memory: Memory, clock: Clock) -> None:
    with pytest.raises(NotFound, match="no conversation yet"):
        await view(memory, "scores")
    await said(memory, "ClaraCore and focus-engine")
    clock.forward(minutes=1)
    await said(memory, "another | talk about GreenHouse", session="t")
    assert (await view(memory, "status")).session == "t"
    scores = await view(memory, "scores", "s")
    assert [row["id"] for row in scores.data["scores"]] == ["claracore", "focus-engine"]
    assert all(abs(sum(row["terms"].values()) - row["score"]) < 1e-6 for row in scores.data["scores"])
    assert "claracore" in scores.markdown
    assert (await view(memory, "stats", "s")).data["items"] == 2
    assert json.loads((await view(memory, "state", "s")).markdown)["currentTurn"] == 1
    assert json.loads((await view(memory, "config")).markdown)["pruning"]["pruneThreshold"] == 8
    with pytest.raises(Invalid, match="is not one of status, state"):
        await view(memory, "weather")
    with pytest.raises(NotFound):
        await view(memory, "scores", "nowhere")
