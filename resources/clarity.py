"""The resources `context://clarity/…`: the subjects of a conversation with their scores."""

from __future__ import annotations

from typing import Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.resources import ResourceSecurity

from mcp_server.connection import Connection

URI = "context://clarity"
VIEWS: tuple[tuple[Literal["state", "scores", "stats", "config"], str, str], ...] = (
    ("state", "application/json", "Everything that is counted of this conversation, as it is stored."),
    ("scores", "text/markdown", "What this conversation is about: every item, its score, the score's terms."),
    ("stats", "text/markdown", "How much is counted of this conversation, and what of it stays in view."),
    ("config", "application/json", "The weights and limits of Clarity, as they are set."),
)


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    def one(name: str, kind: str, what: str) -> None:
        async def shown() -> str:
            await connection.caller()  # hooks may have said which session this is
            return await _view(connection, name, connection.session)

        async def shown_of(session: str) -> str:
            return await _view(connection, name, session)

        shown.__doc__ = shown_of.__doc__ = what
        mcp.resource(f"{URI}/{name}", name=f"clarity-{name}", title=f"Clarity: {name}", mime_type=kind)(shown)
        if name != "config":
            mcp.resource(
                f"{URI}/{name}/{{session}}",
                name=f"clarity-{name}-session",
                title=f"Clarity: {name}",
                mime_type=kind,
                security=ResourceSecurity(exempt_params={"session"}),  # a handle is no path, whatever it looks like
            )(shown_of)

    for name, kind, what in VIEWS:
        one(name, kind, what)


async def _view(connection: Connection, name: str, session: str | None) -> str:
    from mcp_server.relevance.clarity_views import view

    return (await view(await connection.memory(), name, session)).markdown
