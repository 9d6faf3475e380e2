"""The MCP tools. Adding one = an action, a file here, its name in `ALL`."""

from __future__ import annotations

from collections.abc import Callable

from mcp.server.mcpserver.tools import Tool

from mcp_server.connection import Connection
from tools import anchor, checkpoint, compile_context, hook, observe, prune, read, recover, remember, search, status

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
"""Each makes its tool for one connection; in the order in which they are listed."""

WITH_HOOKS = (*(tool for tool in ALL if tool not in (observe.tool, compile_context.tool)), hook.tool)
"""For a client whose hooks record what is said and bring in the context: the model has nothing to do with either."""
