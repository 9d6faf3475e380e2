"""Tool `remember`: writes lasting knowledge into the file where it belongs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio import CancelScope
from mcp.server.elicitation import AcceptedElicitation, DeclinedElicitation
from mcp.server.mcpserver import Context, ElicitationResult
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from mcp_server.connection import Connection
from mcp_server.errors import Refused
from mcp_server.text.destinations import Kind
from tools.rim import Path, Short, answer, can_ask, client_of, hints, shortened, strict_tool

MORE = {
    "path": "another file than the kind's",
    "section": "its heading",
    "action": "append|replace (the section)|edit (old_text only)|create (a file)",
    "old_text": "what edit replaces, exactly",
}
"""The arguments that the schema offers in one object."""


class Approval(BaseModel):
    """The user's answer about a change of identity or topics."""

    write: bool = Field(description="Write this into the file?")


class Remembered(TypedDict):
    """What was written, and where."""

    path: str
    action: str
    diff: str
    notes: list[str]


def tool(connection: Connection) -> Tool:
    async def ask(
        ctx: Context[Any, Any],
        content: str,
        kind: Kind,
        project: str,
        session: str | None,
        path: str | None,
        section: str | None,
        action: str,
        old_text: str | None,
        supersedes: str | None,
    ) -> Elicit[Approval] | None:
        """Returns the question about a change that needs the user's approval; None if it needs none, or if the client
        cannot ask."""
        from mcp_server.knowledge.remember import NewFact, previewed

        if not can_ask(ctx):
            return None
        fact = NewFact(content, kind, project, session, path, section, action, old_text, supersedes)
        change = await previewed(await connection.memory(), fact, await connection.caller(client_of(ctx)))
        return None if change is None else Elicit(_question(change.path, change.diff), Approval)

    async def remember(
        ctx: Context[Any, Any],
        content: Annotated[str, Field(max_length=20_000, description="Plain sentences that stand alone, with names")],
        kind: Annotated[Kind, Field(description="Chooses file and section")] = "fact",
        project: Annotated[Literal["current", "global"], Field(description="global: true everywhere")] = "current",
        session: Annotated[Short | None, Field(description="Handle of the conversation")] = None,
        supersedes: Annotated[
            str | None, Field(max_length=2_000, description="What this replaces: its text, or path:line")
        ] = None,
        path: Path | None = None,
        section: Short | None = None,
        action: Literal["append", "replace", "edit", "create"] = "append",
        old_text: Annotated[str | None, Field(max_length=20_000)] = None,
        approval: Any = None,
    ) -> Annotated[CallToolResult, Remembered]:
        """Use when something should still be known in later conversations: a fact, a decision and its reason, a rule, a
        lesson, a preference. Secrets are refused; known facts are not repeated."""
        from mcp_server.conversations.sessions import check_known
        from mcp_server.knowledge import remember as knowledge

        fact = knowledge.NewFact(content, kind, project, session, path, section, action, old_text, supersedes)
        memory = await connection.memory()
        await check_known(memory, session)
        caller = await connection.caller(client_of(ctx))
        said = approval.data if isinstance(approval, AcceptedElicitation) else None
        if isinstance(approval, DeclinedElicitation) or (said is not None and not said.write):
            raise Refused("the user rejected this change; nothing was written, and no proposal was kept")
        with CancelScope(shield=True):  # a change must not stop halfway
            done = await knowledge.remember(memory, fact, caller, approved=said is not None)
            connection.saw(session)
        return answer(
            done.markdown, {"path": done.path, "action": done.action, "diff": done.diff, "notes": list(done.notes)}
        )

    # Set here, not in the signature: `ask` is a local function, which an annotation in a string cannot name.
    remember.__annotations__["approval"] = Annotated[ElicitationResult[Approval], Resolve(ask)]
    return strict_tool(remember, hints(reads=False, destroys=True), structured=True, more=MORE)


def _question(path: str, diff: str) -> str:
    """Returns the question. The same change always gets the same text, because the protocol repeats the question until
    it is answered."""
    return f"An agent wants to change {path}, which tells every agent who you are and how to work:\n\n{shortened(diff)}"
