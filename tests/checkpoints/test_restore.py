"""Going back to a checkpoint: what comes back, what stays, what somebody else did meanwhile, and forward again."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_server.app import catch_up, open_memory
from mcp_server.checkpoints import stored
from mcp_server.checkpoints.checkpoint import make
from mcp_server.checkpoints.document import Checkpoint, render
from mcp_server.checkpoints.restore import diff_text, finish
from mcp_server.context.compile import CompileRequest, compile_context
from mcp_server.conversations import sessions
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.forgetting.forget import forget
from mcp_server.forgetting.target import ForgetTarget
from mcp_server.knowledge.anchor import anchor, anchors
from mcp_server.knowledge.notes import notes_of, outcome_of
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller
from mcp_server.recovery.recover import recover
from mcp_server.recovery.recoverable import recoverable
from mcp_server.relevance import clarity
from mcp_server.relevance.live_set import live_set
from mcp_server.status.doctor import examine
from mcp_server.storage.journal import RecoveryIntent, RecoveryIntents
from tests.conftest import Clock
from tests.gitting import git
from tests.pressing import SMALL, grow

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]

USER = Caller(source="cli")
AGENT = Caller(source="tool")
ANA, MARKO = "knowledge/people/ana.md", "knowledge/people/marko.md"


async def say(memory: Memory, *said: str, delivery: str = "replace") -> None:
    for content in said:
        await observe(memory, NewTurn("user", content, "s", delivery=delivery), USER)


async def live(memory: Memory) -> list[tuple[int, str]]:
    return [(chunk.turn, chunk.form) for chunk in await live_set(memory, "s")]


def text(memory: Memory, path: str) -> str | None:
    return memory.files.text_or_none(path)


@pytest.fixture
async def made(memory: Memory) -> Checkpoint:
    """A checkpoint after two turns, and another state of everything after four."""
    memory.files.write_atomic(ANA, "Ana keeps the berth.\n")
    await say(memory, "ClaraCore pays for the berth.", "Decision: Paint the hull in green.")
    await anchor(memory, "ClaraCore", True, "it pays")
    made = await make(memory, "s", "asked", "before the journey")
    memory.files.write_atomic(ANA, "Ana has left.\n")
    memory.files.write_atomic(MARKO, "Marko is new.\n")
    await say(memory, "The journey went to Vis.", "Decision: Sell the old mainsail.")
    await anchor(memory, "Vis", True)
    return made


async def decisions(memory: Memory) -> tuple[str, ...]:
    return (await outcome_of(memory, await notes_of(memory, "s"))).decisions


async def test_without_being_asked_for_the_knowledge_stays(memory: Memory, made: Checkpoint) -> None:
    shown = await recover(memory, made.id, USER)
    assert shown.diff == "anchors taken away: vis\nno longer live: 2 chunks"
    assert not shown.applied
    done = await recover(memory, made.id, USER, apply=True)
    assert [one.item for one in anchors(memory)] == ["claracore"]
    assert (text(memory, ANA), text(memory, MARKO)) == ("Ana has left.\n", "Marko is new.\n")
    assert await live(memory) == [(1, "whole"), (2, "whole"), (3, "cold"), (4, "cold")]
    assert done.paths == ("anchors.yaml",)
    assert f"undo: recover {done.undo}" in done.markdown
    assert done.undo
    undone = await recover(memory, done.undo, USER, apply=True)
    assert [one.item for one in anchors(memory)] == ["claracore", "vis"]
    assert await live(memory) == [(number, "whole") for number in (1, 2, 3, 4)]
    assert undone.undo


async def test_it_is_seen_as_of_then_until_the_next_message(memory: Memory, made: Checkpoint) -> None:
    assert await decisions(memory) == ("Paint the hull in green.", "Sell the old mainsail.")
    await recover(memory, made.id, USER, apply=True)
    compiled = await compile_context(memory, CompileRequest(session="s"), USER)
    assert compiled.inputs.as_of == 2
    assert compiled.inputs.message == "Decision: Paint the hull in green."
    assert "Vis" not in compiled.text
    assert (await clarity.judged(memory, "s")).counts.as_dict(memory.clock())["lastTurnNumber"] == 2
    own = await make(memory, "s", "asked")
    assert (own.turn, own.decisions) == (2, ("Paint the hull in green.",))
    await say(memory, "And what about the mainsail?")
    compiled = await compile_context(memory, CompileRequest(session="s"), USER)
    assert compiled.inputs.as_of == 5
    assert [turn.number for turn in compiled.inputs.turns] == [1, 2, 5]
    assert await decisions(memory) == ("Paint the hull in green.",)
    assert (await clarity.judged(memory, "s")).counts.as_dict(memory.clock())["lastTurnNumber"] == 5
    assert len(await sessions.session_turns(memory, "s")) == 5, "the conversation itself is whole"


async def test_where_the_client_keeps_its_window_later_turns_are_hidden_too(memory: Memory) -> None:
    await say(memory, "The harbour of Vis has a crane.", delivery="add")
    await observe(memory, NewTurn("system", "Summary: a crane in Vis.", "s", name=COMPACTION), USER)
    await say(memory, "What does the crane in Vis cost?", delivery="add")
    made = await make(memory, "s", "asked")
    await observe(memory, NewTurn("system", "Summary: it costs.", "s", name=COMPACTION), USER)
    await say(memory, "And what does the crane in Vis weigh?", delivery="add")
    await catch_up(memory)
    await recover(memory, made.id, USER, apply=True)
    compiled = await compile_context(memory, CompileRequest(session="s"), USER)
    assert (compiled.inputs.as_of, compiled.inputs.in_window) == (3, 2)
    assert compiled.inputs.message == "What does the crane in Vis cost?"
    assert "weigh" not in compiled.text


@pytest.mark.both_engines
async def test_going_back_twice_and_forward_twice_is_as_if_nothing_was(memory: Memory, made: Checkpoint) -> None:
    second = await make(memory, "s", "asked")
    await say(memory, "And now to Hvar.")
    now = await live(memory)
    back = await recover(memory, second.id, USER, apply=True, knowledge=True)
    assert back.undo
    further = await recover(memory, made.id, USER, apply=True, knowledge=True)
    assert further.undo
    assert (text(memory, ANA), text(memory, MARKO)) == ("Ana keeps the berth.\n", None)
    await recover(memory, further.undo, USER, apply=True)
    compiled = await compile_context(memory, CompileRequest(session="s"), USER)
    assert compiled.inputs.as_of == 4, "the undo of the second goes back to what the first had made"
    await recover(memory, back.undo, USER, apply=True)
    assert (await compile_context(memory, CompileRequest(session="s"), USER)).inputs.as_of == 5
    assert await live(memory) == now
    assert text(memory, MARKO) == "Marko is new.\n"


async def test_chunks_that_had_left_come_back_as_they_stood(place: Path | str, clock: Clock) -> None:
    async with open_memory(place, SMALL, clock=clock) as memory:
        await grow(memory, turns=9)
        before = await live_set(memory, "s")
        assert {"whole", "cold"} <= {chunk.form for chunk in before}
        made = await make(memory, "s", "asked")
        await grow(memory, turns=8)
        back = await recover(memory, made.id, USER, apply=True)
        after = await live_set(memory, "s")
        assert after[: len(before)] == before
        assert {chunk.form for chunk in after[len(before) :]} == {"cold"}
        records = {record.chunk_id: record for record in memory.cold.of("s")}
        for chunk in after:
            assert (chunk.id in records) == (chunk.form != "whole")
            assert chunk.form == "whole" or records[chunk.id].form == chunk.form
        assert back.undo
        await recover(memory, back.undo, USER, apply=True)


async def test_a_record_that_has_expired_is_made_again_from_the_conversation(place: Path | str, clock: Clock) -> None:
    async with open_memory(place, SMALL, clock=clock) as memory:
        said = await grow(memory, turns=9)
        made = await make(memory, "s", "asked")
        memory.cold.remove_all(memory.cold.of("s"))
        await recover(memory, made.id, USER, apply=True)
        records = {record.turn: record.content for record in memory.cold.of("s")}
        assert records
        assert all(said[turn - 1] == content for turn, content in records.items())


async def test_an_agent_leaves_the_users_own_files_alone_and_says_so(memory: Memory) -> None:
    memory.files.write_atomic("knowledge/identity/USER.md", "Lena sails.\n")
    memory.files.write_atomic(ANA, "Ana keeps the berth.\n")
    await say(memory, "Hello boat")
    made = await make(memory, "s", "asked")
    memory.files.write_atomic("knowledge/identity/USER.md", "Lena rows.\n")
    memory.files.write_atomic(ANA, "Ana has left.\n")
    shown = await recover(memory, made.id, AGENT, knowledge=True)
    assert "USER.md" not in shown.diff
    done = await recover(memory, made.id, AGENT, apply=True, knowledge=True)
    assert "knowledge/identity/USER.md stays as it is; it is for the user's own hand" in done.markdown
    assert text(memory, "knowledge/identity/USER.md") == "Lena rows.\n"
    assert text(memory, ANA) == "Ana keeps the berth.\n"
    await recover(memory, made.id, USER, apply=True, knowledge=True)
    assert text(memory, "knowledge/identity/USER.md") == "Lena sails.\n"


@pytest.mark.folder_only
async def test_nothing_that_was_forgotten_comes_back(memory: Memory, workspace: Path) -> None:
    fact = "the code of the boat house is nine seven three zephyr"
    memory.files.write_atomic(ANA, f"Ana keeps the berth.\n\nAna knows that {fact}.\n")
    await say(memory, "Hello boat")
    made = await make(memory, "s", "asked")
    memory.files.write_atomic(ANA, "Ana has left.\n")
    await forget(memory, ForgetTarget(text=fact))
    assert "zephyr" not in (await recover(memory, made.id, USER, knowledge=True)).markdown
    assert "zephyr" not in git(workspace, "show", f"refs/memory/checkpoints/{made.id}:{ANA}")
    await recover(memory, made.id, USER, apply=True, knowledge=True)
    back = text(memory, ANA)
    assert back
    assert "Ana keeps the berth." in back
    assert "zephyr" not in back


async def test_a_file_with_a_secret_now_is_left_alone(memory: Memory) -> None:
    await say(memory, "Hello boat")
    memory.files.write_atomic(ANA, "Ana keeps the berth.\n")
    made = await make(memory, "s", "asked")
    assert ANA not in (await recover(memory, made.id, USER, knowledge=True)).diff
    secret = "key: sk-ant-api03-" + "Ab3dEf6hIj" * 9 + "\n"
    memory.files.write_atomic(ANA, secret)
    done = await recover(memory, made.id, USER, apply=True, knowledge=True)
    assert text(memory, ANA) == secret, "what cannot be kept for the undo is not replaced"
    assert f"{ANA} stays as it is; its undo could not bring it back, it holds a secret" in done.markdown
    assert done.diff == "Nothing was changed."


async def interrupted(memory: Memory, made: Checkpoint) -> str:
    """A recovery with knowledge that was cut off as soon as its intent was on disk; returns its undo."""
    row = await sessions.require(memory, "s")
    own = await make(memory, "s", "recovery")
    own_state = {**(own.state or {}), "recovery": {"of": made.id, "knowledge": True}}
    await stored.rewrite(memory, own, replace(own, state=own_state))
    RecoveryIntents(memory.files).write(RecoveryIntent(made.id, own.id, "s", row.turns, True))
    return own.id


async def test_what_is_said_and_written_after_a_crash_is_not_lost_when_it_is_carried_on(
    memory: Memory, made: Checkpoint
) -> None:
    undo = await interrupted(memory, made)
    assert any("interrupted" in check.detail for check in await examine(memory))
    memory.files.write_atomic(MARKO, "Marko was written to after the crash.\n")
    await say(memory, "Said after the crash.")
    assert await finish(memory) == 1
    assert await finish(memory) == 0
    assert text(memory, ANA) == "Ana keeps the berth.\n"
    assert text(memory, MARKO) == "Marko was written to after the crash.\n"
    assert await live(memory) == [(1, "whole"), (2, "whole"), (3, "cold"), (4, "cold"), (5, "whole")]
    assert (await compile_context(memory, CompileRequest(session="s"), USER)).inputs.as_of == 5
    await recover(memory, undo, USER, apply=True)
    assert text(memory, ANA) == "Ana has left.\n"


async def test_an_unfinished_recovery_is_finished_before_the_next_one(memory: Memory, made: Checkpoint) -> None:
    undo = await interrupted(memory, made)
    await recover(memory, undo, USER)
    assert text(memory, ANA) == "Ana keeps the berth.\n"


async def test_one_whose_checkpoint_was_deleted_is_given_up(memory: Memory, made: Checkpoint) -> None:
    await interrupted(memory, made)
    memory.files.remove(f"checkpoints/s/{made.id}.md")
    assert await finish(memory) == 0
    assert RecoveryIntents(memory.files).all() == []
    assert text(memory, ANA) == "Ana has left.\n"


@pytest.mark.folder_only
async def test_one_whose_knowledge_is_not_there_is_told_and_tried_again(
    memory: Memory, workspace: Path, made: Checkpoint
) -> None:
    await interrupted(memory, made)
    ref = workspace / ".git/refs/memory/checkpoints" / made.id
    aside = workspace / "aside"
    shutil.move(ref, aside)
    assert await finish(memory) == 0
    assert any("interrupted" in check.detail for check in await examine(memory))
    shutil.move(aside, ref)
    assert await finish(memory) == 1


@pytest.mark.folder_only
async def test_knowledge_that_is_not_on_this_machine_is_said_and_the_rest_comes_back(
    memory: Memory, workspace: Path, made: Checkpoint
) -> None:
    git(workspace, "update-ref", "-d", f"refs/memory/checkpoints/{made.id}")  # as a clone has it
    with pytest.raises(Unavailable, match="another machine"):
        await recover(memory, made.id, USER, apply=True, knowledge=True)
    assert RecoveryIntents(memory.files).all() == []
    await recover(memory, made.id, USER, apply=True)
    assert [(one.item, one.note) for one in anchors(memory)] == [("claracore", "it pays")]


async def test_a_session_that_is_over_goes_on_from_where_it_was_wound_back_to(memory: Memory, made: Checkpoint) -> None:
    await sessions.end_session(memory, "s")
    await recover(memory, made.id, USER, apply=True)
    assert (await compile_context(memory, CompileRequest(session="s"), USER)).inputs.as_of == 2
    await say(memory, "Here we are again.")
    compiled = await compile_context(memory, CompileRequest(session="s"), USER)
    assert [turn.number for turn in compiled.inputs.turns] == [1, 2, 5]


async def test_what_is_asked_wrongly_is_answered_with_what_to_do(memory: Memory, made: Checkpoint) -> None:
    with pytest.raises(NotFound, match=f"did you mean '{made.id}'"):
        await recover(memory, made.id + "0", USER)
    with pytest.raises(Invalid, match="only a checkpoint can restore knowledge"):
        await recover(memory, f"{ANA}@HEAD", USER, knowledge=True)


async def test_checkpoints_are_listed_among_what_can_be_recovered(memory: Memory, made: Checkpoint) -> None:
    found = {one.id: one for one in await recoverable(memory)}
    assert found[made.id].kind == "checkpoint"
    assert found[made.id].summary == "ClaraCore pays for the berth. (asked for: before the journey)"
    assert [one.id for one in await recoverable(memory, "hull") if one.kind == "checkpoint"] == [made.id]


@pytest.mark.both_engines
async def test_two_checkpoints_are_compared(memory: Memory, made: Checkpoint) -> None:
    second = await make(memory, "s", "asked")
    assert await diff_text(memory, second.id, None) == "Nothing would change."
    shown = await diff_text(memory, made.id, second.id)
    assert shown == await diff_text(memory, made.id, None)
    assert "knowledge: 2 files, +1 −2 lines" in shown


@pytest.mark.folder_only
async def test_staged_changes_wait_for_their_owner(memory: Memory, workspace: Path, made: Checkpoint) -> None:
    git(workspace, "add", ANA)
    done = await recover(memory, made.id, USER, apply=True, knowledge=True)
    assert text(memory, ANA) == "Ana keeps the berth.\n"
    assert git(workspace, "diff", "--cached", "--name-only").split() == [ANA]
    assert done.undo
    undo = await stored.read(memory, done.undo)
    assert undo.state is not None
    assert undo.state["recovery"] == {"of": made.id, "knowledge": True}


async def test_a_checkpoint_of_the_previous_format_restores(memory: Memory, made: Checkpoint) -> None:
    path = f"checkpoints/s/{made.id}.md"
    memory.files.write_atomic(path, render(await stored.read(memory, made.id)))
    memory.files.remove(f".local/checkpoints/{made.id}.xz")
    await recover(memory, made.id, USER, apply=True, knowledge=True)
    assert text(memory, ANA) == "Ana keeps the berth.\n"


async def test_of_a_checkpoint_whose_part_for_programs_is_not_here_turn_and_anchors_are_restored(
    memory: Memory, made: Checkpoint
) -> None:
    memory.files.remove(f".local/checkpoints/{made.id}.xz")
    assert (await stored.read(memory, made.id)).decisions == made.decisions
    with pytest.raises(Unavailable, match="made on another machine"):
        await recover(memory, made.id, USER, apply=True, knowledge=True)
    assert (await recover(memory, made.id, USER, apply=True)).applied
