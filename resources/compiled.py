"""Resources `context://compiled` and `context://compiled/{session}`: the compiled context, ready to be read."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.resources import ResourceSecurity

from mcp_server.connection import URI, Connection


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.resource(URI, name="compiled", title="Compiled context", mime_type="text/markdown")
    async def compiled() -> str:
        """What the memory holds for this connection's conversation; with none or several, what all share."""
        return (await connection.compiled()).text

    @mcp.resource(
        f"{URI}/{{session}}",
        name="compiled-session",
        title="Compiled context",
        mime_type="text/markdown",
        security=ResourceSecurity(exempt_params={"session"}),  # a handle is no path, whatever it looks like
    )
    async def compiled_session(session: str) -> str:
        """What the memory holds for one conversation, as of its last user turn."""
        from mcp_server.context.compile import CompileRequest, compile_context

        memory, caller = await connection.memory(), await connection.caller()
        return (await compile_context(memory, CompileRequest(session=session), caller)).text
