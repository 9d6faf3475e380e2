"""Resource `memory://{+path}`: a file of the workspace."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.resources import ResourceSecurity

from mcp_server.connection import Connection

LONGEST = 25_000
"""Tokens of one answer; what is cut says how the tool `read` gives the rest."""


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    # The workspace refuses paths that leave it, and says why; the SDK would only say "unknown resource".
    @mcp.resource(
        "memory://{+path}",
        name="file",
        title="Memory file",
        mime_type="text/markdown",
        security=ResourceSecurity(exempt_params={"path"}),
    )
    async def file(path: str) -> str:
        """A file of the memory, as it is now."""
        from mcp_server.conversations.read import read

        return (await read(await connection.memory(), path, max_tokens=LONGEST)).markdown
