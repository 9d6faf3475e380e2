"""Opening in the background, instructions, subscriptions: in memory, both eras."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

import tools
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.serve import instructions
from mcp_server.serve.server import build, repaired
from tests.serving import ERAS, Mode, Updates, call, connected, heard, opener, refused, resource, say

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("fast_notes")]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_handshake_does_not_wait_for_the_workspace_and_a_call_does(tmp_path: Path, mode: Mode) -> None:
    go_on = anyio.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[Memory]:
        await go_on.wait()
        async with opener(tmp_path)() as memory:
            yield memory

    async with Client(build(slow), mode=mode) as client, anyio.create_task_group() as tasks:
        assert len((await client.list_tools()).tools) == len(tools.ALL)
        assert not (tmp_path / "raw").exists()
        tasks.start_soon(say, client, "The launch is on Tuesday.")
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert list((tmp_path / "raw").rglob("*.md"))


async def test_a_workspace_that_cannot_be_opened_says_why_and_is_tried_again(tmp_path: Path) -> None:
    attempts = 0

    @asynccontextmanager
    async def mended_later() -> AsyncIterator[Memory]:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise Unavailable("the disk is full; make room")
        if attempts == 2:
            raise ZeroDivisionError
        async with opener(tmp_path)() as memory:
            yield memory

    async with Client(build(mended_later)) as client:
        assert await refused(client, "status") == "the disk is full; make room"
        with pytest.raises(MCPError, match="ZeroDivisionError"):
            await resource(client, "context://status")
        assert await call(client, "status")


@pytest.mark.parametrize("mode", ERAS)
async def test_the_instructions_are_those_of_the_memory_as_it_is(tmp_path: Path, mode: Mode) -> None:
    async with connected(tmp_path, mode=mode) as client:
        assert client.instructions == instructions.FIRST
        await say(client, "The launch is on Tuesday.")
    async with connected(tmp_path, mode=mode) as client:
        assert "1 conversation" in (client.instructions or "")
        assert len((client.instructions or "").encode()) < 2048


async def test_what_was_imported_before_the_first_server_is_not_called_nothing(tmp_path: Path) -> None:
    async with opener(tmp_path)() as memory:
        await observe(memory, NewTurn("user", "The launch is on Tuesday.", "s1"), Caller(source="cli"))
    async with connected(tmp_path) as client:
        assert "Nothing is stored" not in (client.instructions or "")
        assert "compile_context" in (client.instructions or "")


async def test_a_modern_client_hears_of_what_it_listens_to(tmp_path: Path) -> None:
    async with connected(tmp_path, maintained=True) as client:
        await call(client, "status")
        uris = ["context://compiled/mine", "memory://knowledge/memory/MEMORY.md"]
        async with client.listen(resource_subscriptions=uris) as events:
            await say(client, "The launch is on Tuesday.", session="mine")
            await heard(events, "context://compiled/mine")
            await call(client, "remember", content="The landlord is Petrović.", project="global")
            await heard(events, "memory://knowledge/memory/MEMORY.md")
            (tmp_path / "knowledge" / "memory" / "MEMORY.md").write_text("# Memory\n\nBy hand.\n")
            await heard(events, "memory://knowledge/memory/MEMORY.md")


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_an_older_client_hears_of_what_it_subscribed_to_until_it_unsubscribes(tmp_path: Path) -> None:
    updates = Updates()
    async with connected(tmp_path, mode="legacy", maintained=True, updates=updates) as client:
        await client.subscribe_resource("context://compiled/mine")
        await client.subscribe_resource("memory://knowledge/memory/MEMORY.md")
        await say(client, "The launch is on Tuesday.", session="mine")
        await updates.wait_for("context://compiled/mine")
        await updates.quiet()
        (tmp_path / "knowledge" / "memory" / "MEMORY.md").write_text("# Memory\n\nBy hand.\n")
        await updates.wait_for("memory://knowledge/memory/MEMORY.md")
        await client.unsubscribe_resource("context://compiled/mine")
        await updates.quiet()
        await say(client, "On Wednesday, after all.", session="mine")
        await call(client, "remember", content="The landlord is Petrović.", project="global")
        await updates.wait_for("memory://knowledge/memory/MEMORY.md")
        assert "context://compiled/mine" not in updates.seen


def received(line: str) -> SessionMessage | Exception:
    """What the SDK makes of a line, repaired."""
    try:
        return repaired(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
    except ValidationError as error:
        return repaired(error)


@given(st.text(st.characters(codec=None)))
def test_any_text_that_a_client_can_hold_arrives_and_only_half_characters_are_replaced(text: str) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"text": text}})
    item = received(line)
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCRequest)
    assert item.message.id == 7
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert (item.message.params or {})["text"].replace("\ufffd", "") == joined.replace("\ufffd", "")


@pytest.mark.parametrize("text", ["\\ud800", "\\\\ud800", "\\\\\\ud800 and \\ud83d\\ude00"])
def test_a_backslash_before_is_no_escape_of_ours(text: str) -> None:
    item = received(f'{{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {{"text": "{text}", "more": "\\udfff"}}}}')
    assert isinstance(item, SessionMessage)
    assert isinstance(item.message, JSONRPCRequest)
    wanted = json.loads(f'"{text}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert item.message.params == {"text": wanted, "more": "\ufffd"}


@pytest.mark.parametrize("line", ["", "not json \ud800", '{"jsonrpc": "2.0", "id": "\\ud800', '["\\ud800"]'])
def test_what_is_no_message_stays_an_error(line: str) -> None:
    assert isinstance(received(line), Exception)
