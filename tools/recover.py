"""Tool `recover`: brings back what was dropped from a context, archived or changed."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import CancelScope
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from mcp_server.errors import Invalid
from tools.rim import MaxTokens, Path, client_of, fitted, hints, strict_tool

LISTED = 10
"""Maximum number of each kind."""


def tool(connection: Connection) -> Tool:
    async def recover(
        ctx: Context[Any, Any],
        id: Annotated[Path | None, Field(description="As listed, or PATH@REV")] = None,  # noqa: A002 - the tool's argument
        knowledge: Annotated[bool | None, Field(description="With a checkpoint: its knowledge files too")] = None,
        query: Annotated[Path | None, Field(description="Find it by words in it")] = None,
        dry_run: Annotated[bool, Field(description="false: do it; the answer says how to undo it")] = True,
        max_tokens: MaxTokens = 2000,
    ) -> str:
        """Use when something is needed again that left the context (dropped, summarized) or the memory (archived,
        changed), or a session should go back to a checkpoint. Without arguments: lists what can be recovered."""
        from mcp_server.recovery.recover import recover as action
        from mcp_server.recovery.recoverable import as_text, meant, recoverable

        memory = await connection.memory()
        if id is None and (dry_run or query is None):
            if not dry_run:
                raise Invalid("give an id (recover without arguments lists them), or a query")
            text = as_text(await recoverable(memory, query, LISTED), query)
        else:
            what = id or (await meant(memory, query or "")).id
            caller = await connection.caller(client_of(ctx))
            with CancelScope(shield=True):  # a recovery must not stop halfway
                done = await action(memory, what, caller, apply=not dry_run, knowledge=knowledge)
            text = done.markdown if done.applied or not dry_run or not done.diff else f"{done.markdown}\n\n{ASK}"
        return await fitted(memory, text, max_tokens)

    return strict_tool(recover, hints(reads=False, destroys=True))


ASK = "[nothing has changed yet: the same call with dry_run=false does it]"
