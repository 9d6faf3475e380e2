"""One search of an open index on two connections: one fetches by words, the other by vectors.

The thread of the first waits for the other one, and finishes the search in one transaction: handing hundreds of
candidates from thread to thread over the event loop takes milliseconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from mcp_server.concurrency import both
from mcp_server.storage.local.index import schema
from mcp_server.storage.local.index.candidates import Found, attach_lines, fetch_rows, neighbors_of_best, score, sources
from mcp_server.storage.local.index.connection import OpenReader
from mcp_server.storage.local.index.query_plan import QueryPlan, fetch_by_words, plan_query
from mcp_server.storage.local.index.scope import scope_of
from mcp_server.storage.local.index.vectors import nearest
from mcp_server.storage.values import Depth, Filters, Mode

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32] | None
    Near = tuple[Vector, list[int]]
    """The query's vector (None without one), and the nearest passages, nearest first."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Search:
    """A search in an open index. `embed` returns the query's vector, on the second connection's thread; None for a
    search by words alone."""

    opened: OpenReader
    text: str
    filters: Filters
    mode: Mode
    embed: Callable[[str], Vector] | None
    depth: Depth


async def search(wanted: Search, then: Callable[[QueryPlan, Vector, list[Found]], T]) -> T:
    """Returns `then(plan, vector, candidates)`."""
    from concurrent.futures import Future

    near: Future[Near] = Future()

    async def look_near() -> None:
        try:
            await wanted.opened.near.database.read(lambda connection: near.set_result(_nearest(connection, wanted)))
        finally:
            near.cancel()  # nothing happens if it has its result; else the other thread would wait for ever

    words = wanted.opened.words.database.read(lambda connection: then(*_by_words(connection, wanted, near)))
    if wanted.embed is None:
        near.set_result((None, []))
        return await words
    return (await both(look_near(), words))[1]  # in this order: what is waited for has begun


def _nearest(connection: sqlite3.Connection, wanted: Search) -> Near:
    vector = wanted.embed(wanted.text) if wanted.embed else None
    kept = schema.state(connection)
    if vector is None or int(kept["dimensions"]) != len(vector):
        return None, []
    scope = scope_of(connection, wanted.filters)
    if wanted.opened.near.loads_vectors and kept["vectors_stale"] == "0":
        return vector, nearest(connection, vector, scope, wanted.depth.meaning)
    return vector, wanted.opened.matrix.nearest(connection, vector, scope, wanted.depth.meaning)


def _by_words(
    connection: sqlite3.Connection, wanted: Search, near: Future[Near]
) -> tuple[QueryPlan, Vector, list[Found]]:
    names = wanted.opened.names
    scope = scope_of(connection, wanted.filters)
    plan = plan_query(connection, wanted.opened.words.stems, wanted.text, scope, wanted.depth.postings)
    ids = fetch_by_words(connection, plan, scope, wanted.depth) if wanted.mode != "vector" else []
    rows = {row[0]: row for row in fetch_rows(connection, ids, names)}
    vector, by_meaning = near.result()

    def scored(rows: Sequence[tuple[Any, ...]]) -> list[Found]:
        return score(plan, rows, names, vector)

    more = fetch_rows(connection, [number for number in by_meaning if number not in rows], names)
    found = scored(sorted((*rows.values(), *more), key=itemgetter(0)))
    of = sources(connection, found, scope)
    held = {one.row_id for one in found}
    if scope.lines:
        found += scored(fetch_rows(connection, [number for number in of.values() if number not in held], names))
    found = attach_lines(found, of)
    if wanted.mode == "hybrid":
        beside = neighbors_of_best(connection, plan, found, scope, wanted.depth.around)
        found += scored(fetch_rows(connection, beside, names))
    return plan, vector, found
