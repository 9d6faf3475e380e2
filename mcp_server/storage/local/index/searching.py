"""The statements of a search that only the embedded engine has: its keyword tables, names by number, and neighbors.

Neighbors are found by sqlite-vec if it can be loaded, else with NumPy over the stored vectors."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcp_server.embed.providers import LEADING
from mcp_server.storage.index.scoring import ENOUGH, Fetching, Scope, in_bytes
from mcp_server.storage.index.searching import FIRST_FETCH, Searching
from mcp_server.storage.state import Dialect
from mcp_server.text.entries import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COLUMNS = (
    "m.id, f.path, m.mark, m.part, p.ordinal, p.first_line, p.last_line, p.text, p.title, m.category, m.project, "
    "m.session, p.turn, p.turn_id, p.role, m.speaker, m.at, "
    "p.chars, p.tells_time, p.first_person, p.ends_with_question, p.stems, p.vector, p.about"
)
NAMED = (9, 10, 11, 15)
"""The columns with numbers of names."""

STORED, FILES = "knowledge_meta m CROSS JOIN passages p ON p.id = m.id", " CROSS JOIN files f ON f.id = m.file"

SQLITE = Dialect(
    "?",
    json.dumps,
    {
        "meta": "knowledge_meta",
        "speaker": "speakers",
        "here": "",
        "among": "IN (SELECT value FROM json_each(?))",
        "derived": "derived",
        "at": "coalesce(m.at, (SELECT f.mtime_ns / 1e9 FROM files f WHERE f.id = m.file))",
        "file": "file",
        "same_file": "n.file = m.file",
        "stored": STORED,
        "files": FILES,
        "columns": COLUMNS,
        "speakers": "SELECT DISTINCT n.name FROM speakers m JOIN names n ON n.id = m.speaker WHERE n.name <> ''",
        "of_speakers": "SELECT coalesce(sum(passages + ? * lines), 0) FROM speakers m WHERE true",
        "totals": "SELECT passages, words, lines, line_words FROM totals",
    },
)


LINES = -1
"""The session of derived lines in the vector table, so that searches can exclude them."""


class LocalSearching(Searching):
    """A search over one connection. New names are added to `names`."""

    dialect = SQLITE

    def numbers(self, names: Sequence[str]) -> dict[str, int]:
        return dict(self.rows(f"SELECT name, id FROM names WHERE name IN ({', '.join('?' * len(names))})", *names))

    def learn(self, rows: Sequence[tuple[Any, ...]]) -> None:
        learn(self.connection, rows, self.names)

    def units_with(self, sequence: Sequence[str]) -> tuple[str, list[Any]]:
        holding = " UNION ALL ".join(
            f"SELECT u.file, u.mark FROM {table} JOIN knowledge_meta u ON u.id = {table}.rowid WHERE {table} MATCH ?"
            for table in ("knowledge_fts", "lines_fts")
        )
        return holding, [f'"{" ".join(sequence)}"'] * 2

    def documents(self, words: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        terms = self.stems.terms(words)
        of_each = "SELECT {0}, t.term, t.doc FROM json_each(?) j CROSS JOIN {1}_terms t ON t.term = j.value"
        select = f"{of_each.format(0, 'knowledge')} UNION ALL {of_each.format(1, 'lines')}"
        known = {(kind, term): number for kind, term, number in self.rows(select, terms, terms)}
        said, lines = (tuple(known.get((kind, term), 0) for term in terms) for kind in (0, 1))
        return said, lines

    def holding(self, words: Sequence[str], scope: Scope) -> list[int]:
        tables = ("knowledge_fts", "lines_fts") if scope.lines else ("knowledge_fts",)
        select = " UNION ALL ".join(
            f"SELECT m.id FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
            f"WHERE {table} MATCH ? AND {scope.condition}"
            for table in tables
        )
        values = [(f'"{word}"', *scope.values) * len(tables) for word in words]
        return [self.ids(f"SELECT count(*) FROM ({select})", *bound)[0] for bound in values]

    def matching(self, words: Sequence[Fetching], wanted: int, first: int, scope: Scope, *, lines: bool) -> list[int]:
        """Ordering by `bm25()` keeps only the best; ordering by `rank`, which is the same value, would sort all
        matches."""
        if not words:
            return []
        table = "lines_fts" if lines else "knowledge_fts"
        fetch = " OR ".join(f'"{one.word}"' for one in words)
        for most in (first, FIRST_FETCH) if first < FIRST_FETCH else (FIRST_FETCH,):
            found = self.ids(
                f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY bm25({table}) LIMIT ?", fetch, most
            )
            kept = self.inside(found, scope)
            if len(found) < most or len(kept) >= wanted:
                return kept[:wanted]
        # CROSS JOIN fixes the order: the keyword index first, never one keyword search per passage of the scope.
        return self.ids(
            f"SELECT m.id FROM {table} CROSS JOIN knowledge_meta m ON m.id = {table}.rowid "
            f"WHERE {table} MATCH ? AND {scope.condition} ORDER BY {table}.rank LIMIT ?",
            *(fetch, *scope.values, wanted),
        )

    def turns(self, sources: Sequence[Source]) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT f.path, m.mark, m.id FROM json_each(?) j "
            "CROSS JOIN files f ON f.path = json_extract(j.value, '$[0]') "
            "CROSS JOIN knowledge_meta m ON m.file = f.id AND m.mark = json_extract(j.value, '$[1]') AND m.part = 0",
            [(source.path, source.turn) for source in sources],
        )


def learn(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]], names: dict[int, str]) -> None:
    """Adds the names in these rows to `names`. A number never gets another name."""
    new = {row[column] for row in rows for column in NAMED} - names.keys()
    if new:
        names.update(
            connection.execute(
                "SELECT id, name FROM names WHERE id IN (SELECT value FROM json_each(?))", (json.dumps(list(new)),)
            )
        )


def compared(kept: Mapping[str, str]) -> int:
    """Returns how many of a vector's numbers are in the vector table; `kept` is the `state`."""
    dimensions = int(kept["dimensions"])
    return min(dimensions, LEADING.get(kept["embedder"], dimensions))


def state(connection: sqlite3.Connection) -> dict[str, str]:
    """Returns `index_state` as a dictionary."""
    return dict(connection.execute("SELECT key, value FROM index_state").fetchall())


def packed_vectors(vectors: NDArray[np.float32], first: int) -> tuple[list[bytes], list[bytes]]:
    """Returns each vector as float16 (for the exact cosine), and its `first` numbers as int8 (to find neighbors)."""
    half = vectors.astype("<f2")
    # From the rounded vectors, so that the table can be filled again from the stored ones.
    return [row.tobytes() for row in half], [row.tobytes() for row in in_bytes(half, first)]


def nearest(searching: LocalSearching, vector: NDArray[np.float32], scope: Scope) -> list[int]:
    """Returns the passages of the scope nearest to a unit vector, nearest first, by sqlite-vec or, in a small scope,
    directly."""
    most = searching.depth.meaning
    if searching.is_small(scope):
        return nearest_of(searching, vector, scope)
    (_, (small,)) = packed_vectors(vector.reshape(1, -1), compared(state(searching.connection)))
    where, values = "embedding MATCH vec_int8(?) AND k = ?", [small, most]
    if scope.projects is not None:
        # The partition key allows IN: sqlite-vec then gives k neighbors of each partition.
        known = scope.projects or [-1]
        where += f" AND project IN ({', '.join('?' * len(known))})"
        values += known
    if scope.without_session is not None:
        where += " AND session <> ?"
        values.append(scope.without_session)
    if not scope.lines and searching.rows("{totals}")[0][2]:
        where += " AND session <> ?"
        values.append(LINES)
    select = f"SELECT rowid, distance FROM knowledge_vec WHERE {where}"
    found = _by_distance(searching.rows(select, *values), most)
    if not scope.other:
        return found
    kept = searching.inside(found, scope)
    if len(found) < most or len(kept) >= ENOUGH * most:
        return kept
    select += f" AND rowid IN (SELECT m.id FROM knowledge_meta m WHERE {scope.condition})"
    return _by_distance(searching.rows(select, *values, *scope.values), most)


def _by_distance(rows: Iterable[tuple[Any, ...]], most: int) -> list[int]:
    return [row[0] for row in sorted(rows, key=lambda row: row[1])[:most]]


def nearest_of(searching: LocalSearching, vector: NDArray[np.float32], scope: Scope) -> list[int]:
    """Returns the passages of a scope nearest to a unit vector, nearest first, with the same rounding as the vector
    table."""
    import numpy as np

    size = 2 * len(vector)
    rows = [row for row in searching.stored(scope, "vector") if row[1] is not None and len(row[1]) == size]
    if not rows:
        return []
    stored = np.frombuffer(b"".join(row[1] for row in rows), dtype="<f2").reshape(len(rows), len(vector))
    first = compared(state(searching.connection))
    apart = in_bytes(stored, first).astype(np.int32) - in_bytes(vector.astype("<f2").reshape(1, -1), first)
    order = np.argsort((apart * apart).sum(axis=1), kind="stable")[: searching.depth.meaning]
    return [rows[place][0] for place in order]
