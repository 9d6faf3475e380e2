"""Tool `prune`: shows what could be removed from the context or the memory, and why; `dry_run=false` removes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio import CancelScope
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from tools.rim import Short, client_of, hints, strict_tool


def tool(connection: Connection) -> Tool:
    async def prune(
        ctx: Context[Any, Any],
        strategy: Annotated[
            Literal["auto", "clarity", "advisor", "compact", "memory", "files"],
            Field(
                description="auto: what is due; compact: shorten and drop; advisor: files, skills, agents; "
                "clarity: items; memory: MEMORY.md; files: knowledge"
            ),
        ] = "auto",
        dry_run: Annotated[bool, Field(description="false: do it; recover brings it back")] = True,
        session: Annotated[Short | None, Field(description="Handle of the conversation")] = None,
        target: Annotated[
            int | None, Field(ge=0, le=100_000, description="Size to shrink to: percent of the limit; memory: lines")
        ] = None,
    ) -> str:
        """Use when a context or the memory has grown too full: says what is kept, fading, gone, and why. If the client
        keeps its own window, only our copy of it changes."""
        from mcp_server.pressure.prune import prune as action

        memory = await connection.memory()
        caller = await connection.caller(client_of(ctx))
        with CancelScope(shield=True):  # a pruning must not stop halfway
            done = await action(memory, strategy, session, dry_run, caller, target=target)
            connection.saw(done.session)
        ask = f'prune(strategy="{done.strategy}", dry_run=false) does it.' if dry_run and done.changes else ""
        return " ".join(filter(None, (done.markdown, ask)))

    return strict_tool(prune, hints(reads=False, destroys=True))
