"""Tool `search`: finds passages in all conversations and files."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from mcp_server.connection import Connection
from mcp_server.model import Category
from tools.rim import MaxTokens, Short, answer, client_of, hints, strict_tool

MORE = {
    "session": "only this conversation",
    "since": "first date",
    "until": "last date",
    "mode": "hybrid|keyword|vector",
    "explain": "true: the terms of each score",
}
"""The arguments that the schema offers in one object."""


class Hit(TypedDict):
    """A passage. `score` is the sum of `terms`, which only `explain` shows. `at` is in UTC. Fields without a value are
    left out."""

    path: str
    start: int
    end: int
    turn: NotRequired[int]
    session: NotRequired[str]
    role: NotRequired[str]
    speaker: NotRequired[str]
    category: str
    title: str
    at: NotRequired[str]
    snippet: str
    score: float
    terms: NotRequired[dict[str, float]]
    cold: NotRequired[str]
    sources: NotRequired[list[str]]


class Found(TypedDict):
    """Hits, best first, and notes on what was cut or is missing."""

    hits: list[Hit]
    notes: list[str]


def tool(connection: Connection) -> Tool:
    async def search(
        ctx: Context[Any, Any],
        query: Annotated[
            str,
            Field(
                max_length=100_000, description='A question or words; "phrase", -without, category:X, since:DATE work'
            ),
        ],
        limit: Annotated[int, Field(ge=1, le=100, description="Passages at most")] = 10,
        category: Annotated[Category | None, Field(description="Only this kind of file")] = None,
        scope: Annotated[
            Literal["project", "all"], Field(description="project: this one and what is global")
        ] = "project",
        mode: Literal["hybrid", "keyword", "vector"] = "hybrid",
        session: Short | None = None,
        since: Short | None = None,
        until: Short | None = None,
        explain: bool = False,
        max_tokens: MaxTokens = 2000,
    ) -> Annotated[CallToolResult, Found]:
        """Use when you need something particular from earlier conversations or notes: who said what, when, why. Answers
        with the best passages; `read` shows the lines around them."""
        from mcp_server.search import search as action

        memory = await connection.memory()
        project = await connection.project(client_of(ctx))
        where = "all" if session else scope  # the named conversation may belong to another project
        request = action.SearchRequest(
            query, limit, category, where, mode, session, since, until, project, explain=explain
        )
        found = await action.search(memory, request, max_tokens, await connection.personal())
        data = found.as_dict()
        return answer(found.markdown, {**data, "hits": [_lean(hit, explain) for hit in data["hits"]]})

    return strict_tool(search, hints(reads=True), structured=True, more=MORE)


def _lean(hit: dict[str, Any], explain: bool) -> dict[str, Any]:
    """Returns a hit without the fields that only programs need. Some clients show it instead of the text."""
    found = {name: value for name, value in hit.items() if value is not None and name not in ("turn_id", "terms")}
    if hit["at"]:
        found["at"] = hit["at"][: len("2026-01-31T12:00")]
    found["score"] = round(hit["score"], 3)
    return found | ({"terms": {name: term for name, term in hit["terms"].items() if term}} if explain else {})
