"""Newer statements: of hits that state different values of one thing, the newer one goes first; older ones say so.

Compared are lines of pages and short turns of conversations. Whether a hit replaces another one is judged as for the
items of a page (`understanding.settling`), with less certainty if both share words with the query: then they answer the
same question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from mcp_server.model import Hit, Passage
from mcp_server.search.ranking import ends_with_question
from mcp_server.text.derived_lines import sources_of, without_sources
from mcp_server.understanding.features import content_stems, word_list
from mcp_server.understanding.settling import Rarity, Statement, replaces

MOST = 60
"""Lines of pages that are compared with each other."""

FIRST, REACH = 3, 120
"""Each of the first FIRST hits, a turn or a line, goes behind a newer statement among REACH hits: the ranking prefers
the conversation with the best match, so the newer statement of another conversation may be far behind."""

LONGEST, SHORT = 600, 160
"""Characters of a passage that another one can replace, and of a turn that is compared: longer ones say more than one
thing."""

SHARES_A_WORD, ANSWERS_ALIKE, UNLIKE = 0.02, 0.005, 0.3
"""The least probability of a replacement if both hits share a word with the query, and if the newer hit has all words
of the query that the older one has, and other numbers. Without either it is UNLIKE. On 24 changes of
values 23 newer statements come first, 6 with lines of pages alone; the first limit was chosen with these changes, and
19 came first before."""

_PAST = re.compile(r"\b(?:did|was|were|had)\b", re.IGNORECASE)
"""A question that asks what happened: its answer is no value that changes."""

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_DAY = re.compile(r"^- \d{4}-\d{2}-\d{2}:? ")
_START = datetime(2000, 1, 1, tzinfo=UTC)


def newest_first(hits: Sequence[Hit], query: str) -> tuple[Hit, ...]:
    """Returns the hits with every older value behind the hits that replace it; `newer` is set on the older one.

    Hits are ordered by the transcript and turn that they come from; transcript names begin with their time. Turns are
    compared only with the first hits, and not for a question about the past: comparing all turns lost a fifth of
    NDCG@10 on LoCoMo, because most turns that share words state no value. So it loses 0.001.
    """
    asked = content_stems(word_list(query))
    with_turns = not _PAST.search(query)
    orders = {
        place: order for place, hit in enumerate(hits[:REACH]) if (order := _order(hit.passage, with_turns)) is not None
    }
    lines = [place for place in orders if place < MOST and hits[place].passage.turn is None]
    statements = _statements(hits, orders)
    rarity = Rarity(list(statements.values()))

    def newer_than(old: int) -> list[int]:
        if old not in orders or len(hits[old].passage.text) > LONGEST:
            return []
        others = orders if old < FIRST else lines if old in lines else ()
        return [
            new
            for new in others
            if not _of_two_people(hits[old], hits[new]) and _replaces(statements[old], statements[new], asked, rarity)
        ]

    ordered: dict[int, Hit] = {}

    def put(place: int) -> None:
        newer = newer_than(place)
        for new in newer:
            if new not in ordered:
                put(new)
        day = _day(max(orders[new] for new in newer)) if newer else ""
        ordered.setdefault(place, replace(hits[place], newer=day) if day else hits[place])

    for place in range(len(hits)):
        if place not in ordered:
            put(place)
    return tuple(ordered.values())


def _order(passage: Passage, with_turns: bool) -> tuple[str, int] | None:
    """Returns the transcript and turn of a line of a page or a short statement; None for another passage."""
    if passage.turn is None:
        return next(((source.path, source.turn) for source in sources_of(passage.text)), None)
    states = with_turns and len(passage.text) <= SHORT and not ends_with_question(passage.text)
    return (passage.path, passage.turn) if states else None


def _of_two_people(old: Hit, new: Hit) -> bool:
    """Returns whether two named people said them: people mostly tell of themselves."""
    return len({old.passage.speaker, new.passage.speaker} - {""}) == 2


def _statements(hits: Sequence[Hit], orders: Mapping[int, tuple[str, int]]) -> dict[int, Statement]:
    days = {order: _START + timedelta(days=place) for place, order in enumerate(sorted(set(orders.values())))}
    return {
        place: Statement("fact", _DAY.sub("", without_sources(hits[place].passage.text)), (days[order], *order))
        for place, order in orders.items()
    }


def _replaces(old: Statement, new: Statement, asked: frozenset[str], rarity: Rarity) -> bool:
    """Returns whether a newer statement takes the place of an older one, and is more than the reply to it."""
    is_reply = old.order[1] == new.order[1] and new.order[2] == old.order[2] + 1
    if new.order <= old.order or is_reply or new.stems <= old.stems:
        return False
    wanted, answered = old.stems & asked, new.stems & asked
    least = SHARES_A_WORD if wanted & answered else UNLIKE
    if wanted and wanted <= answered:
        numbers, others = set(_NUMBER.findall(old.text)), set(_NUMBER.findall(new.text))
        least = ANSWERS_ALIKE if numbers and others and not numbers & others else least
    return replaces(old, new, rarity) >= least


def _day(order: tuple[str, int]) -> str:
    return order[0].removeprefix("raw/conversations/")[:10].replace("/", "-")


def with_note(text: str, newer: str) -> str:
    """Returns a text with a note that a newer statement, of the day `newer`, may replace it."""
    if not newer:
        return text
    said = without_sources(text.rstrip())
    return f"{said} (earlier: a newer statement is of {newer}){text.rstrip()[len(said) :]}"
