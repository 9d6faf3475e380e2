"""Prompt `reflect`: asks the model to write down what should outlast the conversation."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field

from mcp_server.connection import Connection

TEXT = """\
Look back over this conversation and write down, with the tool `remember`, what should still be known in later ones.

- decision: what was decided, and the reason ("We use SQLite, because one file is easy to back up").
- lesson: what went wrong or surprisingly well, and what to do next time.
- person: who somebody is, what they care about, how to work with them.
- procedure: steps that worked and will be needed again.
- project: where the work stands, what comes next, what waits for whom.
- fact: anything else that is true, lasting, and not plain from the files at hand.

One call for each thing, in sentences that stand alone: names instead of "it" and "he", dates instead of "yesterday".
Leave out what was only said in passing, what is general knowledge, and every secret. `search` first if you think that
something is known already; correct it with action "edit" instead of adding its opposite. If nothing should last, write
nothing and say so.{handle}
"""


def register(mcp: MCPServer[Any], connection: Connection) -> None:
    @mcp.prompt(title="Write down what should last")
    def reflect(
        session: Annotated[str | None, Field(description="Handle of the conversation, if observe gave one")] = None,
    ) -> str:
        """Write what this conversation should leave behind into the memory."""
        handle = session or connection.session
        return TEXT.format(handle=f'\n\nPass session="{handle}" in each call.' if handle else "")
