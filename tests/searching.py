"""Asks the search index for the candidates of one query."""

from __future__ import annotations

from mcp_server.search.query import ParsedQuery
from mcp_server.storage.ports import Index
from mcp_server.storage.values import Candidates, Filters, IndexQuery, Mode, with_operators


async def candidates_of(
    index: Index, query: ParsedQuery, filters: Filters | None = None, mode: Mode = "hybrid"
) -> Candidates:
    """Returns the passages that may answer a query, with the raw values of every signal."""
    asked = IndexQuery(query.text, with_operators(filters or Filters(), query), mode)
    return await index.answer([asked], lambda found, _: found[0])
