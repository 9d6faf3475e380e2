"""What a search is restricted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from mcp_server.search.query_syntax import Query


@dataclass(frozen=True, slots=True)
class Filters:
    """All of them hold together; None restricts nothing.

    `projects`: raw keys and `slug:NAME`s; what is global is always seen too. `exclude_session` takes out a session
    with what continues it; with `exclude_from` only its turns from that number on. `since` is inclusive, `until`
    exclusive; a file that names no date counts as of its last change. A unit must hold every one of `phrases`
    (sequences of folded words) and none of `excluded`.
    """

    projects: frozenset[str] | None = None
    category: str | None = None
    session: str | None = None
    exclude_session: str | None = None
    exclude_from: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    speaker: str | None = None
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()


def with_operators(filters: Filters, query: Query) -> Filters:
    """Filters of the caller together with those that stand in the query; the narrower time wins."""
    since = max((moment for moment in (filters.since, query.since) if moment), default=None)
    until = min((moment for moment in (filters.until, query.until) if moment), default=None)
    return replace(
        filters,
        category=filters.category or query.category,
        since=since,
        until=until,
        phrases=query.phrases or filters.phrases,
        excluded=query.excluded or filters.excluded,
    )
