"""A scope of few passages (a conversation, a young project) is read whole: its words are counted and its vectors
compared directly, which takes a fraction of what the tables for everything take to find that few among all.

The outcome is the same: BM25 is FTS5's own formula, from the stems that stand beside a passage.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_server.storage.local.index.schema import compared, state
from mcp_server.storage.local.index.scope import Scope
from mcp_server.storage.local.index.writer import in_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEW = 1_000
"""Passages. Reading so many takes some milliseconds; asking the tables takes more from about 3,000 on."""

K1, B = 1.2, 0.75
"""BM25's constants, as FTS5 has them."""


def is_few(connection: sqlite3.Connection, scope: Scope) -> bool:
    """Whether a scope has few passages; found out without counting more."""
    if scope.everything:
        return False
    (counted,) = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM knowledge_meta m WHERE m.derived <= ? AND {scope.condition} LIMIT ?)",
        (scope.lines, *scope.values, FEW + 1),
    ).fetchone()
    return int(counted) <= FEW


@dataclass(frozen=True, slots=True)
class Few:
    """The words of all passages of a scope: `stems` of one after the other, `owner` says whose each is, by its place
    in `ids`."""

    ids: NDArray[np.int64]
    stems: NDArray[np.uint32]
    owner: NDArray[np.intp]
    lengths: NDArray[np.intp]

    @classmethod
    def read(cls, connection: sqlite3.Connection, scope: Scope) -> Few:
        """Reads them, in order of their ids."""
        import numpy as np

        rows = _rows(connection, scope, "stems")
        lengths = np.array([len(stems) // 4 for _, stems in rows], dtype=np.intp)
        return cls(
            ids=np.array([number for number, _ in rows], dtype=np.int64),
            stems=np.frombuffer(b"".join(stems for _, stems in rows), dtype="<u4"),
            owner=np.repeat(np.arange(len(rows)), lengths),
            lengths=lengths,
        )

    def holding(self, stem: int) -> int:
        """In how many passages a word stands."""
        import numpy as np

        return len(np.unique(self.owner[self.stems == stem]))

    def best(self, words: Sequence[tuple[int, int]], passages: int, mean_words: float, most: int) -> list[int]:
        """The passages that match words best, at most `most`: each word is its stem and in how many passages of the
        whole index it stands; `passages` and `mean_words` are the whole index's."""
        import numpy as np

        total = np.zeros(len(self.ids))
        norm = K1 * (1 - B + B * self.lengths / mean_words)
        for stem, frequency in words:
            times = np.bincount(self.owner[self.stems == stem], minlength=len(self.ids))
            total += idf(passages, frequency) * times * (K1 + 1) / (times + norm)
        order = np.argsort(-total, kind="stable")[:most]
        return [int(number) for number in self.ids[order[total[order] > 0]]]


def idf(passages: int, frequency: int) -> float:
    """How much a word tells that stands in `frequency` of `passages`."""
    return max(math.log(max((passages - frequency + 0.5) / (frequency + 0.5), 1e-6)), 1e-6)


def nearest_of(connection: sqlite3.Connection, vector: NDArray[np.float32], scope: Scope, most: int) -> list[int]:
    """The passages of a scope nearest to a unit vector, nearest first, just as the vector table compares them."""
    import numpy as np

    size = 2 * len(vector)
    rows = [row for row in _rows(connection, scope, "vector") if row[1] is not None and len(row[1]) == size]
    if not rows:
        return []
    stored = np.frombuffer(b"".join(row[1] for row in rows), dtype="<f2").reshape(len(rows), len(vector))
    first = compared(state(connection))
    apart = in_bytes(stored, first).astype(np.int32) - in_bytes(vector.astype("<f2").reshape(1, -1), first)
    order = np.argsort((apart * apart).sum(axis=1), kind="stable")[:most]
    return [rows[place][0] for place in order]


def _rows(connection: sqlite3.Connection, scope: Scope, column: str) -> list[tuple[int, bytes]]:
    return connection.execute(
        f"SELECT m.id, p.{column} FROM knowledge_meta m CROSS JOIN passages p ON p.id = m.id "
        f"WHERE m.derived <= ? AND {scope.condition} ORDER BY m.id",
        (scope.lines, *scope.values),
    ).fetchall()
