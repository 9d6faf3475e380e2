"""Query: what a message asks of an index, and how much each of its words tells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from mcp_server.text.words import content_words, names_in, words

_WHEN = frozenset(
    word
    for line in (
        "when date dates day days week weeks month months year years long",
        "kada kad datum dana dugo",
        "wann datum seit lange",
    )
    for word in line.split()
)


@dataclass(frozen=True, slots=True)
class Query:
    """What a message asks of the index.

    `words` are put to the keyword index; `names` are folded parts of the names in `people` and stay out of it. Both
    are looked up in passages, in this order: see `lookup`. `idf` belongs to `words`. `people` are speakers, written
    as the index writes them.
    """

    words: tuple[str, ...]
    idf: tuple[float, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    people: frozenset[str] = frozenset()
    asks_when: bool = False
    names: tuple[str, ...] = ()

    @property
    def lookup(self) -> tuple[str, ...]:
        """The words that bits of `Candidate.matched` stand for."""
        return self.words + self.names


def read_query(text: str, speakers: Iterable[str] = ()) -> Query:
    """A message as a query: its content words, those that stand side by side, and which of the scope's speakers it
    names.

    Names of speakers are no keywords: they would find who is spoken to. A message of nothing but names is looked up
    by them.
    """
    spoken = words(text)
    people = names_in(text, speakers)
    parts = {part for name in people for part in words(name)}
    found = content_words(text, parts)
    kept = set(found)
    names = tuple(dict.fromkeys(word for word in spoken if word in parts))
    said = [word for word in spoken if word in kept]
    return Query(
        words=tuple(found) or names,
        idf=(1.0,) * len(found or names),
        pairs=tuple(dict.fromkeys(pair for pair in pairwise(said) if pair[0] != pair[1])),
        people=frozenset(people),
        asks_when=not _WHEN.isdisjoint(spoken),
        names=names if found else (),
    )


def idf(frequency: int, passages: int) -> float:
    """What it says that a passage holds a word which `frequency` of `passages` hold, in nats; always above 0."""
    return math.log(1 + (max(0, passages - frequency) + 0.5) / (frequency + 0.5))


def weigh(query: Query, frequencies: Sequence[int], passages: int) -> Query:
    """The query with the IDF of its words. `frequencies` are those of its `words`, or of its whole `lookup`."""
    return replace(query, idf=tuple(idf(frequency, passages) for frequency in frequencies[: len(query.words)]))
