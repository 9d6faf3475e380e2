"""Tool `read`: returns a file of the memory or some of its lines, as of now or of an earlier commit or date."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from tools.rim import MaxTokens, Path, Short, hints, strict_tool


def tool(connection: Connection) -> Tool:
    async def read(
        path: Annotated[Path, Field(description="Workspace path, as search and status give it")],
        start: Annotated[int | None, Field(ge=1, description="First line")] = None,
        end: Annotated[int | None, Field(ge=1, description="Last line")] = None,
        at: Annotated[Short | None, Field(description="Commit, tag or date: the file as it was")] = None,
        max_tokens: MaxTokens = 2000,
    ) -> str:
        """Use when you know a path of the memory and want its text: the lines around a search result, a whole note, an
        earlier version."""
        from mcp_server.conversations import read as action
        from mcp_server.text.destinations import OWN

        personal = await connection.personal() if path.startswith(OWN) else None
        if personal is None:
            return (await action.read(await connection.memory(), path, start, end, at, max_tokens)).markdown
        found = await action.read(personal, path.removeprefix(OWN), start, end, at, max_tokens)
        return replace(found, path=OWN + found.path).markdown

    return strict_tool(read, hints(reads=True))
