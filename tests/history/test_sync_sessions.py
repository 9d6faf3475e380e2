"""A conversation that goes on on two machines keeps every turn of both."""

from __future__ import annotations

import json
import shutil

import pytest
from anyio.to_thread import run_sync

from mcp_server.app import catch_up
from mcp_server.cli.main import main
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.conversations.sessions import end_session, everything_said, list_sessions, show_session
from mcp_server.history.sync import sync
from mcp_server.memory import Memory
from mcp_server.search.search import SearchRequest, find
from tests.conftest import Clock
from tests.history.two_copies import TESTS, same

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")]


async def say(memory: Memory, *texts: str) -> None:
    for text in texts:
        await observe(memory, NewTurn("user", text, "s1"), TESTS)


async def said(memory: Memory) -> list[tuple[str, bool]]:
    """Returns each turn that `session show` shows, and whether it is marked."""
    shown = await show_session(memory, "s1")
    return [(turn.content, path is not None) for turn, path in await everything_said(memory, shown)]


@pytest.fixture
async def begun(two: tuple[Memory, Memory]) -> tuple[Memory, Memory]:
    """A conversation that is on both machines."""
    one, other = two
    await say(one, "Where do we begin?")
    await end_session(one, "s1")
    await sync(one)
    await sync(other)
    return two


@pytest.mark.parametrize("minutes", [0, 3], ids=["in the same minute", "minutes later"])
async def test_every_turn_of_both_machines_is_shown_in_order_of_time_and_marked(
    begun: tuple[Memory, Memory], clock: Clock, minutes: int
) -> None:
    one, other = begun
    await say(one, "one: first")
    clock.forward(minutes=minutes, seconds=1)
    await say(other, "other: second")
    clock.forward(minutes=minutes, seconds=1)
    await say(one, "one: third")
    clock.forward(minutes=minutes, seconds=1)
    await say(other, "other: fourth")
    for memory in begun:
        await end_session(memory, "s1")

    await sync(one)
    await sync(other)
    await sync(one)

    assert same(one, other)
    for memory in begun:
        shown = await said(memory)
        assert [text for text, _ in shown] == [
            "Where do we begin?",
            "one: first",
            "other: second",
            "one: third",
            "other: fourth",
        ]
        assert len({mark for text, mark in shown if text.startswith("one")}) == 1
        assert len({mark for text, mark in shown if text.startswith("other")}) == 1
        assert [mark for _, mark in shown].count(True) == 2
        await catch_up(memory)
        for word in ("first", "fourth"):
            assert (await find(memory, SearchRequest(word))).hits
    assert len(await list_sessions(one)) == 1


async def test_two_transcripts_of_the_same_name_are_both_kept(begun: tuple[Memory, Memory], clock: Clock) -> None:
    for memory in begun:
        clock.forward(seconds=1)
        await say(memory, "go on", f"said on {memory.disk.root.name}")
        await end_session(memory, "s1")
    one, other = begun

    await sync(one)
    await sync(other)
    await sync(one)

    assert same(one, other)
    for memory in begun:
        texts = [text for text, _ in await said(memory)]
        assert texts == ["Where do we begin?", "go on", "said on one", "go on", "said on other"]


async def test_an_open_conversation_goes_on_after_a_sync(begun: tuple[Memory, Memory], clock: Clock) -> None:
    one, other = begun
    await say(one, "one: open")
    clock.forward(seconds=5)
    await say(other, "other: over")
    await end_session(other, "s1")
    await sync(other)

    await sync(one)
    clock.forward(seconds=5)
    await say(one, "one: still here")
    await end_session(one, "s1")
    await sync(one)
    await sync(other)

    assert same(one, other)
    for memory in begun:
        assert [text for text, _ in await said(memory)][1:] == ["one: open", "other: over", "one: still here"]


async def test_the_command_marks_the_turns_of_the_other_machine(
    begun: tuple[Memory, Memory],
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONTEXT_MANAGER_SEARCH__EMBEDDER", "none")
    one, _ = begun
    for memory in begun:
        clock.forward(seconds=1)
        await say(memory, f"said on {memory.disk.root.name}")
        await end_session(memory, "s1")
        await sync(memory)
    await sync(one)

    show = ["--workspace", str(one.disk.root), "session", "show", "s1"]
    assert await run_sync(main, show) == 0
    shown = capsys.readouterr().out
    assert await run_sync(main, [*show, "--json"]) == 0
    turns = json.loads(capsys.readouterr().out)["turns"]

    assert "3 turns" in shown
    assert "was continued on two machines: turns marked with *" in shown
    assert shown.index("user\nsaid on one") < shown.index("user\nsaid on other")
    assert shown.count("\n#2* ") == 1
    assert shown.count("\n#2 ") == 1
    assert [turn["content"] for turn in turns] == ["Where do we begin?", "said on one", "said on other"]
    assert sum(turn["beside"] is not None for turn in turns) == 1
