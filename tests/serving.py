"""A served workspace for the tests of the rim: in memory, or as a real process."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import numpy  # noqa: F401 - in the server's own process `serve` loads it before threads can do so at the same moment
from mcp import Client, StdioServerParameters
from mcp.client.extension import advertise
from mcp.server import MCPServer
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
from mcp.server.subscriptions import ResourceUpdated
from mcp.types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    ResourceUpdatedNotification,
    TextContent,
    TextResourceContents,
)

import tools
from mcp_server.app import maintain, open_memory
from mcp_server.memory import Memory
from mcp_server.serve import instructions
from mcp_server.serve.server import build
from tests import preloaded
from tests.conftest import copied, template
from tests.running import environ

ROOT = Path(__file__).parent.parent
PLAIN = {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none", "CONTEXT_MANAGER_WORKSPACE__TIMEZONE": "UTC"}
"""Settings of the tests: keyword search only, so that no process loads weights."""

Mode = Literal["auto", "legacy"]
ERAS: list[Mode] = ["auto", "legacy"]


def opener(root: Path, maintained: bool = False) -> Callable[[], AbstractAsyncContextManager[Memory]]:
    """Opens the workspace at `root` each time it is called. A missing or empty folder becomes a copy of a new one."""

    @asynccontextmanager
    async def enter() -> AsyncIterator[Memory]:
        if not root.exists() or not any(root.iterdir()):
            copied(template(), root)
        async with open_memory(root, PLAIN) as memory:
            if maintained:
                async with maintain(memory):
                    yield memory
            else:
                yield memory

    return enter


@asynccontextmanager
async def connected(
    root: Path,
    *,
    client: str = "test-agent",
    mode: Mode = "auto",
    transport: Literal["stdio", "http"] = "stdio",
    maintained: bool = False,
    folder: str | None = None,
    profile: tools.Profile = "core",
    updates: Updates | None = None,
    views: bool = False,
    user: User | None = None,
) -> AsyncIterator[Client]:
    """A client of a server in this process, on the workspace at `root`. With `views` it can show views, with a `user`
    it can ask."""
    told = partial(instructions.now, root, root / ".local")
    server = build(opener(root, maintained), transport=transport, folder=folder, instructions=told, profile=profile)
    async with _client(server, client, mode, updates, views, user) as connection:
        yield connection


@asynccontextmanager
async def process(
    root: Path,
    *,
    client: str = "test-agent",
    mode: Mode = "auto",
    updates: Updates | None = None,
    cwd: Path | None = None,
    fresh: bool = False,
) -> AsyncIterator[Client]:
    """A client of a real server process, over stdio. A `fresh` one does its imports itself."""
    program = ("-m", "mcp_server")
    command, *arguments = [sys.executable, *program] if fresh else preloaded.python(*program)
    server = StdioServerParameters(command=command, args=arguments, env=environment(root), cwd=str(cwd or ROOT))
    async with _client(server, client, mode, updates) as connection:
        yield connection


def _client(
    server: MCPServer[Any] | StdioServerParameters,
    name: str,
    mode: Mode,
    updates: Updates | None,
    views: bool = False,
    user: User | None = None,
) -> Client:
    return Client(
        server,
        mode=mode,
        client_info=Implementation(name=name, version="1"),
        message_handler=updates.handle if updates else None,
        elicitation_callback=user,
        extensions=[advertise(EXTENSION_ID, {"mimeTypes": [APP_MIME_TYPE]})] if views else None,
    )


def environment(root: Path) -> dict[str, str]:
    """The environment of a real process on the workspace at `root`."""
    return {**environ(), **PLAIN, "CONTEXT_MANAGER_HOME": str(root)}


class User:
    """A user who gives these replies, one after the other, to what a client asks."""

    def __init__(self, *replies: ElicitResult) -> None:
        self.asked: list[str] = []
        self._replies = iter(replies)

    async def __call__(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return next(self._replies)


async def heard(events: AsyncIterator[object], uri: str) -> None:
    """Waits until a client of the newer era hears of an update of `uri`; fails after a minute."""
    with anyio.fail_after(60):
        async for event in events:
            if isinstance(event, ResourceUpdated) and event.uri == uri:
                return


class Updates:
    """The `notifications/resources/updated` that a client of the older era has got."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._came = anyio.Event()

    async def handle(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            self.seen.append(str(message.params.uri))
            self._came.set()

    async def wait_for(self, uri: str) -> None:
        """Waits for an update of `uri` after the last quiet; fails after a minute."""
        with anyio.fail_after(60):
            while uri not in self.seen:
                self._came = anyio.Event()
                await self._came.wait()

    async def quiet(self) -> None:
        """Waits until nothing has come for longer than changes are gathered, and forgets what came."""
        while True:
            self._came = anyio.Event()
            with anyio.move_on_after(1.5):
                await self._came.wait()
                continue
            self.seen.clear()
            return


def text(result: CallToolResult) -> str:
    """The text of a tool's answer."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a tool's answer, which must not be an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text(result)
    return text(result)


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a tool's error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text(result)
    return text(result)


async def say(client: Client, content: str, role: str = "user", **arguments: Any) -> str:
    """Observes a message; returns the session's handle."""
    first = (await call(client, "observe", role=role, content=content, **arguments)).splitlines()[0]
    assert first.startswith("session: ")
    return first.removeprefix("session: ")


async def resource(client: Client, uri: str) -> str:
    """The text of a resource."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def prompt(client: Client, name: str, **arguments: str) -> str:
    """The text of a prompt."""
    (message,) = (await client.get_prompt(name, arguments)).messages
    assert isinstance(message.content, TextContent)
    return message.content.text
