"""Serves over stdin and stdout, and repairs lines with half a character.

A JavaScript client that shortens a string between the two halves of an emoji sends a lone surrogate (`"\\ud83d"`).
The SDK drops such a line as invalid JSON, so the client would wait for its answer forever. This module replaces the
half character with U+FFFD, and the call is served.
"""

from __future__ import annotations

import contextvars
import re
from types import TracebackType
from typing import Any

from mcp.server import MCPServer
from mcp.server.stdio import stdio_server
from mcp.shared._context_streams import ContextReceiveStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter
from pydantic import ValidationError

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    r"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\."  # any other escape, a backslash among them
)

Item = SessionMessage | Exception


async def serve(mcp: MCPServer[Any]) -> None:
    """Serves until the client closes stdin."""
    server = mcp._lowlevel_server
    async with stdio_server() as (incoming, outgoing):
        await server.run(_RepairedStream(incoming), outgoing, server.create_initialization_options())


def repaired(item: Item) -> Item:
    """Returns the message of a line that was refused for half a character; returns anything else unchanged."""
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


class _RepairedStream:
    """The SDK's stream of incoming messages, each repaired."""

    def __init__(self, inner: ContextReceiveStream[Item]) -> None:
        self._inner = inner

    @property
    def last_context(self) -> contextvars.Context | None:
        """The sender's context, which the SDK restores for the handler."""
        return self._inner.last_context

    async def receive(self) -> Item:
        return repaired(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> _RepairedStream:
        return self

    async def __anext__(self) -> Item:
        return repaired(await self._inner.__anext__())

    async def __aenter__(self) -> _RepairedStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
