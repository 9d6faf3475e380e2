"""Tool `compile_context`: returns the compiled context for a message, within a token budget."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent
from pydantic import Field

from mcp_server.connection import Connection
from tools.rim import Short, client_of, hints, strict_tool

SHA256 = "context-manager/sha256"
"""The key in the result's `_meta` of the compiled text's hash, which identifies its record in the log."""


def tool(connection: Connection) -> Tool:
    async def compile_context(
        ctx: Context[Any, Any],
        message: Annotated[
            str | None, Field(max_length=50_000_000, description="What is asked; default: the last user turn")
        ] = None,
        session: Annotated[Short | None, Field(description="Handle of the conversation")] = None,
        budget: Annotated[int | None, Field(ge=128, le=1_000_000, description="Tokens; default from settings")] = None,
        format: Annotated[  # noqa: A002 - the argument's name is the specification's
            Literal["markdown", "receipt"], Field(description="receipt: what is in, what is out, and why")
        ] = "markdown",
    ) -> CallToolResult:
        """Use when you begin a task or the subject changes: returns the memory's best background for a message, within
        the budget. No search needed."""
        from mcp_server.context.compile import CompileRequest
        from mcp_server.context.compile import compile_context as compiled_for

        client = client_of(ctx)
        if (message, session, budget, format) == (None, None, None, "markdown"):
            compiled = await connection.compiled(client)
        else:
            memory, caller = await connection.memory(), await connection.caller(client)
            request = CompileRequest(message=message, session=session, budget=budget)
            compiled = await compiled_for(memory, request, caller, await connection.personal())
            connection.saw(session)
        text = compiled.receipt.markdown if format == "receipt" else compiled.shown
        return CallToolResult(content=[TextContent(type="text", text=text)], _meta={SHA256: compiled.sha256})

    return strict_tool(compile_context, hints(reads=True))
