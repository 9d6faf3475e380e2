"""What is recorded of a conversation at each event of a client's hooks, and when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_server.clients.hooks import listener, offline
from mcp_server.clients.hooks.events import handle, work
from mcp_server.conversations import sessions
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from tests.clients.hooks.boathouse import ASKED, Open, said
from tests.clients.hooks.windows import ClaudeWindow
from tests.conftest import Clock

pytestmark = pytest.mark.anyio


async def test_what_was_said_is_captured_and_the_hooks_own_text_is_not(told: Memory, window: Open) -> None:
    now = window()
    assert await now.prompt(ASKED, "Behind the cellar door.")
    await now.prompt("and the fuse box?", "Beside it.")
    await now.hook("SessionEnd", reason="other")
    assert await said(told, "now") == [ASKED, "Behind the cellar door.", "and the fuse box?", "Beside it."]
    row = await sessions.require(told, "now")
    assert (row.status, row.project, row.delivery or "add") == ("closed", "name:boats", "add")


async def test_lost_hooks_lose_nothing(told: Memory, window: Open) -> None:
    now = window()
    for number in range(10):
        now.write("user", f"Question number {number} about the boats.")
        now.write("assistant", f"Answer number {number}.")
    await now.hook("Stop", last_assistant_message="Answer number 9.")
    assert len(await said(told, "now")) == 20
    await now.hook("Stop", last_assistant_message="Answer number 9.")
    assert len(await said(told, "now")) == 20


async def test_without_a_transcript_the_fields_of_the_hooks_are_recorded(told: Memory, folder: Path) -> None:
    given = {"session_id": "bare", "transcript_path": "/nowhere/bare.jsonl", "cwd": str(folder)}
    await handle(told, "UserPromptSubmit", {**given, "prompt": "What is a bowline?"})
    await handle(told, "UserPromptSubmit", {**given, "prompt": "/compact"})
    await handle(told, "Stop", {**given, "last_assistant_message": "A knot."})
    await handle(told, "Stop", {"session_id": "bare", "last_assistant_message": "A loop."})
    assert await said(told, "bare") == ["What is a bowline?", "A knot.", "A loop."]


async def test_a_prompt_that_the_transcript_has_later_is_recorded_once(told: Memory, window: Open) -> None:
    now = window()
    await now.hook("UserPromptSubmit", prompt="What is a bowline?")  # Claude Code has not written its file yet
    assert await told.state.session("now") is None
    now.write("user", "What is a bowline?")
    now.write("assistant", "A knot.")
    await now.hook("Stop", last_assistant_message="A knot.")
    assert await said(told, "now") == ["What is a bowline?", "A knot."]


@pytest.fixture
def unanswered(window: Open, clock: Clock) -> ClaudeWindow:
    """A window whose transcript has a prompt, of a minute ago, and no answer."""
    now = window()
    now.at = clock()
    now.write("user", "What is a bowline?")
    clock.forward(minutes=1)
    return now


async def test_a_transcript_that_the_client_completes_after_its_hooks_is_read_again(
    told: Memory, unanswered: ClaudeWindow
) -> None:
    now = unanswered
    await now.hook("Stop", last_assistant_message="A knot.")
    await now.hook("SessionEnd", reason="other")
    assert await listener.drain(told, work) == 2
    assert len(listener.queued(told.disk.local)) == 2
    now.write("assistant", "A knot.")
    assert await listener.drain(told, work) == 2
    assert ((await said(told, "now"))[-1], len(listener.queued(told.disk.local))) == ("A knot.", 0)
    assert (await sessions.require(told, "now")).status == "closed"


async def test_a_tools_result_that_the_client_writes_after_its_hooks_is_recorded_with_its_call(
    told: Memory, unanswered: ClaudeWindow, clock: Clock
) -> None:
    now = unanswered
    clock.forward(minutes=1)
    now.tool("Bash", {"command": "man knots"}, "knots are of rope")
    whole = now.transcript.read_bytes().splitlines(keepends=True)
    now.transcript.write_bytes(b"".join(whole[:-1]))  # the call's line only
    await now.hook("SessionEnd", reason="complete")
    now.transcript.write_bytes(b"".join(whole))
    now.write("assistant", "A knot.")
    assert await listener.drain(told, work) == 1
    row = await sessions.require(told, "now")
    _, called, answer = told.transcripts.read(row.path).turns
    assert [call.result for call in called.turn.tool_calls] == ["knots are of rope"]
    assert (answer.turn.content, row.status) == ("A knot.", "closed")


async def test_without_a_server_a_session_begins_with_what_the_one_before_it_settled(
    memory: Memory, window: Open
) -> None:
    now = window()
    now.write("user", "From now on, show me the diff before you commit anything.")
    now.write("assistant", "Will do.")
    given = {"session_id": "now", "transcript_path": str(now.transcript), "cwd": str(now.folder)}
    offline.enqueue(str(memory.disk.local), "SessionEnd", given)
    assert await listener.drain(memory, work) == 1
    assert "show me the diff before you commit" in offline.brief(str(memory.disk.local), {"cwd": str(now.folder)})


async def test_a_transcript_that_the_client_creates_after_its_hooks_is_recorded_once(
    told: Memory, window: Open, clock: Clock
) -> None:
    now = window()
    now.at = clock()
    clock.forward(minutes=5)
    await now.hook("UserPromptSubmit", prompt="What is a bowline?")
    await now.hook("Stop")  # Copilot CLI names no answer
    await now.hook("SessionEnd", reason="complete")
    assert await said(told, "now") == ["What is a bowline?"]
    now.write("user", "What is a bowline?")
    now.tool("Bash", {"command": "man knots"}, "knots")
    now.write("assistant", "A knot.")
    assert await listener.drain(told, work) == 2
    asked, _, answer = await said(told, "now")
    assert (asked, answer, len(listener.queued(told.disk.local))) == ("What is a bowline?", "A knot.", 0)
    assert (await sessions.require(told, "now")).status == "closed"


async def test_an_answer_waits_for_its_prompt_if_the_server_was_not_there_when_that_was_typed(
    told: Memory, window: Open, clock: Clock
) -> None:
    now = window()
    now.at = clock()
    await now.hook("Stop", last_assistant_message="A knot.")  # the client writes its transcript a moment later
    now.write("user", "What is a bowline?")
    now.write("assistant", "A knot.")
    assert await listener.drain(told, work) == 1
    assert await said(told, "now") == ["What is a bowline?", "A knot."]
    bare = window("bare")
    await bare.hook("Stop", last_assistant_message="A loop.")
    clock.forward(minutes=1)
    assert (await listener.drain(told, work), len(listener.queued(told.disk.local))) == (1, 0)
    assert await said(told, "bare") == ["A loop."]


async def test_a_transcript_that_a_client_never_creates_is_not_awaited_for_long(
    told: Memory, window: Open, clock: Clock
) -> None:
    now = window()
    await now.hook("UserPromptSubmit", prompt="What is a bowline?")
    await now.hook("SessionEnd", reason="complete")
    assert len(listener.queued(told.disk.local)) == 1
    clock.forward(minutes=1)
    assert (await listener.drain(told, work), len(listener.queued(told.disk.local))) == (1, 0)


async def test_an_answer_that_the_user_stopped_is_not_awaited_for_long(
    told: Memory, unanswered: ClaudeWindow, clock: Clock
) -> None:
    now = unanswered
    await now.hook("SessionEnd", reason="other")
    assert (await sessions.require(told, "now")).status == "open"
    clock.forward(minutes=1)
    assert await listener.drain(told, work) == 1
    assert ((await sessions.require(told, "now")).status, len(listener.queued(told.disk.local))) == ("closed", 0)


async def test_between_tools_it_is_captured_now_and_then(told: Memory, window: Open, clock: Clock) -> None:
    now = window()
    await now.prompt("Look at the hull.", "I am looking.")
    now.write("user", "Also at the mast.")
    assert await now.hook("PostToolUse", tool_name="Read") == {}
    assert len(await said(told, "now")) == 2
    clock.forward(minutes=1)
    assert await now.hook("PostToolUse", tool_name="Read") == {}
    assert len(await said(told, "now")) == 3


async def test_before_a_compaction_everything_is_on_disk(told: Memory, window: Open) -> None:
    now = window()
    now.write("user", "The hull is green.")
    assert await now.hook("PreCompact", trigger="auto") == {}
    assert await said(told, "now") == ["The hull is green."]


async def test_a_late_end_does_not_close_a_session_that_was_resumed(told: Memory, window: Open, clock: Clock) -> None:
    now = window()
    ended_at = clock().timestamp()
    clock.forward(minutes=5)
    now.at = clock()
    await now.prompt("The hull is green.")
    clock.forward(minutes=5)
    await now.hook("SessionEnd", reason="other", at=ended_at)
    assert (await sessions.require(told, "now")).status == "open"
    await now.hook("SessionEnd", reason="other", at=clock().timestamp())
    assert (await sessions.require(told, "now")).status == "closed"


async def test_subagents_end_with_the_session_that_started_them(told: Memory, window: Open) -> None:
    now, beside = window(), window("now2")
    for one in (now, beside):
        await one.prompt("Look at the hull.")
        one.write("user", "Count the planks.", isSidechain=True, agentId="a1")
        await one.hook("Stop")
    assert (await sessions.require(told, "now-agent-a1")).status == "open"
    await now.hook("SessionEnd", reason="other")
    assert (await sessions.require(told, "now-agent-a1")).status == "closed"
    assert (await sessions.require(told, "now2-agent-a1")).status == "open"


async def test_ending_what_was_never_begun_is_nothing(memory: Memory) -> None:
    assert await handle(memory, "SessionEnd", {"session_id": "ghost", "reason": "other"}) == {}
    with pytest.raises(NotFound):
        await sessions.require(memory, "ghost")


async def test_what_cannot_be_recorded_now_stays_in_the_queue(told: Memory, window: Open) -> None:
    now = window()
    now.write("user", "The hull is green.")
    now.transcript.unlink()
    now.transcript.mkdir()
    given = {"session_id": "now", "transcript_path": str(now.transcript), "at": 1.0}
    assert await handle(told, "SessionEnd", given) == {}


async def test_a_prompt_that_waits_for_its_transcript_is_kept_without_secrets(memory: Memory) -> None:
    given = {"session_id": "s1", "prompt": f"Deploy it with ghp_{'a1B2c3D4' * 4} please"}
    await handle(memory, "UserPromptSubmit", given)
    kept = await memory.state.get("prompts", "s1")
    assert kept == ["Deploy it with [redacted:github-token] please"]
