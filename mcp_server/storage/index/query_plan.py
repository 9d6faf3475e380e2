"""The plan of a query: its words with their frequencies, and the words that fetch passages. Scores are FTS5's BM25."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_server.search.query import Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


SMALL_SCOPE = 1_000
"""Scopes with at most this many passages are read whole, in some milliseconds; from about 3,000 on the tables are
faster."""


K1, B = 1.2, 0.75
"""BM25's constants, as in FTS5."""


@dataclass(frozen=True, slots=True)
class SmallScope:
    """The words of all passages of a small scope: `stems` of one passage after the other; `owner` is the place in `ids`
    of the passage that each stem belongs to."""

    ids: NDArray[np.int64]
    stems: NDArray[np.uint32]
    owner: NDArray[np.intp]
    lengths: NDArray[np.intp]

    @classmethod
    def of(cls, rows: Sequence[tuple[int, bytes]]) -> SmallScope:
        """Returns the scope of these passages: pairs of id and stems, ordered by id."""
        import numpy as np

        lengths = np.array([len(stems) // 4 for _, stems in rows], dtype=np.intp)
        return cls(
            ids=np.array([number for number, _ in rows], dtype=np.int64),
            stems=np.frombuffer(b"".join(stems for _, stems in rows), dtype="<u4"),
            owner=np.repeat(np.arange(len(rows)), lengths),
            lengths=lengths,
        )

    def holding(self, stem: int) -> int:
        """Returns the number of passages that contain a stem."""
        import numpy as np

        return len(np.unique(self.owner[self.stems == stem]))

    def best(self, words: Sequence[tuple[int, int]], passages: int, mean_words: float, most: int) -> list[int]:
        """Returns the ids of the `most` passages that match best. `words` are pairs of a stem and the number of
        passages of the whole index that contain it; `passages` and `mean_words` are those of the whole index."""
        import numpy as np

        total = np.zeros(len(self.ids))
        norm = K1 * (1 - B + B * self.lengths / mean_words)
        for stem, frequency in words:
            times = np.bincount(self.owner[self.stems == stem], minlength=len(self.ids))
            total += idf(passages, frequency) * times * (K1 + 1) / (times + norm)
        order = np.argsort(-total, kind="stable")[:most]
        return [int(number) for number in self.ids[order[total[order] > 0]]]


def idf(passages: int, frequency: int) -> float:
    """Returns a word's inverse document frequency: it is in `frequency` of `passages`."""
    return max(math.log(max((passages - frequency + 0.5) / (frequency + 0.5), 1e-6)), 1e-6)


FETCHING_WORDS = 32


COUNTED = 5_000
"""Words in at most this many passages are counted within the scope; for more common ones the scope's share is used."""


FIRST_FETCH = 1_000
"""Passages that are fetched before the scope is applied; if too few of them are in it, it is joined to the search."""


SLACK = 1.5
"""Factor on the number of passages that are fetched first for a scope, because passages outside of it may match better.
"""


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query as this index understands it. `numbers` are the stems of `asked.lookup`; `fetch` is a MATCH expression,
    "" for none.

    `frequencies` and `passages` are those of the scope; `everywhere`, `all_passages` and `mean_words` those of the
    whole index, which BM25 uses. Derived lines count only if the scope includes them.
    """

    asked: Query
    numbers: tuple[int, ...]
    frequencies: tuple[int, ...]
    passages: int
    everywhere: tuple[int, ...]
    all_passages: int
    mean_words: float
    fetch: str
    fetch_lines: str
    fetching: tuple[tuple[int, int], ...] = ()
    small: SmallScope | None = None
    """The fetching words as stems with their frequencies in the whole index; and the words of the scope if it is small.
    """
