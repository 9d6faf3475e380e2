"""Newer lines: of page lines that state different values of one thing, a newer one goes first; older ones say so.

Whether a hit replaces another one is judged as for the items of a page (`understanding.settling`), with less
certainty if both share words with the query: then they answer the same question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from mcp_server.model import Hit
from mcp_server.text.derived_lines import sources_of, without_sources
from mcp_server.understanding.features import content_stems, word_list
from mcp_server.understanding.settling import Rarity, Statement, replaces, same

MOST = 60
"""Hits that are compared with each other."""

LONGEST = 600
"""Characters of a passage that another one can replace: a longer one says more than one thing."""

SHARES_A_WORD, ANSWERS_ALIKE, UNLIKE = 0.05, 0.005, 0.3
"""The least probability of a replacement if both hits share a word with the query, and if the newer hit has all words
of the query that the older one has, and other numbers. Without either it is UNLIKE."""

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_DAY = re.compile(r"^- \d{4}-\d{2}-\d{2}:? ")
_START = datetime(2000, 1, 1, tzinfo=UTC)


def newest_first(hits: Sequence[Hit], query: str) -> tuple[Hit, ...]:
    """Returns the hits with every older value behind the hits that replace it; `newer` is set on the older one.

    Only page lines are compared, by the transcript and turn that they were taken from; transcript names begin with
    their time. Turns of conversations keep the order of the ranking: reordering them as well lost a fifth of NDCG@10 on
    LoCoMo, because most turns that share words state no value at all.
    """
    asked = content_stems(word_list(query))
    sources = map(sources_of, [hit.passage.text for hit in hits[:MOST]])
    said = [(hit, (found[0].path, found[0].turn)) for hit, found in zip(hits, sources, strict=False) if found]
    orders = {id(hit): order for hit, order in said}
    statements = _statements(said)
    rarity = Rarity(list(statements.values()))
    by: dict[int, list[Hit]] = {}
    for old, old_order in said:
        if len(old.passage.text) <= LONGEST:
            by[id(old)] = [
                new
                for new, order in said
                if order > old_order and _replaces(statements[id(old)], statements[id(new)], asked, rarity)
            ]
    ordered: dict[int, Hit] = {}

    def put(hit: Hit) -> None:
        newer = by.get(id(hit), ())
        for new in newer:
            if id(new) not in ordered:
                put(new)
        day = _day(max(orders[id(new)] for new in newer)) if newer else ""
        ordered.setdefault(id(hit), replace(hit, newer=day) if day else hit)

    for hit in hits:
        if id(hit) not in ordered:
            put(hit)
    return tuple(ordered.values())


def _statements(said: Sequence[tuple[Hit, tuple[str, int]]]) -> dict[int, Statement]:
    days = {order: _START + timedelta(days=place) for place, order in enumerate(sorted({order for _, order in said}))}
    texts = [_DAY.sub("", text) for text in map(without_sources, [hit.passage.text for hit, _ in said])]
    return {
        id(hit): Statement("fact", text, (days[order], *order)) for (hit, order), text in zip(said, texts, strict=True)
    }


def _replaces(old: Statement, new: Statement, asked: frozenset[str], rarity: Rarity) -> bool:
    if same(old, new):
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
    said, mark, sources = text.rstrip().partition(" [src: ")
    return f"{said} (earlier: a newer statement is of {newer}){mark}{sources}"
