"""The MCP resources. Each has a tool that says the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer

from mcp_server.connection import Connection
from resources import checkpoints, clarity, compiled, files, receipt, status, topics

ALL: tuple[Callable[[MCPServer[Any], Connection], None], ...] = (
    compiled.register,
    receipt.register,
    status.register,
    clarity.register,
    checkpoints.register,
    topics.register,
    files.register,
)
