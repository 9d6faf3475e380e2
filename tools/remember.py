"""Tool `remember`: knowledge that should last goes into the file where it belongs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio import CancelScope
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from mcp_server.connection import Connection
from tools.rim import Path, Short, answer, client_of, hints, strict_tool

Kind = Literal["fact", "decision", "lesson", "person", "procedure", "project", "journal", "identity", "topic"]


class Remembered(TypedDict):
    """What was written, and where."""

    path: str
    action: str
    diff: str
    notes: list[str]


def tool(connection: Connection) -> Tool:
    async def remember(
        ctx: Context[Any, Any],
        content: Annotated[str, Field(max_length=20_000, description="Plain sentences that stand alone, with names")],
        kind: Annotated[Kind, Field(description="Chooses file and section")] = "fact",
        project: Annotated[Literal["current", "global"], Field(description="global: true everywhere")] = "current",
        session: Annotated[Short | None, Field(description="Handle of the conversation")] = None,
        path: Annotated[Path | None, Field(description="Instead of the kind's own file")] = None,
        section: Annotated[Short | None, Field(description="Heading to write under")] = None,
        action: Annotated[
            Literal["append", "replace", "edit", "create"],
            Field(description="replace: the section; edit: old_text only; create: a new file"),
        ] = "append",
        old_text: Annotated[str | None, Field(max_length=20_000, description="What edit replaces, exactly")] = None,
    ) -> Annotated[CallToolResult, Remembered]:
        """Use when something should still be known in later conversations: a fact, a decision and its reason, a lesson,
        a preference. Answers with the diff. Secrets are refused; what is there already is not repeated."""
        from mcp_server.actions import remember as knowledge

        fact = knowledge.NewFact(content, kind, project, session, path, section, action, old_text)
        memory = await connection.memory()
        caller = await connection.caller(client_of(ctx))
        with CancelScope(shield=True):  # half a change is none
            done = await knowledge.remember(memory, fact, caller)
            connection.saw(session)
        return answer(
            done.markdown, {"path": done.path, "action": done.action, "diff": done.diff, "notes": list(done.notes)}
        )

    return strict_tool(remember, hints(reads=False, destroys=True), structured=True)
