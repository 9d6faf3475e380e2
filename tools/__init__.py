"""The MCP tools. Adding one = an action, a file here, its name in `ALL`."""

from __future__ import annotations

from collections.abc import Callable

from mcp.server.mcpserver.tools import Tool

from mcp_server.connection import Connection
from tools import compile_context, observe, read, remember, search, status

ALL: tuple[Callable[[Connection], Tool], ...] = (
    search.tool,
    read.tool,
    remember.tool,
    observe.tool,
    compile_context.tool,
    status.tool,
)
"""Each makes its tool for one connection; in the order in which they are listed."""
