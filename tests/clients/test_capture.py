"""What Claude Code writes is recorded while it grows, wherever a look at it happens to fall; an import adds nothing."""

from __future__ import annotations

import json
import os
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server.app import open_memory
from mcp_server.clients.importers.recording import CURSORS, capture
from mcp_server.clients.importers.run import import_path
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import list_sessions, session_turns, show_session
from mcp_server.errors import NotFound, Refused
from mcp_server.memory import Memory
from mcp_server.model import COMPACTION, Caller, Turn
from tests.clients.importers.claude_code_files import SESSION, Transcript, call, everything, text
from tests.conftest import KEYWORDS_ONLY, Clock

pytestmark = pytest.mark.anyio


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    return tmp_path / "claude" / "projects"


async def said(memory: Memory) -> list[tuple[str, str]]:
    return [(turn.role, turn.content) for turn in await session_turns(memory, SESSION)]


def sequence(made: Transcript, turns: tuple[Turn, ...]) -> list[object]:
    """What was recorded, with line numbers for ids."""
    numbers = {line.get("uuid"): number for number, line in enumerate(made.lines)}
    return [(numbers[turn.turn_id], turn.number, turn.role, turn.name, turn.content, turn.tool_calls) for turn in turns]


async def lose_cursors(memory: Memory) -> None:
    for key in await memory.state.entries(CURSORS):
        await memory.state.remove(CURSORS, key)


async def test_what_was_said_is_recorded_and_nothing_else(memory: Memory, projects: Path) -> None:
    path = everything().write(projects)
    done = await capture(memory, path, final=True, projects=projects)
    turns = await session_turns(memory, SESSION)
    assert done == len(turns)
    assert [(turn.role, turn.content) for turn in turns] == [
        ("user", "How do we deploy?"),
        ("agent", "Let me look."),
        ("user", "and to staging?"),
        ("agent", "With make release; staging the same."),
        ("system", "The client compacted its context (auto): 150,000 tokens before, 4,000 after."),
        ("user", "ok"),
        ("agent", "Anything else?"),
        ("user", "ok"),
        ("agent", "First.\n\nSecond."),
        ("user", "thanks, deploy it"),
        ("agent", ""),
        ("agent", "It was refused."),
    ]
    assert turns[4].name == COMPACTION
    first, second = turns[1].tool_calls
    assert (first.name, first.summary, first.result) == ("Bash", "List the scripts", "run.sh")
    assert (second.summary, second.files) == ("/home/ana/atlas/deploy/run.sh", ("deploy/run.sh",))
    assert turns[10].tool_calls[0].result == "error: Permission denied"
    assert turns[1].context_tokens == 100
    (row,) = await list_sessions(memory)
    assert (row.status, row.kind, row.delivery, row.project) == ("open", "main", "add", "name:atlas")
    head = memory.transcripts.read(row.path).head
    assert (head.channel, head.model) == ("import:claude-code", "claude-opus-5-5")
    text_on_disk = memory.files.read_text(row.path)
    assert "INJECTED" not in text_on_disk
    assert "SECRET THOUGHTS" not in text_on_disk


ONCE, NUMBERS = "00000000-0000-4000-8000-000000000001", count(2)


@settings(max_examples=int(os.environ.get("CM_EXAMPLES", "20")) // 4)
@given(cuts=st.lists(st.integers(0, len(everything().data)), max_size=12))
async def test_wherever_it_is_cut_the_turns_are_those_of_one_import(
    memory: Memory, projects: Path, cuts: list[int]
) -> None:
    await import_path(memory, everything(ONCE).write(projects), kind="claude-code")
    session = f"00000000-0000-4000-8000-{next(NUMBERS):012}"  # every example is another session of one memory
    made = everything(session)
    path = made.write(projects)
    for cut in [*sorted(cuts), len(made.data)]:
        path.write_bytes(made.data[:cut])
        await capture(memory, path, projects=projects)
    await lose_cursors(memory)
    report = await import_path(memory, path, kind="claude-code")
    assert report.new_turns == 1  # the last answer: only an import, or a final look, can know that it is over
    await lose_cursors(memory)
    assert (await import_path(memory, path, kind="claude-code")).new_turns == 0
    assert sequence(made, await session_turns(memory, session)) == sequence(
        everything(ONCE), await session_turns(memory, ONCE)
    )


async def test_an_answer_that_waits_for_its_tools_is_left_for_the_next_time(memory: Memory, projects: Path) -> None:
    made = Transcript()
    made.user("What is in it?")
    made.assistant("m1", text("I look."), call("t1", "Read", file_path="/a"), stop="tool_use")
    assert (await capture(memory, made.write(projects), projects=projects)) == 1
    made.result("t1", "contents")
    made.says("m2", "Contents.")
    assert (await capture(memory, made.write(projects), projects=projects)) == 1
    made.line("system", subtype="stop_hook_summary")
    assert (await capture(memory, made.write(projects), projects=projects)) == 1
    turns = await session_turns(memory, SESSION)
    assert [turn.content for turn in turns] == ["What is in it?", "I look.", "Contents."]
    assert turns[1].tool_calls[0].result == "contents"


async def test_what_a_hook_recorded_without_an_id_is_stored_once(memory: Memory, projects: Path) -> None:
    made = Transcript()
    for content in ("ok", "ok"):
        await observe(memory, NewTurn("user", content, SESSION), Caller())
        await observe(memory, NewTurn("agent", "fine", SESSION), Caller())
        made.user(content)
        made.says(f"m{len(made.lines)}", "fine")
    made.user("ok")
    path = made.write(projects)
    assert (await capture(memory, path, final=True, projects=projects)) == 1
    await lose_cursors(memory)
    assert (await capture(memory, path, final=True, projects=projects)) == 0
    assert [content for _, content in await said(memory)] == ["ok", "fine", "ok", "fine", "ok"]


async def test_a_session_that_was_silent_for_hours_goes_on_in_another_transcript(
    memory: Memory, projects: Path, clock: Clock
) -> None:
    made = Transcript()
    made.user("one")
    await capture(memory, made.write(projects), projects=projects)
    clock.forward(hours=7)
    made.user("two")
    await capture(memory, made.write(projects), projects=projects)
    shown = await show_session(memory, SESSION)
    assert [turn.content for turn in shown.turns] == ["one", "two"]
    assert len(shown.paths) == 2


async def test_a_file_that_was_replaced_is_read_anew(memory: Memory, projects: Path) -> None:
    made = Transcript()
    made.user("one " * 100)
    await capture(memory, made.write(projects), projects=projects)
    other = Transcript()
    other.user("another beginning, and so much longer than the first one was " * 10, uuid="other-1")
    assert (await capture(memory, other.write(projects), projects=projects)) == 1
    short = Transcript()
    short.user("short", uuid="other-2")
    assert (await capture(memory, short.write(projects), projects=projects)) == 1


async def test_two_processes_that_look_at_once_record_once(workspace: Path, projects: Path) -> None:
    path = everything().write(projects)
    async with (
        open_memory(workspace, KEYWORDS_ONLY) as one,
        open_memory(workspace, KEYWORDS_ONLY) as other,
        anyio.create_task_group() as group,
    ):
        for memory in (one, other, one, other):
            group.start_soon(partial(capture, memory, path, final=True, projects=projects))
    async with open_memory(workspace, KEYWORDS_ONLY) as memory:
        assert [turn.number for turn in await session_turns(memory, SESSION)] == list(range(1, 13))


async def test_a_subagent_is_a_conversation_of_its_own(memory: Memory, projects: Path) -> None:
    main = Transcript()
    main.user("Look around.")
    main.assistant("m1", call("t1", "Agent", description="look", prompt="Say the colour."), stop="tool_use")
    main.result("t1", "teal")
    agent = Transcript(agent="a1b2c3")
    agent.user("Say the colour.")
    agent.says("m2", "teal")
    agent.write(projects)
    assert (await capture(memory, main.write(projects), final=True, projects=projects)) == 4
    rows = {row.session: row.kind for row in await list_sessions(memory)}
    assert rows == {SESSION: "main", f"{SESSION}-agent-a1b2c3": "subagent"}
    turns = await session_turns(memory, f"{SESSION}-agent-a1b2c3")
    assert [(turn.role, turn.name, turn.content) for turn in turns] == [
        ("user", "main agent", "Say the colour."),
        ("agent", None, "teal"),
    ]


async def test_secrets_in_messages_and_tools_are_redacted(memory: Memory, projects: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    made = Transcript()
    made.user(f"use {key}")
    made.assistant("m1", call("t1", "Bash", command=f"curl -H {key} " + "x" * 150), stop="tool_use")
    made.result("t1", "y" * 380 + f" {key}")
    await capture(memory, made.write(projects), final=True, projects=projects)
    written = memory.files.read_text((await list_sessions(memory))[0].path)
    assert key not in written
    assert key[:12] not in written


async def test_only_claude_codes_own_transcripts_are_read(memory: Memory, projects: Path, tmp_path: Path) -> None:
    path = everything().write(projects)
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_bytes(everything().data)
    (path.parent / "link.jsonl").symlink_to(elsewhere)
    (path.parent / "notes.txt").write_text("x")
    for refused in (elsewhere, path.parent / "link.jsonl", path.parent / "notes.txt", path.parent):
        with pytest.raises(Refused):
            await capture(memory, refused, projects=projects)
    with pytest.raises(NotFound):
        await capture(memory, path.parent / "not-yet.jsonl", projects=projects)
    assert await list_sessions(memory) == []


async def test_nothing_in_a_file_makes_it_fail(memory: Memory, projects: Path) -> None:
    made = Transcript()
    made.user("before")
    path = made.write(projects)
    odd = [
        b"not json",
        b"[1, 2]",
        b"null",
        b'{"type": "user"}',
        b'{"type": "user", "message": 3, "uuid": 4, "timestamp": 5, "parentUuid": {}}',
        b'{"type": "assistant", "message": {"content": [3, {"type": "tool_use"}, {"type": "text", "text": 1}]}}',
        b'{"type": "system", "subtype": "compact_boundary", "compactMetadata": [], "uuid": "c"}',
        b'{"type": {"a": 1}, "isSidechain": true, "agentId": "../../etc"}',
        b'{"type": "user", "isSidechain": true, "agentId": "../x y", "message": {"content": "hi"}, "uuid": "s"}',
        b'{"type": "user", "message": {"content": "\\ud800 half"}, "uuid": "h", "timestamp": "9999-99-99"}',
        b"[" * 5_000,
        b"\x00\x00\xff\xfe",
        b"",
    ]
    after = Transcript()
    after.user("after", uuid="last")
    path.write_bytes(
        made.data + b"\n".join(odd) + b"\n" + after.data + b'{"type": "user", "message": {"content": "torn'
    )
    await capture(memory, path, final=True, projects=projects)
    contents = [content for _, content in await said(memory)]
    assert contents[0] == "before"
    assert contents[-1] == "after"
    assert {row.kind for row in await list_sessions(memory)} == {"main", "subagent"}


async def test_where_the_user_went_back_a_turn_says_so(memory: Memory, projects: Path) -> None:
    made = Transcript()
    made.user("Plan for Monday.")
    here = made.says("m1", "Monday it is.")
    made.user("And invite Oto.")
    made.says("m2", "Invited.")
    made.parent = here
    made.user("No, invite Mira.")
    made.says("m3", "Invited Mira.")
    made.user("Good.")
    await capture(memory, made.write(projects), final=True, projects=projects)
    roles = [(role, content[:17]) for role, content in await said(memory)]
    assert roles[4] == ("system", "The user went bac")
    assert [role for role, _ in roles].count("system") == 1


async def test_a_long_session_is_kept_in_several_transcripts(
    memory: Memory, projects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_server.conversations.imports.FULL", 2_000)
    made = Transcript()
    for number in range(6):
        made.user(f"{number} " + "word " * 200)
        await capture(memory, made.write(projects), projects=projects)
    shown = await show_session(memory, SESSION)
    assert len(shown.paths) == 3
    assert [turn.number for turn in shown.turns] == [1, 2, 3, 4, 5, 6]


async def test_a_cursor_that_makes_no_sense_is_a_lost_one(memory: Memory, projects: Path) -> None:
    path = everything().write(projects)
    for stored in (3, {"offset": "x"}, {"offset": 10**9}, json.loads('{"offset": 0, "place": null}')):
        await memory.state.put(CURSORS, str(path.resolve()), stored)
        await capture(memory, path, final=True, projects=projects)
    assert len(await session_turns(memory, SESSION)) == 12


async def test_what_is_captured_is_live_and_what_is_imported_is_not(
    memory: Memory, workspace: Path, projects: Path, tmp_path: Path, clock: Clock
) -> None:
    path = everything().write(projects)
    await capture(memory, path, final=True, projects=projects)
    turns = await session_turns(memory, SESSION)
    assert {chunk.turn for chunk in await memory.live.of(SESSION)} == {turn.number for turn in turns}
    assert await memory.live.tokens(SESSION) > 0
    async with open_memory(tmp_path / "other", KEYWORDS_ONLY, clock=clock) as other:
        await import_path(other, path)
        assert await session_turns(other, SESSION)
        assert await other.live.of(SESSION) == []
