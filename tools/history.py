"""Tool `history`: answers questions about the memory from git."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio import CancelScope
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from mcp_server.connection import Connection
from mcp_server.errors import Invalid
from tools.rim import MaxTokens, Path, Short, client_of, fitted, hints, strict_tool

Question = Literal["when", "where", "diff", "today", "show", "blame", "revert"]


def tool(connection: Connection) -> Tool:
    async def history(
        ctx: Context[Any, Any],
        question: Annotated[
            Question,
            Field(
                description="when: a text was learned; where: a text or file comes from; diff: what changed; today; "
                "show: a commit; blame: a file's lines; revert: undo a commit"
            ),
        ],
        about: Annotated[
            Path | None, Field(description="The text (when, where), path (where, diff, blame) or commit (show, revert)")
        ] = None,
        since: Annotated[Short, Field(description="diff: day, `2 weeks ago`, tag or commit")] = "1 week ago",
        until: Annotated[Short | None, Field(description="diff: the same; default now")] = None,
        dry_run: Annotated[bool, Field(description="revert: false does it")] = True,
        max_tokens: MaxTokens = 2000,
    ) -> str:
        """Use when you want to know when or where something in memory was learned, what changed since a day, or to undo
        a bad change. (recover restores one file, read with `at` shows it as it was.)"""
        from mcp_server.history import history as actions
        from mcp_server.history.history import revert

        memory = await connection.memory()
        if about is None and question not in ("diff", "today"):
            raise Invalid(f"question {question!r} needs `about`: a text, a path or a commit")
        what = about or ""
        match question:
            case "when":
                text = actions.as_text(await actions.when(memory, what))
            case "where":
                text = actions.as_text(await actions.where(memory, what))
            case "blame":
                text = actions.as_text(await actions.blame(memory, what))
            case "diff":
                text = (await actions.diff(memory, since, until, about)).markdown
            case "today":
                text = (await actions.diff(memory, "today")).markdown
            case "show":
                text = (await actions.show(memory, what)).markdown
            case "revert":
                caller = await connection.caller(client_of(ctx))
                with CancelScope(shield=True):  # a revert must not stop halfway
                    text = (await revert(memory, what, caller, apply=not dry_run)).markdown
        return await fitted(memory, text, max_tokens)

    return strict_tool(history, hints(reads=False, destroys=True))
