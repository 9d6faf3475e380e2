"""Tool `hook`: handles an event of a client whose hooks can call an MCP tool. It is offered only with `--hooks`."""

from __future__ import annotations

import json
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from tools.rim import hints, strict_tool

Long = Annotated[str, Field(max_length=50_000_000)]
Brief = Annotated[str, Field(max_length=200)]
Place = Annotated[str, Field(max_length=4096)]


def tool(connection: Connection) -> Tool:
    async def hook(
        event: Annotated[Brief, Field(min_length=1, description="SessionStart, UserPromptSubmit, Stop, …")],
        session_id: Brief = "",
        transcript_path: Place = "",
        cwd: Place = "",
        prompt: Long = "",
        source: Brief = "",
        trigger: Brief = "",
        reason: Brief = "",
        tool_name: Brief = "",
        agent_id: Brief = "",
        agent_type: Brief = "",
        last_assistant_message: Long = "",
    ) -> str:
        """Use when you are a hook of the client, never as a model: the client calls it, and no answer is for you."""
        from mcp_server.clients.hooks.events import handle
        from mcp_server.clients.hooks.listener import begun

        given = {
            "session_id": session_id,
            "transcript_path": transcript_path,
            "cwd": cwd,
            "prompt": prompt,
            "source": source,
            "trigger": trigger,
            "reason": reason,
            "tool_name": tool_name,
            "agent_id": agent_id,
            "agent_type": agent_type,
            "last_assistant_message": last_assistant_message,
        }
        # clients send fields that the event does not have as ""
        named = {name: value for name, value in given.items() if value}
        if connection.folder:
            named["project_dir"] = connection.folder
        memory = await connection.memory()
        connection.follow(session_id)
        if event == "UserPromptSubmit":
            await begun(memory)
        return json.dumps(await handle(memory, event, named))

    return strict_tool(hook, hints(reads=False, repeats=True))
