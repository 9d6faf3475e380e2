"""Tool `status`: reports the state of the memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required

from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from mcp_server.connection import Connection
from tools.rim import MaxTokens, Short, answer, hints, strict_tool


class Report(TypedDict, total=False):
    """The requested views, as many as fit."""

    workspace: Required[str]
    problems: Required[list[str]]
    cut: Required[str | None]
    sessions: dict[str, Any]
    gauges: dict[str, Any]
    clarity: dict[str, Any]
    topics: dict[str, Any]
    hooks: dict[str, Any]
    index: dict[str, Any]
    git: dict[str, Any]
    llm: dict[str, Any]
    settings: dict[str, Any]
    sizes: dict[str, Any]


View = Literal["all", "sessions", "gauges", "clarity", "topics", "hooks", "index", "git", "llm", "settings", "sizes"]


def tool(connection: Connection) -> Tool:
    async def status(
        view: Annotated[View, Field(description="One part of it")] = "all",
        session: Annotated[Short | None, Field(description="Only this conversation")] = None,
        max_tokens: MaxTokens = 2000,
    ) -> Annotated[CallToolResult, Report]:
        """Use when you need a session's handle, or want to know what the memory holds, whether its index is up to date,
        and what is wrong with it."""
        from mcp_server.status import status as action

        report = await action.status(await connection.memory(), view, session, max_tokens)
        return answer(report.markdown, report.as_dict())

    return strict_tool(status, hints(reads=True), structured=True)
