"""Notifies clients of changed resources, in both versions of the protocol.

New clients keep a `subscriptions/listen` request open, which the SDK serves from a bus. Older ones send
`resources/subscribe`, which its high-level API does not support: handlers on the low-level server (the private
attribute `_lowlevel_server`) store the connections of those clients (`ServerSession._connection`, private too).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import anyio
from mcp.server import MCPServer
from mcp.server.connection import Connection as Peer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated
from mcp.types import EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from mcp_server.storage.ports import Listener
from mcp_server.storage.values import Change

DEBOUNCE = 0.5
"""Seconds in which changes are collected before clients are notified."""


@dataclass(slots=True)
class Subscriptions:
    """The subscriptions of one server."""

    bus: InMemorySubscriptionBus = field(default_factory=InMemorySubscriptionBus)
    _listening: Counter[str] = field(default_factory=Counter)
    _subscribed: dict[Peer, set[str]] = field(default_factory=dict)

    def install(self, mcp: MCPServer[Any]) -> None:
        """Adds the handlers for older clients. The server receives `bus` and `watch` when it is built."""
        server = mcp._lowlevel_server
        server.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    async def watch(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Middleware that reads the URIs of new clients from their requests, because the bus does not give them."""
        if ctx.method != "subscriptions/listen":
            return await call_next(ctx)
        wanted = (ctx.params or {}).get("notifications") or {}
        uris = [uri for uri in wanted.get("resourceSubscriptions") or () if isinstance(uri, str)]
        self._listening.update(uris)
        try:
            return await call_next(ctx)
        finally:
            self._listening.subtract(uris)
            self._listening = +self._listening  # drop URIs without listeners

    async def tell(self, changes: Iterable[Change] | None) -> None:
        """Notifies the subscribers of all resources that these changes may concern; None means all resources."""
        paths = None if changes is None else [change.path for change in changes]
        for uri in [uri for uri, count in self._listening.items() if count > 0 and _concerns(uri, paths)]:
            await self.bus.publish(ResourceUpdated(uri=uri))
        for peer, uris in list(self._subscribed.items()):
            for uri in [uri for uri in uris if _concerns(uri, paths)]:
                await peer.send_resource_updated(uri)

    @staticmethod
    async def bursts(changes: Listener) -> AsyncIterator[list[Change]]:
        """Yields the changes, collected over `DEBOUNCE` seconds, without end."""
        while True:
            gathered = [await changes.receive()]
            await anyio.sleep(DEBOUNCE)
            with contextlib.suppress(anyio.WouldBlock):
                while True:
                    gathered.append(changes.receive_nowait())
            yield gathered

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


def _concerns(uri: str, paths: list[str | None] | None) -> bool:
    """Returns whether a change of these files may change a resource: its own file, or any file for a compiled one."""
    if not uri.startswith("memory://") or paths is None or None in paths:
        return True
    return unquote(uri.removeprefix("memory://")) in paths
