"""The plan of a query: its words with their frequencies, and the words that fetch passages. Scores are FTS5's BM25."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp_server.search.query import Query, weigh

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

    def best(self, words: Sequence[Fetching], passages: int, mean_words: float, most: int) -> list[int]:
        """Returns the ids of the `most` passages that match best. `passages` and `mean_words` are those of the whole
        index."""
        import numpy as np

        total = np.zeros(len(self.ids))
        norm = K1 * (1 - B + B * self.lengths / mean_words)
        for _, stem, frequency in words:
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
class Scope:
    """Filters as an index understands them. `condition` is SQL over a row `m` of a passage, with `values` for its
    placeholders.

    `projects` and `without_session` are part of the condition, and separate for counting and for searching by meaning.
    `other`: there are further conditions. `everything`: nothing is left out. `lines`: derived lines are searched and
    counted as passages of their own.
    """

    condition: str
    values: tuple[Any, ...]
    projects: tuple[Any, ...] | None
    without_session: Any
    other: bool
    everything: bool
    lines: bool


class Fetching(NamedTuple):
    """A word that fetches passages: its stem, and the number of passages of the whole index that contain it."""

    word: str
    stem: int
    frequency: int


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query as an index understands it. `numbers` are the stems of `asked.lookup`. `fetching` are the words that
    fetch passages; derived lines are also fetched by words `of_lines`, which no turn contains.

    `frequencies` and `passages` are those of the scope; `everywhere`, `all_passages` and `mean_words` those of the
    whole index, which BM25 uses. Derived lines count only if the scope includes them. `small` are the words of the
    scope if it is small.
    """

    asked: Query
    numbers: tuple[int, ...]
    frequencies: tuple[int, ...]
    passages: int
    everywhere: tuple[int, ...]
    all_passages: int
    mean_words: float
    fetching: tuple[Fetching, ...]
    of_lines: tuple[Fetching, ...]
    small: SmallScope | None


def planned(
    asked: Query,
    numbers: tuple[int, ...],
    everywhere: tuple[int, ...],
    totals: tuple[int, int],
    scope: Scope,
    passages: int,
    small: SmallScope | None,
    counted: Callable[[int], int],
    postings: int,
) -> QueryPlan:
    """Returns the plan of a query. `totals` are the passages and words of the whole index; `counted` returns how many
    passages of the scope contain the word at a place of `asked.lookup`.

    The rarest word always fetches, then the next ones, while all together occur in at most `postings` passages.
    """
    all_passages, total_words = totals
    share = passages / all_passages if all_passages else 0.0

    def frequency(place: int) -> int:
        known = everywhere[place]
        if not known or scope.everything:
            return known
        if known > COUNTED:
            return max(1, round(known * share))
        return small.holding(numbers[place]) if small else counted(place)

    frequencies = tuple(map(frequency, range(len(everywhere))))
    fetching: list[Fetching] = []
    of_lines: list[Fetching] = []
    for known, word, stem in sorted(zip(everywhere, asked.words, numbers, strict=False)):
        if known and (not fetching or known <= postings) and len(fetching) < FETCHING_WORDS:
            fetching.append(Fetching(word, stem, known))
            postings -= known
        elif not known and len(of_lines) < FETCHING_WORDS:
            of_lines.append(Fetching(word, stem, known))
    return QueryPlan(
        asked=weigh(asked, frequencies, passages),
        numbers=numbers,
        frequencies=frequencies,
        passages=passages,
        everywhere=everywhere,
        all_passages=all_passages,
        mean_words=total_words / all_passages if all_passages else 1.0,
        fetching=tuple(fetching),
        of_lines=tuple(of_lines),
        small=small,
    )
