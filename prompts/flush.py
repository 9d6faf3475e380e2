"""Prompt `flush`: asks the model to save what matters before its context is compacted."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field

from mcp_server.connection import Connection

TEXT = """\
The context of this conversation is filling up, and older messages will leave it soon. The conversation itself is kept;
save now what must be at hand without it. Use the tool `remember`, one call for each thing:

- decisions that were taken, with their reasons: kind "decision"
- lessons, with what to do next time: kind "lesson"
- where the work stands, what comes next, what waits for whom: kind "project"
- what happened today that somebody may ask for: kind "journal"

Sentences that stand alone: names instead of "it" and "he", dates instead of "yesterday". Only what is worth keeping, no
secrets, and nothing that is already there (`search` says so). What must stay in view as it is: `anchor` it. If nothing
is worth keeping, answer FLUSH_OK.{handle}
"""


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.prompt(title="Save what matters before the context is compacted")
    def flush(
        session: Annotated[str | None, Field(description="Handle of the conversation, if observe gave one")] = None,
    ) -> str:
        """Write down decisions, lessons and the state of the work before older messages leave the context."""
        chosen = session or connection.session
        return TEXT.format(handle=f'\n\nPass session="{chosen}" in each call.' if chosen else "")
