"""Tool `topics`: lists, activates and explains the playbooks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from mcp_server.errors import Invalid
from tools.rim import Short, client_of, hints, strict_tool


def tool(connection: Connection) -> Tool:
    async def topics(
        ctx: Context[Any, Any],
        action: Annotated[
            Literal["list", "activate", "deactivate", "explain"], Field(description="What to do")
        ] = "list",
        name: Annotated[Short | None, Field(description="Which topic (activate, deactivate)")] = None,
        message: Annotated[
            str | None, Field(max_length=100_000, description="explain: what would it add, and why?")
        ] = None,
        session: Annotated[Short | None, Field(description="Handle from an earlier answer")] = None,
    ) -> str:
        """Use when the user asks which playbooks exist, wants one in or out of this conversation, or asks why one was
        added."""
        from mcp_server.context.try_message import try_message
        from mcp_server.relevance.clarity import session_meant
        from mcp_server.topics import listing as action_

        memory, caller = await connection.memory(), await connection.caller(client_of(ctx))
        meant = session or caller.session
        if action == "list":
            return (await action_.list_topics(memory, meant)).markdown
        if action == "explain":
            if not message:
                raise Invalid("explain needs `message`: the text to try")
            return (await try_message(memory, message)).markdown
        if not name:
            raise Invalid(f"{action} needs `name`: which topic (action=list shows them)")
        on = action == "activate"
        return (await action_.switch(memory, name, await session_meant(memory, meant), on=on)).markdown

    return strict_tool(topics, hints(reads=False))
