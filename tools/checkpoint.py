"""Tool `checkpoint`: saves the state of a conversation, to continue it or return to it later."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import CancelScope
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from tools.rim import Short, client_of, hints, strict_tool


def tool(connection: Connection) -> Tool:
    async def checkpoint(
        ctx: Context[Any, Any],
        session: Annotated[Short | None, Field(description="Handle of the conversation")] = None,
        note: Annotated[str | None, Field(max_length=500, description="Why")] = None,
    ) -> str:
        """Use when you may want to return to this point of the conversation, or continue it elsewhere: before something
        risky, at the end of a piece of work. Returns an id for recover."""
        from mcp_server.checkpoints.checkpoint import made_text, make
        from mcp_server.errors import Invalid

        memory, caller = await connection.memory(), await connection.caller(client_of(ctx))
        meant = session or caller.session
        if meant is None:
            raise Invalid("the conversation is not known; pass the `session` that observe returned")
        with CancelScope(shield=True):  # a checkpoint must not stop halfway
            made = await make(memory, meant, "asked", note or "")
        connection.saw(made.session)
        return made_text(made)

    return strict_tool(checkpoint, hints(reads=False, repeats=False))
