"""Tool `anchor`: marks an item that must stay in the context."""

from __future__ import annotations

from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from tools.rim import hints, strict_tool


def tool(connection: Connection) -> Tool:
    async def anchor(
        item: Annotated[
            str,
            Field(min_length=1, max_length=500, description="A name; or a chunk's id, a path, path#turn, path#line"),
        ],
        on: Annotated[bool, Field(description="false: take the anchor off")] = True,
        note: Annotated[str | None, Field(max_length=500, description="Why")] = None,
    ) -> str:
        """Use when something must stay in view however long the conversation gets: an anchored name scores highest, and
        whatever names it is never dropped."""
        from mcp_server.knowledge.anchor import anchor as action

        return (await action(await connection.memory(), item, on, note)).markdown

    return strict_tool(anchor, hints(reads=False))
