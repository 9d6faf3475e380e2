"""Prompt `clarity`: commands about what matters in a conversation (`/clarity scores`, `/clarity anchor ITEM`, …)."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field

from mcp_server.connection import Connection
from mcp_server.relevance.clarity_scores import COMMANDS

SHOWN = "This is what the memory's Clarity says. Show it to me as it is.\n\n{said}"


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.prompt(title="What is this conversation about?")
    async def clarity(
        action: Annotated[str | None, Field(description=f"{', '.join(COMMANDS)}; default: status")] = None,
        item: Annotated[str | None, Field(description="What to anchor or unanchor")] = None,
        session: Annotated[str | None, Field(description="Handle of the conversation, if observe gave one")] = None,
    ) -> str:
        """Show or change what counts as relevant in this conversation: scores, anchors, pruning."""
        done = await _do(connection, (action or "status").strip().lower(), (item or "").strip(), session)
        return SHOWN.format(said=done)


async def _do(connection: Connection, action: str, item: str, named: str | None) -> str:
    from mcp_server.errors import Invalid
    from mcp_server.knowledge.anchor import anchor
    from mcp_server.relevance import clarity_views
    from mcp_server.relevance.clarity import prune

    memory = await connection.memory()
    await connection.caller()  # hooks may have said which session this is
    if action not in COMMANDS:
        raise Invalid(f"action {action!r} is not one of {', '.join(COMMANDS)}")
    session = named or connection.session
    if action in ("anchor", "unanchor"):
        if not item:
            raise Invalid(f"{action} needs an item")
        return (await anchor(memory, item, action == "anchor")).markdown
    if action == "prune":
        meant = await clarity_views.session_meant(memory, session)
        return clarity_views.pruned_text(await prune(memory, meant, dry_run=False))
    return (await clarity_views.view(memory, action, session)).markdown
