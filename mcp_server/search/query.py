"""Queries: the operators of a search, and the words, word pairs and people of a message for the index.

    "exact phrase"   must occur, word for word
    -word -"phrase"  must not occur
    category:person  only passages of that category
    since:2026-05 until:2026-06   only passages of that time; also today, yesterday, 7d, 2w, 3m, 1y
    everything else  words

In a question (`what does "now or never" mean?`) quotes are not operators. Any text is a valid query: invalid operators
(an unclosed quote, `since:soon`, `C++`, `--flag`) are read as words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import get_args

from mcp_server.model import Category
from mcp_server.text.words import bounded, content_words, names_in, words

CATEGORIES: tuple[str, ...] = get_args(Category)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed query. `text` is the query without operators, for the embedder and the keyword index. `phrases` and
    `excluded` are folded word sequences. `since` is inclusive, `until` exclusive."""

    text: str
    phrases: tuple[tuple[str, ...], ...] = ()
    excluded: tuple[tuple[str, ...], ...] = ()
    category: Category | None = None
    since: datetime | None = None
    until: datetime | None = None


_OPERATOR = re.compile(
    r"""(?<!\S)(?:
        (?P<minus>-)?"(?P<phrase>[^"]+)"(?!\w)
      | -(?P<word>[^\W_][^\s"]*)
      | (?P<key>category|since|until):(?P<value>[^\s"]+)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
_BACK = re.compile(r"(\d{1,4})([dwmy])")
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


def parse_query(text: str, now: datetime) -> ParsedQuery:
    """Parses a query. `now` has a time zone, which is used for dates in the query."""
    phrases: list[tuple[str, ...]] = []
    excluded: list[tuple[str, ...]] = []
    said: dict[str, object] = {}

    def take(found: re.Match[str]) -> str:
        if sequence := tuple(words(found["phrase"] or found["word"] or "")):
            if found["minus"] or found["word"]:
                excluded.append(sequence)
                return " "
            if not asks:
                phrases.append(sequence)
            return f" {found['phrase']} "
        if found["key"] is None:
            return " "
        if (meant := _value(found, now)) is None:
            return found[0]
        said[found["key"].lower()] = meant
        return " "

    asks = text.rstrip().endswith("?")
    left = _OPERATOR.sub(take, bounded(text)).strip()
    return ParsedQuery(
        text=left,
        phrases=tuple(dict.fromkeys(phrases)),
        excluded=tuple(dict.fromkeys(excluded)),
        **said,  # type: ignore[arg-type]  # `take` sets the keys and types
    )


NO_DATE = "is not a date (2026, 2026-05, 2026-05-08, today, yesterday, 7d)"
NOT_READ = {
    "category": f"is not a category ({', '.join(CATEGORIES)})",
    "since": NO_DATE,
    "until": NO_DATE,
}


def unknown_values(text: str, now: datetime) -> tuple[str, ...]:
    """Returns a sentence for each operator of a query whose value is unknown, and which is therefore searched as a
    word."""
    return tuple(
        f"{found[0]} {NOT_READ[found['key'].lower()]}, so it was searched as a word"
        for found in _OPERATOR.finditer(bounded(text))
        if found["key"] and _value(found, now) is None
    )


def _value(operator: re.Match[str], now: datetime) -> str | datetime | None:
    """Returns the value of an operator with a key: a category, or the first or last moment of its time. None if the
    value is unknown."""
    key, value = operator["key"].lower(), operator["value"].lower()
    if key == "category":
        return value if value in CATEGORIES else None
    span = period(value, now)
    return span and span[0 if key == "since" else 1]


@lru_cache(maxsize=16)  # a push and a compilation read their message three times
def plain_query(message: str) -> ParsedQuery:
    """Returns a message as a query without operators."""
    return ParsedQuery(text=bounded(message))


def period(value: str, now: datetime) -> tuple[datetime, datetime] | None:
    """Returns the start of a named time and the moment after its end; None if it names no time. `2026`, `2026-05`,
    `2026-05-08`, `2026-05-08T14:30`, `today`, `yesterday`, `7d` (seven days ago, until now)."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if value in ("today", "yesterday"):
        first = midnight - timedelta(days=value == "yesterday")
        return first, first + timedelta(days=1)
    try:
        if back := _BACK.fullmatch(value):
            return now - timedelta(days=int(back[1]) * _DAYS[back[2]]), now
        if re.fullmatch(r"\d{4}", value):
            return midnight.replace(int(value), 1, 1), midnight.replace(int(value) + 1, 1, 1)
        if month := re.fullmatch(r"(\d{4})-(\d{1,2})", value):
            year, number = int(month[1]), int(month[2])
            first = midnight.replace(year, number, 1)
            return first, midnight.replace(year + number // 12, number % 12 + 1, 1)
        exact = datetime.fromisoformat(value.upper())
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
            first = exact.replace(tzinfo=now.tzinfo)
            return first, first + timedelta(days=1)
        exact = exact if exact.tzinfo else exact.replace(tzinfo=now.tzinfo)
        return exact, exact + timedelta(minutes=1)
    except (ValueError, OverflowError):
        return None


_WHEN = frozenset(
    words("when date dates day days week weeks month months year years long kada kad datum dana dugo wann seit lange")
)


@dataclass(frozen=True, slots=True)
class Query:
    """A message as a query for the index. The keyword index searches for `words`, not for `names`, the folded parts of
    the names in `people`. Passages are checked for both, in this order: see `lookup`. `idf` has a value for each of
    `words`. `people` are speakers, as the index writes their names."""

    words: tuple[str, ...]
    idf: tuple[float, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    people: frozenset[str] = frozenset()
    asks_when: bool = False
    names: tuple[str, ...] = ()
    lookup: tuple[str, ...] = field(init=False)
    """The words of the bits of `Candidate.matched`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lookup", self.words + self.names)


@lru_cache(maxsize=16)  # a search reads its message for all passages, and for the lines of the page
def read_query(text: str, speakers: tuple[str, ...] = ()) -> Query:
    """Returns a message as a query: its content words, adjacent pairs of them, and the speakers that it names. Names of
    speakers are not keywords, because they would find passages that address these speakers. They are used only if the
    message has no other words."""
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


def query_idf(frequency: int, passages: int) -> float:
    """Returns the inverse document frequency, in nats, of a word in `frequency` of `passages`; always above 0."""
    return math.log(1 + (max(0, passages - frequency) + 0.5) / (frequency + 0.5))


def weigh(query: Query, frequencies: Sequence[int], passages: int) -> Query:
    """Returns the query with the IDF of its words. `frequencies` are those of its `words`, or of its whole `lookup`."""
    return replace(query, idf=tuple(query_idf(frequency, passages) for frequency in frequencies[: len(query.words)]))
