"""Builds the MCP server of one connection (tools, resources, prompts, subscriptions, background work) and serves it,
with the MCP App for clients that declare the extension for views.

Over stdin and stdout, lines with a lone surrogate are repaired. A JavaScript client sends one (`"\\ud83d"`) if it cuts
a string in the middle of an emoji. The SDK drops such a line as invalid JSON, so the client would wait for its answer
forever. The lone surrogate is replaced with U+FFFD, and the call is served.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import unquote

import anyio
from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.server.apps import APP_MIME_TYPE, Apps, client_supports_apps
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection as Peer
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.mcpserver.resources import FunctionResource
from mcp.server.mcpserver.tools import Tool
from mcp.server.request_state import RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, SubscriptionBus
from mcp.shared._context_streams import ContextReceiveStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    SubscribeRequestParams,
    UnsubscribeRequestParams,
    jsonrpc_message_adapter,
)
from pydantic import Field, ValidationError

import prompts
import resources
import tools
from mcp_server import __version__
from mcp_server.connection import Connection, Opening
from mcp_server.errors import Refused
from mcp_server.serve.instructions import FIRST
from mcp_server.storage.values import Change, Listener
from tools.compile_context import SHA256
from tools.rim import Rim, hints

if TYPE_CHECKING:
    from mcp_server.knowledge.review import Waiting
    from mcp_server.memory import Memory


_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."  # any other escape, a backslash among them
)

Item = SessionMessage | Exception


async def serve(mcp: MCPServer[Any]) -> None:
    server = mcp._lowlevel_server
    async with stdio_server() as (incoming, outgoing):
        await server.run(_RepairedStream(incoming._inner), outgoing, server.create_initialization_options())


def repaired(item: Item) -> Item:
    """Returns the message of a line that was refused for a lone surrogate; returns anything else unchanged."""
    if not isinstance(item, ValidationError):
        return item
    (problem, *_) = item.errors()
    line = problem["input"]
    if problem["type"] != "json_invalid" or not isinstance(line, str):
        return item
    whole = _ESCAPE.sub(lambda found: r"\ufffd" if found["half"] else found[0], line)
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(whole, by_name=False))
    except ValueError as error:
        return error


class _RepairedStream(ContextReceiveStream[Item]):
    """The SDK's stream of incoming messages, each repaired."""

    async def receive(self) -> Item:
        return repaired(await super().receive())

    async def __aenter__(self) -> Self:
        return self


logger = logging.getLogger(__name__)

DEBOUNCE = 0.5
"""Seconds in which changes are gathered before clients are notified."""

FRESH = CacheHint(ttl_ms=0, scope="private")
"""Resources are compiled at each read, so clients must not cache them."""


@dataclass(slots=True)
class Subscriptions:
    """The resource subscriptions of one server, in both protocol versions.

    Modern clients keep a `subscriptions/listen` request open, which the SDK serves from a bus. Older ones send
    `resources/subscribe`, which the SDK's high-level API does not support, so handlers are added to its low-level
    server (`_lowlevel_server`) and keep those clients' connections (`ServerSession._connection`); both are private.
    """

    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    _listening: Counter[str] = field(default_factory=Counter)
    _subscribed: dict[Peer, set[str]] = field(default_factory=dict)

    def install(self, mcp: MCPServer[Any]) -> None:
        """Adds the handlers for older clients; the server was built with `bus` and `watch`."""
        server = mcp._lowlevel_server
        server.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    async def watch(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware that counts the URIs in listen requests, because the bus does not reveal them."""
        if ctx.method != "subscriptions/listen":
            return await call_next(ctx)
        wanted = (ctx.params or {}).get("notifications") or {}
        uris = [uri for uri in wanted.get("resourceSubscriptions") or () if isinstance(uri, str)]
        self._listening.update(uris)
        try:
            return await call_next(ctx)
        finally:
            self._listening.subtract(uris)
            self._listening = +self._listening  # drops zero counts

    async def notify(self, changes: Iterable[Change] | None) -> None:
        """Notifies subscribers of resources that may have changed; None means all resources."""
        paths = None if changes is None else [change.path for change in changes]
        for uri in [uri for uri, count in self._listening.items() if count > 0 and _may_have_changed(uri, paths)]:
            await self.bus.publish(ResourceUpdated(uri=uri))
        for peer, uris in list(self._subscribed.items()):
            for uri in [uri for uri in uris if _may_have_changed(uri, paths)]:
                await peer.send_resource_updated(uri)

    async def follow(self, changes: Listener) -> None:
        """Notifies subscribers of changes, gathered over `DEBOUNCE` seconds, until it is cancelled."""
        await self.notify(None)
        while True:
            gathered = [await changes.receive()]
            await anyio.sleep(DEBOUNCE)
            with contextlib.suppress(anyio.WouldBlock):
                while True:
                    gathered.append(changes.receive_nowait())
            await self.notify(gathered)

    async def _subscribe(self, context: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        peer = context.session._connection
        if peer not in self._subscribed:
            self._subscribed[peer] = set()
            peer.exit_stack.callback(self._subscribed.pop, peer, None)
        self._subscribed[peer].add(str(params.uri))
        return EmptyResult()

    async def _unsubscribe(
        self, context: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        self._subscribed.get(context.session._connection, set()).discard(str(params.uri))
        return EmptyResult()


def _may_have_changed(uri: str, paths: list[str | None] | None) -> bool:
    """Returns True if a resource may have changed: a file if it is in `paths`, a compiled resource after any change."""
    if not uri.startswith("memory://") or paths is None or None in paths:
        return True
    return unquote(uri.removeprefix("memory://")) in paths


VIEW = "ui://context-manager/view.html"
DECIDE = "decide_change"
HTML = "context-manager/html"
"""The key in a result's `_meta` of the HTML that the view shows."""

VIEWED = ("compile_context", "remember")
"""Tools whose results have a view."""


class MemoryApp(Apps):
    """The MCP App: a view of compiled contexts and proposed changes, the view's HTML, and the tool that it calls.

    `memory` returns the open memory. Replicas that serve the same clients share a `secret`.

    Every client gets the same text. The result for a client with views also has HTML in its `_meta`, which clients give
    to the view and not to the model.

    The user decides about a proposed change in the view, which then calls `decide_change`. A model cannot use this
    tool: it needs a key that only the view gets, and that is valid only for the change as it was shown. Clients without
    views can neither see nor call the tool.
    """

    def __init__(self, memory: Callable[[], Awaitable[Memory]], secret: bytes | None = None) -> None:
        super().__init__()
        self._memory = memory
        self._secret = secret or secrets.token_bytes(32)
        self.add_resource(
            FunctionResource(
                uri=VIEW,
                name="view",
                title="Context manager",
                mime_type=APP_MIME_TYPE,
                meta={"ui": {"prefersBorder": True}},
                fn=_document,
            )
        )
        offered = self.tool(
            resource_uri=VIEW,
            visibility=["app"],
            name=DECIDE,
            annotations=hints(reads=False, destroys=True, repeats=False),
            structured_output=False,
        )
        offered(self._decide)

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Adds the HTML for the view to results, and refuses `decide_change` to clients without views."""
        views = client_supports_apps(ctx)
        if params.name == DECIDE and not views:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {DECIDE}")
        result = await call_next(ctx)
        if not views or not isinstance(result, CallToolResult):
            return result
        if params.name == DECIDE or (params.name in VIEWED and not result.is_error):
            try:
                result.meta = {**(result.meta or {}), HTML: await self._html(params.name, result)}
            except Exception:  # the call itself succeeded, and the view can show the text
                logger.exception("the view of %s could not be rendered", params.name)
        return result

    async def hide(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware that lists neither `decide_change` nor the view to clients without views."""
        result = await call_next(ctx)
        if isinstance(result, dict) and not client_supports_apps(ctx):
            if ctx.method == "tools/list":
                return {**result, "tools": [tool for tool in result["tools"] if tool["name"] != DECIDE]}
            if ctx.method == "resources/list":
                return {**result, "resources": [one for one in result["resources"] if one["uri"] != VIEW]}
        return result

    async def _html(self, tool: str, result: CallToolResult) -> str:
        from mcp_server.page import view

        memory = await self._memory()
        if tool == "compile_context":
            return await view.receipt(memory, (result.meta or {})[SHA256])
        return await view.changes(memory, result.structured_content, self._key)

    async def _decide(
        self,
        change: Annotated[str, Field(max_length=40)],
        key: Annotated[str, Field(max_length=64)],
        approve: bool,
    ) -> str:
        """For the view only: carries out the user's decision about a proposed change."""
        from mcp_server.knowledge.review import approve as write
        from mcp_server.knowledge.review import reject, waiting

        memory = await self._memory()
        (found,) = await waiting(memory, change)
        if not hmac.compare_digest(key.encode(), self._key(found).encode()):
            raise Refused(
                "this change is not the one that was shown: only the user decides, in the view or with "
                "`context-manager approve`, which shows it as it is now"
            )
        if approve:
            done = await write(memory, change, anyway=found.changed)
            return f"The user approved the change: {done.path} is {done.action}."
        return f"The user rejected the change: {(await reject(memory, change)).path} stays as it is."

    def _key(self, change: Waiting) -> str:
        return hmac.new(self._secret, change.mark.encode(), hashlib.sha256).hexdigest()


def with_view(tool: Tool) -> Tool:
    """Returns the tool with the address of the view, if its results have one."""
    if tool.name in VIEWED:
        # Some clients read only the flat key, which is older than the standard.
        tool.meta = {"ui": {"resourceUri": VIEW}, "ui/resourceUri": VIEW}
    return tool


def _document() -> str:
    from mcp_server.page.view import document

    return document()


def build(
    enter: Callable[[], AbstractAsyncContextManager[Memory]],
    *,
    transport: Literal["stdio", "http"] = "stdio",
    folder: str | None = None,
    instructions: Callable[[], str] = lambda: FIRST,
    hooks: bool = False,
    profile: tools.Profile = "core",
    window: str | None = None,
) -> Rim:
    """Returns the server of a workspace. `enter` opens it after the first answer, or for the first call that needs it.

    `folder` is the client's folder (its project); `instructions` is called at each handshake. `hooks`: the client's
    hooks record and add the context, so the model gets no tools for it; `window` is the id that hooks have of the
    client's window. `profile`: which tools are offered.
    """
    subscriptions = Subscriptions()

    async def work(memory: Memory) -> None:
        """Notifies subscribers of changes while the workspace is open."""
        if folder and not hooks:
            from mcp_server.context import briefs
            from mcp_server.conversations.projects import project_of
            from mcp_server.model import Caller

            await briefs.know_folders(memory, {folder: await project_of(memory, Caller(folder=folder))})
        async with memory.changes.listen() as changes:
            await subscriptions.follow(changes)

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

    async def answered(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware that lets the workspace open after the first answer."""
        result = await call_next(ctx)
        opening.answered()
        return result

    mcp = assemble(
        Connection(opening.memory, transport, folder, window),
        life,
        [answered, subscriptions.watch],
        subscriptions.bus,
        instructions,
        hooks=hooks,
        profile=profile,
    )
    subscriptions.install(mcp)
    return mcp


def assemble(
    connection: Connection,
    life: Callable[[MCPServer[Any]], AbstractAsyncContextManager[None]],
    middleware: Sequence[ServerMiddleware[Any]],
    bus: SubscriptionBus,
    instructions: Callable[[], str],
    *,
    hooks: bool = False,
    profile: tools.Profile = "core",
    secret: bytes | None = None,
) -> Rim:
    """Returns a server with all tools, resources and prompts for `connection`.

    Replicas that serve the same clients share a `secret`: a client's answer to a question may reach another replica.
    """

    async def instruct(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware that puts the current instructions into the handshake of either protocol version."""
        result = await call_next(ctx)
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            result = {**result, "instructions": await run_sync(instructions)}
        return result

    app = MemoryApp(connection.memory, secret)
    mcp = Rim(
        "context-manager",
        title="Context manager",
        version=__version__,
        tools=[with_view(tool(connection)) for tool in tools.offered(profile, hooks=hooks)],
        lifespan=life,
        log_level="WARNING",
        cache_hints={"resources/read": FRESH},
        subscriptions=bus,
        middleware=[*middleware, instruct, app.hide],
        extensions=[app],
        request_state_security=RequestStateSecurity(keys=[secret]) if secret else None,
    )
    mcp.memory = connection.memory
    for register in (resources.add, resources.completion, prompts.add):
        register(mcp, connection)
    return mcp
