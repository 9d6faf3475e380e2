"""Query: the words, word pairs and people of a message for the index, and the IDF of the words."""

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
    """A message as a query for the index.

    The keyword index searches for `words`, not for `names`, the folded parts of the names in `people`. Passages are
    checked for both, in this order: see `lookup`. `idf` has a value for each of `words`. `people` are speakers, as the
    index writes their names.
    """

    words: tuple[str, ...]
    idf: tuple[float, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    people: frozenset[str] = frozenset()
    asks_when: bool = False
    names: tuple[str, ...] = ()

    @property
    def lookup(self) -> tuple[str, ...]:
        """The words of the bits of `Candidate.matched`."""
        return self.words + self.names


def read_query(text: str, speakers: Iterable[str] = ()) -> Query:
    """Returns a message as a query: its content words, adjacent pairs of them, and the speakers that it names.

    Names of speakers are not keywords, because they would find whom somebody addressed. They are used only if the
    message has no other words.
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
    """Returns the inverse document frequency, in nats, of a word in `frequency` of `passages`; always above 0."""
    return math.log(1 + (max(0, passages - frequency) + 0.5) / (frequency + 0.5))


def weigh(query: Query, frequencies: Sequence[int], passages: int) -> Query:
    """Returns the query with the IDF of its words. `frequencies` are those of its `words`, or of its whole `lookup`."""
    return replace(query, idf=tuple(idf(frequency, passages) for frequency in frequencies[: len(query.words)]))
