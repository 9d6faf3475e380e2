"""Which session a call means if it names none."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.serving import ERAS, Mode, call, connected, resource, say

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_with_a_server_of_its_own_needs_no_handle(tmp_path: Path, mode: Mode) -> None:
    async with connected(tmp_path, mode=mode) as client:
        first = await say(client, "The launch is on Tuesday.")
        assert await say(client, "Noted.", "agent") == first


@pytest.mark.parametrize(("name", "mode"), [("claude-ai", "legacy"), ("Cursor", "auto"), ("windsurf-client", "auto")])
async def test_a_client_of_many_chats_gets_a_session_for_each_unnamed_turn(
    tmp_path: Path, mode: Mode, name: str
) -> None:
    async with connected(tmp_path, client=name, mode=mode) as client:
        answer = await call(client, "observe", role="user", content="Hello from one chat")
        assert "Pass its ID" in answer
        assert await say(client, "Hello from another chat") != answer.splitlines()[0].removeprefix("session: ")


async def test_a_named_session_is_never_told_to_pass_its_handle(tmp_path: Path) -> None:
    async with connected(tmp_path, client="claude-ai") as client:
        assert "Pass its ID" not in await call(client, "observe", role="user", content="Hello", session="mine")


async def test_two_first_turns_at_once_open_one_session(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        handles: list[str] = []

        async def one(content: str) -> None:
            handles.append(await say(client, content))

        async with anyio.create_task_group() as tasks:
            for n in range(5):
                tasks.start_soon(one, f"message {n}")
        assert len(set(handles)) == 1


async def test_an_unnamed_turn_goes_on_in_the_only_session_that_was_named(tmp_path: Path) -> None:
    async with connected(tmp_path) as client:
        await say(client, "The launch is on Tuesday.", session="mine")
        assert await say(client, "Noted.", "agent") == "mine"


async def test_over_http_every_unnamed_turn_opens_a_session(tmp_path: Path) -> None:
    async with connected(tmp_path, transport="http") as client:
        assert await say(client, "The launch is on Tuesday.") != await say(client, "Noted.", "agent")


async def test_the_compiled_context_is_that_of_the_one_session_and_then_what_all_share(tmp_path: Path) -> None:
    async with connected(tmp_path, client="claude-ai") as client:
        first = await say(client, "The launch is on Tuesday.", delivery="replace")
        assert await resource(client, "context://compiled") == await resource(client, f"context://compiled/{first}")
        second = await say(client, "Which cake shall I bake?", delivery="replace")
        shared = await resource(client, "context://compiled")
        assert shared == await call(client, "compile_context")
        assert "Tuesday" not in shared.split("context://compiled/")[0]
        assert f"context://compiled/{first}" in shared
        assert f"context://compiled/{second}" in shared
