"""The MCP tools. Adding one = an action, a file here, its name in `ALL`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from mcp.server.mcpserver.tools import Tool

from mcp_server.connection import Connection
from tools import (
    anchor,
    checkpoint,
    compile_context,
    forget,
    history,
    hook,
    observe,
    prune,
    read,
    recover,
    remember,
    search,
    status,
    topics,
)

Profile = Literal["core", "full"]

ALL: tuple[Callable[[Connection], Tool], ...] = (
    search.tool,
    read.tool,
    remember.tool,
    observe.tool,
    compile_context.tool,
    anchor.tool,
    prune.tool,
    checkpoint.tool,
    recover.tool,
    status.tool,
)
"""Functions that make the tools for one connection, in the order in which they are listed."""

FULL = (topics.tool, history.tool, forget.tool)
"""Tools that only `--tools full` offers: each one costs the model tokens, and few conversations need these."""


def offered(profile: Profile = "core", *, hooks: bool = False) -> tuple[Callable[[Connection], Tool], ...]:
    """Returns the tools that a server offers. With `hooks`, the client's hooks record the conversation and add the
    context, so the two tools for that are left out, and `forget` is offered in their place."""
    chosen = (*ALL, *FULL) if profile == "full" else ALL
    if hooks:
        rest = [tool for tool in chosen if tool not in (observe.tool, compile_context.tool, forget.tool)]
        chosen = (*rest, forget.tool, hook.tool)
    return chosen
