"""Resource `context://status`: the state of the memory."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer

from mcp_server.connection import Connection


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.resource("context://status", name="status", title="Memory status", mime_type="text/markdown")
    async def status() -> str:
        """What the memory holds, whether its index is up to date, and what is wrong with it."""
        from mcp_server.status.status import status as look

        return (await look(await connection.memory())).markdown
