"""The MCP prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer

from mcp_server.connection import Connection
from prompts import clarity, flush, prune_review, reflect, resume

ALL: tuple[Callable[[MCPServer[Any], Connection], None], ...] = (
    reflect.register,
    flush.register,
    clarity.register,
    prune_review.register,
    resume.register,
)
