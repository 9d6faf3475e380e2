"""Prompt `prune_review`: asks the model to review with the user what could be removed, before anything is."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field

from mcp_server.connection import Connection

TEXT = """\
Review with me what could leave this conversation's context and my memory. Change nothing before I have said so.

1. Call `prune`, which is a dry run by default, for "auto" and "advisor", then "memory" and "files"{handle}.
2. Tell me in a few lines, by keep, fading and gone: what would go, how many tokens or lines that is, and why. Name what
   you would rather keep because the work at hand, or something that we decided, needs it.
3. For what I want to keep, call `anchor`. A decision or a lesson that stands only in what would go: `remember` it.
4. Ask me which of it to do. Only then call `prune` with dry_run=false, one strategy at a time, and tell me the ids with
   which `recover` brings it back.

What `prune` answers is about this memory's own copy of the conversation. A client that keeps its own window (Claude
Code, Claude Desktop, Cursor, …) still holds all of it: then tell me what I can do there, such as /compact, a new chat,
or taking files out of it.
"""


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.prompt(title="Review what could leave the context")
    def prune_review(
        session: Annotated[str | None, Field(description="Handle of the conversation, if observe gave one")] = None,
    ) -> str:
        """Go through what could be pruned, and do only what the user agrees to."""
        chosen = session or connection.session
        return TEXT.format(handle=f'; pass session="{chosen}"' if chosen else "")
