"""Extractive summaries: the sentences of a text with the most frequent words, in their order.

The weight of a word is the number of sentences that contain it, and the value of a sentence is the mean weight of its
words. The first and last sentence count a little more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from mcp_server.text.words import content_words

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+")
EDGE = 1.15
"""The factor for the value of the first and the last sentence."""


def sentences(text: str) -> list[str]:
    """Returns the sentences and lines of a text, without empty ones."""
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def summarise(text: str, most: int, count: Callable[[str], int]) -> str:
    """Returns at most `most` tokens of `text`, as `count` counts them: whole sentences in order, joined by ` … ` over
    gaps; empty if no sentence fits."""
    parts = sentences(text)
    words = [content_words(part) for part in parts]
    spread = Counter(word for said in words for word in said)

    def worth(place: int) -> float:
        said = words[place]
        mean = sum(spread[word] for word in said) / len(said) if said else 0.0
        return mean * (EDGE if place in (0, len(parts) - 1) else 1.0)

    chosen: set[int] = set()
    spent = 0
    for place in sorted(range(len(parts)), key=lambda place: (-worth(place), place)):
        cost = count(parts[place]) + 2  # a space or an ellipsis
        if spent + cost <= most:
            chosen.add(place)
            spent += cost
    while chosen and count(joined := _joined(parts, chosen)) > most:
        chosen.remove(min(chosen, key=lambda place: (worth(place), -place)))
    return joined if chosen else ""


def _joined(parts: list[str], chosen: set[int]) -> str:
    said: list[str] = []
    before = -1
    for place in sorted(chosen):
        said += (["…"] if place != before + 1 else []) + [parts[place]]
        before = place
    return " ".join([*said, "…"] if before != len(parts) - 1 else said)
