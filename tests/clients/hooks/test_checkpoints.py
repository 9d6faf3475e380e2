"""Checkpoints by a client's hooks: made before it compacts, carried into the window that follows."""

from __future__ import annotations

import pytest

from mcp_server.checkpoints import stored
from mcp_server.context.push_policy import LONGEST
from mcp_server.context.windows import PUSHED
from mcp_server.conversations import sessions
from mcp_server.memory import Memory
from mcp_server.storage import logs
from tests.clients.hooks.boathouse import Open
from tests.clients.hooks.windows import ClaudeWindow, pushed
from tests.topics.playbooks import TEA, write

pytestmark = pytest.mark.anyio

ANSWER = "I compared both.\n\nDecision: SQLite for the ledger, because it is one file.\n\n" + "It is small. " * 40
DECIDED = "- SQLite for the ledger, because it is one file."


@pytest.fixture
def window(window: Open) -> ClaudeWindow:
    """A window of Claude Code. The id of its session is `now`."""
    return window()


async def decide(window: ClaudeWindow) -> None:
    await window.start()
    await window.prompt("Which store shall the ledger of the boats have?", ANSWER)
    await window.prompt("yes, do it", "Done.")
    await window.prompt("TODO: call Ana about the winter berth", "Noted.")


async def test_before_the_client_compacts_a_checkpoint_is_on_disk(memory: Memory, window: ClaudeWindow) -> None:
    await decide(window)
    assert await stored.listed(memory, "now") == []
    await window.hook("PreCompact", trigger="manual")
    (head,) = await stored.listed(memory, "now")
    assert (head.reason, head.turn) == ("hook", 6)
    assert DECIDED in memory.files.read_text(head.path)


async def test_the_window_after_a_compaction_is_told_where_the_work_stood(memory: Memory, window: ClaudeWindow) -> None:
    await decide(window)
    pushed = await window.compact()
    for said in (DECIDED, "- call Ana about the winter berth", "Began with: Which store", "after turn 6"):
        assert said in pushed
    assert memory.tokens.count(pushed) <= memory.settings.hooks.start_tokens
    assert len(pushed) <= LONGEST
    assert len(await stored.listed(memory, "now")) == 1, "one compaction, one checkpoint"
    assert await window.start("compact") == "", "and once"


async def test_each_compaction_tells_what_was_settled_since(memory: Memory, window: ClaudeWindow) -> None:
    await decide(window)
    await window.compact()
    await window.prompt("Decision: paint the hull green in June", "Noted.")
    pushed = await window.compact()
    assert DECIDED in pushed
    assert "paint the hull green in June" in pushed
    assert len(await stored.listed(memory, "now")) == 2


async def test_a_compaction_whose_beginning_nobody_heard_has_its_checkpoint_too(
    memory: Memory, window: ClaudeWindow
) -> None:
    await decide(window)
    window.compact_without_events()
    assert DECIDED in await window.start("compact")
    assert len(await stored.listed(memory, "now")) == 1


async def test_a_compaction_that_no_server_saw_is_told_of_with_the_next_prompt(
    memory: Memory, window: ClaudeWindow
) -> None:
    await decide(window)
    window.compact_without_events()
    assert await window.prompt("/cost") == ""
    text = await window.prompt("ok, where were we?")
    assert DECIDED in text
    assert memory.tokens.count(text) <= memory.settings.hooks.start_tokens
    assert await window.prompt("ok, and then?") == ""
    latest = next(iter(logs.newest_first(memory.files, PUSHED)))
    assert latest["why"] == "the prompt names no subject"


async def test_a_topic_that_comes_with_where_the_work_stood_is_named_in_the_visible_line(
    memory: Memory, window: ClaudeWindow
) -> None:
    await decide(window)
    window.compact_without_events()
    write(memory, "topics/tea.md", TEA)
    output = await window.hook("UserPromptSubmit", prompt="a cup of tea?")
    text = pushed(output)
    assert DECIDED in text
    assert "Warm the pot first." in text
    assert output["systemMessage"].startswith("memory: where we were, topic tea, ")


async def test_what_the_client_injects_is_in_no_checkpoint(memory: Memory, window: ClaudeWindow) -> None:
    await decide(window)
    await window.compact()
    await window.prompt("<system-reminder>\nDecision: use nothing at all\n</system-reminder>", "Fine.")
    await window.prompt("This session is being continued from a previous conversation. Decision: drop it", "Fine.")
    await window.hook("PreCompact", trigger="auto")
    latest = await stored.latest(memory, "now")
    assert latest is not None
    assert latest.decisions == (DECIDED.removeprefix("- "),)
    assert latest.thread == (
        "Began with: Which store shall the ledger of the boats have?\nLast asked: TODO: call Ana about the winter berth"
    )


async def test_a_window_that_was_compacted_and_is_resumed_is_told_what_was_settled_since(window: ClaudeWindow) -> None:
    await decide(window)
    await window.compact()
    await window.prompt("Decision: paint the hull green in June", "Noted.")
    await window.hook("SessionEnd", reason="other")
    assert "paint the hull green in June" in await window.start("resume")
    assert await window.start("resume") == ""


async def test_a_window_that_lost_nothing_gets_no_checkpoint_when_it_is_resumed(window: ClaudeWindow) -> None:
    await decide(window)
    await window.hook("SessionEnd", reason="other")
    assert "<!-- checkpoint" not in await window.start("resume")


async def test_what_was_told_is_not_pushed_again_with_a_prompt(memory: Memory, window: ClaudeWindow) -> None:
    await decide(window)
    await window.compact()
    await memory.index.refresh()
    assert "winter berth" not in await window.prompt("TODO: call Ana about the winter berth")


async def test_of_a_session_that_nobody_recorded_none_is_made(memory: Memory, window: ClaudeWindow) -> None:
    await window.hook("PreCompact", trigger="manual")
    assert await sessions.list_sessions(memory) == []
    assert await stored.listed(memory) == []
