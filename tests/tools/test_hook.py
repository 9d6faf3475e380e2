"""The tool `hook`, for clients whose hooks can call a tool, and what a server with `--hooks` offers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from mcp import Client

import tools
from mcp_server.app import open_memory
from mcp_server.serve import instructions
from mcp_server.serve.server import build
from tests.serving import PLAIN, call, connected, opener, refused

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def with_hooks(root: Path) -> AsyncIterator[Client]:
    told = partial(instructions.now, root, root / ".local", True)
    async with Client(build(opener(root), hooks=True, instructions=told)) as client:
        yield client


async def test_with_hooks_the_model_is_offered_no_tool_for_what_they_do(tmp_path: Path) -> None:
    workspace = tmp_path / "new"
    async with with_hooks(workspace) as client, connected(workspace) as without:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert {tool.name for tool in (await without.list_tools()).tools} - listed == {"observe", "compile_context"}
        assert {"hook", "forget"} <= listed
        assert client.instructions == instructions.FIRST_WITH_HOOKS
        await refused(client, "observe", role="user", content="x")
        await call(client, "status")  # creates the workspace
    text = instructions.now(workspace, workspace / ".local", hooks=True)
    assert "Nothing is stored" not in text
    assert "observe" not in text
    assert "compile_context" not in text
    assert len(text.encode()) < 2048
    assert len(tools.offered("full", hooks=True)) == len({*tools.offered("full", hooks=True)})


async def test_it_answers_with_json_alone_also_where_there_is_nothing_to_say(workspace: Path) -> None:
    async with with_hooks(workspace) as client:
        for event in ("UserPromptSubmit", "Stop", "PostToolUse", "SomethingNew"):
            said = await call(client, "hook", event=event, session_id="s1", prompt="hello there, dear harbour", cwd="")
            assert json.loads(said) == {}
        assert "there is no argument 'promt'" in await refused(client, "hook", event="Stop", promt="x")


async def test_calls_that_name_no_session_mean_the_one_that_the_hooks_gave_last(workspace: Path) -> None:
    async with connected(workspace) as client:  # two sessions with something in them
        await call(client, "observe", role="user", content="the first talks of walrus", session="before-clear")
        await call(client, "observe", role="user", content="the second talks of penguins", session="after-clear")
    server = build(opener(workspace), hooks=True)
    async with Client(server) as client:
        for session, word in (("before-clear", "walrus"), ("after-clear", "penguins")):
            await call(client, "hook", event="UserPromptSubmit", session_id=session, prompt="ok")
            done = await client.call_tool("remember", {"content": f"They like {word} very much.", "kind": "fact"})
            assert not done.is_error
    for session, word in (("before-clear", "walrus"), ("after-clear", "penguins")):
        (transcript,) = (workspace / "raw").rglob(f"*{session}*.md")
        written = [line for line in transcript.read_text().splitlines() if line.startswith("> [knowledge:")]
        assert len(written) == 1, written
        assert word in transcript.read_text()


async def test_a_server_learns_from_the_state_which_session_its_window_is_in(workspace: Path, tmp_path: Path) -> None:
    from mcp_server.context import windows

    async with connected(workspace) as client:
        await call(client, "observe", role="user", content="the talk of this window", session="in-this-window")
    server = build(opener(workspace), hooks=True, window=str(tmp_path / "window.sock"))
    async with Client(server) as client, open_memory(workspace, PLAIN) as maintainer:
        await windows.enter(maintainer, str(tmp_path / "window.sock"), "in-this-window")
        await client.call_tool("remember", {"content": "A window has its session.", "kind": "fact"})
    (transcript,) = (workspace / "raw").rglob("*in-this-window*.md")
    assert "> [knowledge:" in transcript.read_text()
