"""Tool `anchor`: marks an item that must stay in the context, or lists the anchors."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from tools.rim import client_of, hints, strict_tool


def tool(connection: Connection) -> Tool:
    async def anchor(
        ctx: Context[Any, Any],
        item: Annotated[
            str | None,
            Field(
                min_length=1,
                max_length=500,
                description="A name; or a chunk's id, a path, path#turn, path#line. Default: list the anchors",
            ),
        ] = None,
        on: Annotated[bool, Field(description="false: remove the anchor")] = True,
        note: Annotated[str | None, Field(max_length=500, description="Why")] = None,
    ) -> str:
        """Use when something must stay in view however long the conversation gets: an anchored name scores highest, and
        chunks that name it are never dropped."""
        from mcp_server.knowledge.anchor import anchor as action
        from mcp_server.knowledge.anchor import anchors_text
        from mcp_server.relevance.clarity import anchored_text

        memory = await connection.memory()
        if item is None:
            return anchors_text(memory)
        caller = await connection.caller(client_of(ctx))
        return await anchored_text(memory, await action(memory, item, on, note), caller.session)

    return strict_tool(anchor, hints(reads=False))
