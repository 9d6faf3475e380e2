"""Resource `context://receipt/{session}`: why the compiled context is what it is."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.resources import ResourceSecurity

from mcp_server.connection import Connection


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.resource(
        "context://receipt/{session}",
        name="receipt",
        title="Receipt",
        mime_type="text/markdown",
        security=ResourceSecurity(exempt_params={"session"}),  # a handle is no path, whatever it looks like
    )
    async def receipt(session: str) -> str:
        """What went into a conversation's compiled context, what stayed out, and why."""
        from mcp_server.context.compile import CompileRequest, compile_context

        memory, caller = await connection.memory(), await connection.caller()
        return (await compile_context(memory, CompileRequest(session=session), caller)).receipt.markdown
