"""The MCP prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer

from mcp_server.connection import Connection
from prompts import clarity, prune_review, reflect, resume

ALL: tuple[Callable[[MCPServer[Any], Connection], None], ...] = (
    reflect.register,
    clarity.register,
    prune_review.register,
    resume.register,
)
