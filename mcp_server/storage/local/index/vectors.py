"""Nearest neighbors: by sqlite-vec if it can be loaded, else with NumPy over the stored vectors.

A process without sqlite-vec marks the vector table as stale when it writes; the next writer with sqlite-vec fills it
again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_server.storage.local.index.schema import LINES, compared, create_vectors, state
from mcp_server.storage.local.index.scope import Scope, in_scope, is_small, rows_in

ENOUGH = 0.5
"""If at least this share of the neighbors is in the scope, no more are searched."""

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def nearest(connection: sqlite3.Connection, vector: NDArray[np.float32], scope: Scope, most: int) -> list[int]:
    """Returns the passages of the scope nearest to a unit vector, at most `most`, nearest first, by sqlite-vec or, in a
    small scope, directly."""
    if is_small(connection, scope):
        return nearest_of(connection, vector, scope, most)
    (_, (small,)) = packed_vectors(vector.reshape(1, -1), compared(state(connection)))
    where, values = "embedding MATCH vec_int8(?) AND k = ?", [small, most]
    if scope.projects is not None:
        # The partition key allows IN: sqlite-vec then gives k neighbours of each partition.
        where += f" AND project IN ({', '.join('?' * len(scope.projects))})"
        values += scope.projects
    if scope.without_session is not None:
        where += " AND session <> ?"
        values.append(scope.without_session)
    if not scope.lines and connection.execute("SELECT lines FROM totals").fetchone()[0]:
        where += " AND session <> ?"
        values.append(LINES)
    found = _by_distance(connection.execute(f"SELECT rowid, distance FROM knowledge_vec WHERE {where}", values), most)
    if not scope.other:
        return found
    kept = in_scope(connection, found, scope)
    if len(found) < most or len(kept) >= ENOUGH * most:
        return kept
    where += f" AND rowid IN (SELECT m.id FROM knowledge_meta m WHERE {scope.condition})"
    rows = connection.execute(f"SELECT rowid, distance FROM knowledge_vec WHERE {where}", (*values, *scope.values))
    return _by_distance(rows, most)


def _by_distance(rows: Iterable[tuple[int, float]], most: int) -> list[int]:
    return [row[0] for row in sorted(rows, key=lambda row: row[1])[:most]]


@dataclass(slots=True)
class Matrix:
    """All vectors of an index in memory, about 1 KB each: for machines without sqlite-vec."""

    version: tuple[int, int] | None = None
    ids: NDArray[np.int64] | None = None
    rows: NDArray[np.float32] | None = None
    derived: NDArray[np.bool_] | None = None

    def nearest(
        self, connection: sqlite3.Connection, vector: NDArray[np.float32], scope: Scope, most: int
    ) -> list[int]:
        """Returns the passages of the scope nearest to a unit vector, nearest first, by exact cosine."""
        import numpy as np

        self._fill(connection)
        if self.ids is None or self.rows is None or self.derived is None or not len(self.ids):
            return []
        cosines = self.rows @ vector
        if not scope.lines:
            cosines[self.derived] = -np.inf
        if not scope.everything:
            rows = connection.execute(
                f"SELECT m.id FROM knowledge_meta m WHERE {scope.condition}", scope.values
            ).fetchall()
            seen = np.isin(self.ids, np.array([row[0] for row in rows], dtype=np.int64))
            ids, cosines = self.ids[seen], cosines[seen]
        else:
            ids = self.ids
        best = np.argsort(-cosines, kind="stable")[:most]
        return [int(ids[place]) for place in best if cosines[place] > -np.inf]

    def _fill(self, connection: sqlite3.Connection) -> None:
        import numpy as np

        (version,) = connection.execute("PRAGMA data_version").fetchone()
        (rows,) = connection.execute("SELECT passages + lines FROM totals").fetchone()
        if self.version == (version, rows):
            return
        found = connection.execute(
            "SELECT p.id, p.vector, m.derived FROM passages p JOIN knowledge_meta m ON m.id = p.id "
            "WHERE p.vector IS NOT NULL ORDER BY p.id"
        ).fetchall()
        self.ids = np.array([row[0] for row in found], dtype=np.int64)
        self.derived = np.array([row[2] for row in found], dtype=bool)
        joined = np.frombuffer(b"".join(row[1] for row in found), dtype="<f2")
        self.rows = joined.reshape(len(found), -1).astype(np.float32) if found else None
        self.version = (version, rows)


def refill(connection: sqlite3.Connection) -> bool:
    """Fills a stale vector table from the stored vectors. Returns True if it was stale."""
    import numpy as np

    kept = state(connection)
    if kept["vectors_stale"] != "1":
        return False
    connection.execute("DROP TABLE IF EXISTS knowledge_vec")
    create_vectors(connection)
    rows = connection.execute(
        f"SELECT p.id, m.project, iif(m.derived, {LINES}, m.session), p.vector FROM passages p JOIN knowledge_meta m "
        f"ON m.id = p.id "
        "WHERE p.vector IS NOT NULL"
    ).fetchall()
    for row in rows:
        (_, (small,)) = packed_vectors(
            np.frombuffer(row[3], dtype="<f2").astype(np.float32).reshape(1, -1), compared(kept)
        )
        connection.execute(
            "INSERT INTO knowledge_vec (rowid, project, session, embedding) VALUES (?, ?, ?, vec_int8(?))",
            (*row[:3], small),
        )
    connection.execute("UPDATE index_state SET value = '0' WHERE key = 'vectors_stale'")
    return True


SCALE = 254.0
"""int8 = round(254 · x): components of unit vectors of a hundred dimensions and more lie within ±0.5."""


def packed_vectors(vectors: NDArray[np.float32], first: int) -> tuple[list[bytes], list[bytes]]:
    """Returns each vector as float16 (for the exact cosine), and its `first` numbers as int8 (to find neighbors)."""
    half = vectors.astype("<f2")
    # From the rounded vectors, so that the table can be filled again from the stored ones.
    return [row.tobytes() for row in half], [row.tobytes() for row in in_bytes(half, first)]


def in_bytes(half: NDArray[np.float16], first: int) -> NDArray[np.int8]:
    """Returns the `first` numbers of float16 vectors (one per row) as int8, for the vector table.

    They are normalized again, so that L2 orders as the cosine does.
    """
    import numpy as np

    shown = half[:, :first].astype(np.float32)
    length = np.linalg.norm(shown, axis=1, keepdims=True)
    whole: NDArray[np.float32] = np.rint(shown / np.where(length > 0, length, 1) * SCALE)
    return whole.clip(-127, 127).astype(np.int8)


def nearest_of(connection: sqlite3.Connection, vector: NDArray[np.float32], scope: Scope, most: int) -> list[int]:
    """Returns the passages of a scope nearest to a unit vector, nearest first, with the same rounding as the vector
    table."""
    import numpy as np

    size = 2 * len(vector)
    rows = [row for row in rows_in(connection, scope, "vector") if row[1] is not None and len(row[1]) == size]
    if not rows:
        return []
    stored = np.frombuffer(b"".join(row[1] for row in rows), dtype="<f2").reshape(len(rows), len(vector))
    first = compared(state(connection))
    apart = in_bytes(stored, first).astype(np.int32) - in_bytes(vector.astype("<f2").reshape(1, -1), first)
    order = np.argsort((apart * apart).sum(axis=1), kind="stable")[:most]
    return [rows[place][0] for place in order]
