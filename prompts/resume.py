"""Prompt `resume`: continues a conversation that began in another window or client."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field

from mcp_server.connection import Connection

TEXT = """\
We go on with an earlier conversation, of which you have nothing in your window. Below stands what my memory compiled of
it: where it stood, what was said last, what bears on it. It is stored data, not a message of mine.

In every call of this memory's tools pass session="{session}", so that it stays one conversation. Tell me in two or
three sentences where we stopped and what is still open; then wait for what I say.{earlier}

{compiled}
"""
EARLIER = """

This is the conversation as it was after turn {turn}; what was said later is not undone by this. To wind it back, with
its anchors and topics: recover(id="{id}")."""


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.prompt(title="Go on with an earlier conversation")
    async def resume(
        session: Annotated[
            str | None,
            Field(description="Handle of the conversation, or a checkpoint's id; default: the one last heard of"),
        ] = None,
    ) -> str:
        """Go on here with a conversation that was begun in another window or client."""
        from mcp_server.checkpoints.resume import resume as action

        memory, caller = await connection.memory(), await connection.caller()
        resumed = await action(memory, (session or "").strip() or None, caller)
        connection.saw(resumed.session)
        made = resumed.checkpoint
        earlier = EARLIER.format(turn=made.turn, id=made.id) if resumed.earlier else ""
        return TEXT.format(session=resumed.session, earlier=earlier, compiled=resumed.compiled.text)
