"""Completion of the arguments of resource templates and prompts: session handles, checkpoints, paths."""

from __future__ import annotations

from typing import Any

from anyio.to_thread import run_sync
from mcp.server import MCPServer
from mcp.types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

from mcp_server.connection import Connection
from mcp_server.relevance.clarity_scores import COMMANDS

MOST = 100


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.completion()  # type: ignore[no-untyped-call,untyped-decorator]  # the SDK left it without types
    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion | None:
        from mcp_server.checkpoints.stored import listed
        from mcp_server.conversations.sessions import list_sessions
        from mcp_server.relevance.clarity_views import items_of

        memory = await connection.memory()
        if argument.name == "session":
            known = [row.session for row in await list_sessions(memory, limit=1000)]
            if isinstance(ref, PromptReference) and ref.name == "resume":
                known += [head.id for head in await listed(memory)]
        elif argument.name == "id":
            known = [head.id for head in await listed(memory)]
        elif argument.name == "path":
            known = sorted(stat.path for stat in await run_sync(lambda: list(memory.files.walk(""))))
        elif isinstance(ref, PromptReference) and argument.name == "action":
            known = list(COMMANDS)
        elif isinstance(ref, PromptReference) and argument.name == "item":
            known = await items_of(memory, connection.session)
        else:
            return None
        fitting = [value for value in known if value.startswith(argument.value)]
        return Completion(values=fitting[:MOST], total=len(fitting), has_more=len(fitting) > MOST)
