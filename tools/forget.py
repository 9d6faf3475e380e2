"""Tool `forget`: deletes text permanently, after the user's confirmation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from anyio import CancelScope
from mcp.server.elicitation import AcceptedElicitation
from mcp.server.mcpserver import Context, ElicitationResult
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.mcpserver.tools import Tool
from pydantic import BaseModel, Field

from mcp_server.connection import Connection
from mcp_server.errors import Invalid, Refused
from tools.rim import MaxTokens, Path, Short, can_ask, fitted, hints, shortened, strict_tool

if TYPE_CHECKING:
    from mcp_server.forgetting.target import ForgetTarget

ASK = "[nothing is deleted yet: dry_run=false asks the user, and does it after a yes]"
BY_HAND = "nothing is deleted: this client cannot ask its user; in a terminal, `context-manager forget` does it"


class Confirmation(BaseModel):
    """The user's answer."""

    delete: bool = Field(description="Delete it? It cannot be brought back.")


def tool(connection: Connection) -> Tool:
    async def ask(
        ctx: Context[Any, Any],
        text: str | None,
        turn: str | None,
        session: str | None,
        path: str | None,
        first_line: int | None,
        last_line: int | None,
        dry_run: bool,
    ) -> Elicit[Confirmation] | None:
        """Returns the question before a deletion; None if nothing would be deleted, or if the client cannot ask."""
        from mcp_server.forgetting.forget import question

        if dry_run or not can_ask(ctx):
            return None
        target = _target(text, turn, session, path, first_line, last_line)
        asked = await question(await connection.memory(), target)
        return Elicit(shortened(asked), Confirmation) if asked else None

    async def forget(
        ctx: Context[Any, Any],
        text: Annotated[str | None, Field(max_length=20_000, description="Its words, in any place")] = None,
        turn: Annotated[Short | None, Field(description="Or one message: SESSION#NUMBER")] = None,
        session: Annotated[Short | None, Field(description="Or a whole conversation")] = None,
        path: Annotated[Path | None, Field(description="Or a file, or lines of it")] = None,
        first_line: Annotated[int | None, Field(ge=1, description="With path")] = None,
        last_line: Annotated[int | None, Field(ge=1, description="With path; default: first_line")] = None,
        dry_run: Annotated[bool, Field(description="false: ask the user, then delete")] = True,
        max_tokens: MaxTokens = 2000,
        approval: Any = None,
    ) -> str:
        """Use when the user wants something permanently deleted from memory, with every copy: transcripts, files, logs,
        index. Shows every place first. (To make room recoverably, use prune.)"""
        from mcp_server.forgetting import forget as action

        memory = await connection.memory()
        target = _target(text, turn, session, path, first_line, last_line)
        receipt = await action.plan_forget(memory, target)
        said = action.as_text(receipt)
        if not receipt.nothing:
            if dry_run:
                said = f"{said}\n\n{ASK}"
            else:
                if not can_ask(ctx):
                    raise Refused(BY_HAND)
                if not isinstance(approval, AcceptedElicitation) or not approval.data.delete:
                    raise Refused("the user did not confirm; nothing is deleted")
                with CancelScope(shield=True):  # a deletion must not stop halfway
                    said = action.as_text(await action.forget(memory, target))
        return await fitted(memory, said, max_tokens)

    # Set here, not in the signature: `ask` is a local function, which an annotation in a string cannot name.
    forget.__annotations__["approval"] = Annotated[ElicitationResult[Confirmation], Resolve(ask)]
    return strict_tool(forget, hints(reads=False, destroys=True))


def _target(
    text: str | None, turn: str | None, session: str | None, path: str | None, first: int | None, last: int | None
) -> ForgetTarget:
    from mcp_server.forgetting.target import ForgetTarget

    if sum(value is not None for value in (text, turn, session, path)) != 1 or (path is None and (first or last)):
        raise Invalid("give one of text, turn (SESSION#NUMBER), session and path; first_line and last_line need path")
    lines = None if first is None and last is None else (first or last or 1, last or first or 1)
    return ForgetTarget(text=text, turn=turn, session=session, path=path, lines=lines)
