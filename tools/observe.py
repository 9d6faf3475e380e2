"""Tool `observe`: records a message of the conversation durably."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from pydantic import BaseModel, ConfigDict, Field

from mcp_server.connection import Connection
from mcp_server.errors import Invalid
from mcp_server.model import ToolCall
from tools.rim import Short, client_of, hints, strict_tool

MORE = {
    "turn_id": "the client's id of the message; a repeat is ignored",
    "name": "the speaker's",
    "at": "ISO time",
    "project": "default: the folder's",
    "kind": "main|shared (others read along)|subagent",
    "delivery": "add|replace (your prompt is the compiled text alone)",
    "model": "that answers",
    "channel": "where it was said",
    "important": "true: never dropped",
    "context_tokens": "your context's size",
    "tool_calls": "[{name, summary, result, files}], 2,000 characters of each text are kept",
    "chunks": "other texts in your context, [{type: file|skill|agent, id, tokens, tags, topics, mtime}]",
}
"""The arguments that the schema offers in one object. `kind` and `delivery` are fixed by the first call with them."""

LONGEST_GIVEN, LOOKED_AT, KEPT = 1_000_000, 8_000, 2_000
"""Characters of a call's summary or result: that a client may give, that are searched for secrets, and that are
kept. More is searched than kept, so that a secret where the text is cut is recognized."""

Words = list[Annotated[str, Field(max_length=200)]]


# Docstrings would be in the schema. `params` is accepted and ignored: transcripts have one line for a call.
class Call(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=200)]
    summary: Annotated[str, Field(max_length=LONGEST_GIVEN)] = ""
    result: Annotated[str, Field(max_length=LONGEST_GIVEN)] = ""
    params: dict[str, Any] | None = None
    files: Annotated[list[str], Field(max_length=200)] = []


class Chunk(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Literal["file", "skill", "agent"]
    id: Annotated[str, Field(min_length=1, max_length=1000)]
    tokens: Annotated[int | None, Field(ge=0)] = None
    tags: Words = []
    topics: Words = []
    mtime: datetime | None = None


def tool(connection: Connection) -> Tool:
    async def observe(
        ctx: Context[Any, Any],
        role: Annotated[Literal["user", "agent", "assistant", "system"], Field(description="Who said it")],
        content: Annotated[str, Field(max_length=50_000_000, description="The whole message, unabridged")],
        session: Annotated[Short | None, Field(description="Handle from an earlier answer")] = None,
        return_context: Annotated[bool, Field(description="Answer with the compiled context, too")] = False,
        turn_id: Short | None = None,
        name: Short | None = None,
        at: datetime | None = None,
        project: Short | None = None,
        kind: Literal["main", "shared", "subagent"] | None = None,
        delivery: Literal["add", "replace"] | None = None,
        model: Short | None = None,
        channel: Short | None = None,
        important: bool = False,
        tool_calls: Annotated[list[Call], Field(max_length=500)] = [],  # noqa: B006 - pydantic copies defaults
        chunks: Annotated[list[Chunk], Field(max_length=500)] = [],  # noqa: B006
        context_tokens: Annotated[int | None, Field(ge=0)] = None,
    ) -> str:
        """Use when a message was said, by the user or by you: call it for every message. Secrets are redacted. The
        answer's first line is `session: ID`: pass that ID in every later call of the same conversation."""
        from mcp_server.conversations.observe import ContextChunk, NewTurn
        from mcp_server.conversations.observe import observe as record
        from mcp_server.conversations.sessions import check_known

        if not content.strip() and not tool_calls:
            raise Invalid("nothing was recorded: `content` is empty, and there are no `tool_calls`")
        turn = NewTurn(
            role=role,
            content=content,
            session=session,
            turn_id=turn_id,
            name=name,
            at=at,
            project=project,
            kind=kind,
            delivery=delivery,
            model=model,
            channel=channel,
            important=important,
            tool_calls=tuple(ToolCall(c.name, _kept(c.summary), _kept(c.result), tuple(c.files)) for c in tool_calls),
            chunks=tuple(ContextChunk(c.type, c.id, c.tokens, tuple(c.tags), tuple(c.topics), c.mtime) for c in chunks),
            context_tokens=context_tokens,
        )
        client = client_of(ctx)
        memory = await connection.memory()
        await check_known(memory, session)
        async with connection.next_turn(client, session) as (caller, recorded):
            observed = recorded(await record(memory, turn, caller))
        if not return_context:
            return observed.markdown
        from mcp_server.context.compile import CompileRequest, compile_context

        request = CompileRequest(session=observed.session)
        personal = await connection.personal()
        compiled = await compile_context(memory, request, await connection.caller(client), personal)
        return f"{observed.markdown}\n\n{compiled.shown}"

    return strict_tool(observe, hints(reads=False, repeats=False), more=MORE)


def _kept(text: str) -> str:
    """Returns a call's summary or result as it is stored: a long one is redacted and cut, as in an import."""
    from mcp_server.text.prose import clipped
    from mcp_server.text.redaction import redact

    return text if len(text) <= KEPT else clipped(redact(text[:LOOKED_AT]).text, KEPT)
