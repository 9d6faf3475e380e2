"""Builds the MCP server of one connection: tools, resources, prompts and background work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import anyio
from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

import prompts
import resources
import tools
from mcp_server import __version__
from mcp_server.connection import Connection
from mcp_server.serve.instructions import now
from mcp_server.serve.opening import Opening
from mcp_server.serve.subscriptions import Subscriptions
from resources import completion
from tools.rim import Rim

if TYPE_CHECKING:
    from mcp_server.memory import Memory

FRESH = CacheHint(ttl_ms=0, scope="private")
"""Resources are compiled at each read, so clients must not cache them."""


def build(
    enter: Callable[[], AbstractAsyncContextManager[Memory]],
    *,
    transport: Literal["stdio", "http"] = "stdio",
    folder: str | None = None,
    instructions: Callable[[], str] | None = None,
    hooks: bool = False,
    profile: tools.Profile = "core",
    window: str | None = None,
) -> Rim:
    """Returns the server of a workspace. `enter` opens it after the first answer, or for the first call that needs it.

    `folder` is the client's folder (its project); `instructions` is called at each handshake. `hooks`: the client's
    hooks record and add the context, so the model gets no tools for it; `window` is their name of the client's window.
    `profile`: which tools are offered.
    """
    subscriptions = Subscriptions()
    instruct_with = instructions or (lambda: now(None, None, hooks))

    async def work(memory: Memory) -> None:
        """Notifies subscribers of changes while the workspace is open."""
        if folder and not hooks:
            from mcp_server.context import briefs
            from mcp_server.conversations.projects import project_of
            from mcp_server.model import Caller

            await briefs.know_folder(memory, folder, await project_of(memory, Caller(folder=folder)))
        async with memory.changes.listen() as changes:
            await subscriptions.tell(None)
            async for burst in subscriptions.bursts(changes):
                await subscriptions.tell(burst)

    opening = Opening(enter, work)

    @asynccontextmanager
    async def life(server: MCPServer[Any]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opening.run)
            if transport == "http":
                opening.answered()
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    await opening.close()
                tasks.cancel_scope.cancel()

    async def instruct(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware that puts the current instructions into the handshake of either protocol version."""
        result = await call_next(ctx)
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            result = {**result, "instructions": await run_sync(instruct_with)}
        opening.answered()
        return result

    connection = Connection(opening.memory, transport, folder, window)
    mcp = Rim(
        "context-manager",
        title="Context manager",
        version=__version__,
        tools=[tool(connection) for tool in tools.offered(profile, hooks=hooks)],
        lifespan=life,
        log_level="WARNING",
        cache_hints={"resources/read": FRESH},
        subscriptions=subscriptions.bus,
        middleware=[subscriptions.watch, instruct],
    )
    mcp.memory = opening.memory
    for register in (*resources.ALL, completion.register, *prompts.ALL):
        register(mcp, connection)
    subscriptions.install(mcp)
    return mcp
