"""Resource `context://topics`: the topics and their state in this connection's session."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer

from mcp_server.connection import Connection


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.resource("context://topics", title="Topics", mime_type="text/markdown")
    async def topics() -> str:
        """The topics: what each is for, what sets it off, and which are active in this connection's session."""
        from mcp_server.topics.listing import list_topics

        caller = await connection.caller()
        return (await list_topics(await connection.memory(), caller.session)).markdown
