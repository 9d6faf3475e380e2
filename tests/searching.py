"""Asks the search index for the candidates of one query."""

from __future__ import annotations

from mcp_server.model import Passage
from mcp_server.search.query import ParsedQuery
from mcp_server.search.ranking import Candidate
from mcp_server.search.search import with_operators
from mcp_server.storage.ports import Index
from mcp_server.storage.values import Candidates, Filters, IndexQuery, Mode


async def candidates_of(
    index: Index, query: ParsedQuery, filters: Filters | None = None, mode: Mode = "hybrid"
) -> Candidates:
    """Returns the passages that may answer a query, with the raw values of every signal."""
    asked = IndexQuery(query.text, with_operators(filters or Filters(), query), mode)
    return await index.answer([asked], lambda found, _: found[0])


def values_of(found: Candidates) -> list[Candidate]:
    """Returns the raw values of every signal, as the ranking takes them."""
    return [one.candidate for one in found.found]


def passage_of(found: Candidates, candidate: Candidate) -> Passage:
    """Returns the passage of a candidate."""
    return next(one.passage for one in found.found if one.candidate is candidate)
