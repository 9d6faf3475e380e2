"""Resources `context://checkpoints` and `context://checkpoint/{id}`: the stored checkpoints."""

from __future__ import annotations

from typing import Any

from mcp.server import MCPServer

from mcp_server.connection import Connection


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.resource("context://checkpoints", name="checkpoints", title="Checkpoints", mime_type="text/markdown")
    async def checkpoints() -> str:
        """The checkpoints that are kept, the newest first: id, time, session, why it was made."""
        from mcp_server.checkpoints.stored import listed, listed_text

        return listed_text(await listed(await connection.memory()))

    @mcp.resource("context://checkpoint/{id}", name="checkpoint", title="Checkpoint", mime_type="text/markdown")
    async def checkpoint(id: str) -> str:  # noqa: A002 - the name in the URI
        """One checkpoint: what was decided, what is open, what the conversation's state was."""
        from mcp_server.checkpoints.stored import read, shown_text

        return shown_text(await read(await connection.memory(), id))
