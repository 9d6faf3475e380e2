"""Prose: the lines of a message that are not code, the form of an entry, and extractive summaries.

A summary has the sentences of a text with the most frequent words, in their order. The weight of a word is the number
of sentences that contain it, and the value of a sentence is the mean weight of its words. The first and last sentence
count a little more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

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


LONGEST = 200
"""Characters of an entry."""

_FENCE = re.compile(r"\s*(?:>\s*)*(?:(?:[-*+]|\d+[.)])\s+)?(`{3,}|~{3,})(.*)")
_BULLET = re.compile(r"^(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_HEADING = re.compile(r"^#{1,6}\s+")


def prose(text: str) -> Iterator[str]:
    """Yields the stripped lines that are neither blank nor code. A fence that is never closed extends to the end."""
    fence = ""
    for line in text.splitlines():
        code = _FENCE.match(line)
        if fence:
            if code and code[1].startswith(fence) and not code[2].strip():
                fence = ""
        elif code and "`" not in code[2]:
            fence = code[1]
        elif line.strip():
            yield line.strip()


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def bare(line: str) -> str:
    """Returns a line without its heading marks, bullet, number or task box."""
    return _BULLET.sub("", _HEADING.sub("", line.strip(), count=1), count=1).strip()


def entry(text: str) -> str:
    """Returns a text as an entry: on one line, without bullet and bold marks, cut at a word after 200 characters."""
    return clipped(bare(text).replace("**", ""), LONGEST)


def clipped(text: str, longest: int) -> str:
    """Returns a text on one line of at most `longest` characters, cut at a word if possible, with an ellipsis."""
    plain = " ".join(text.split())
    if len(plain) <= longest:
        return plain
    head = plain[: longest - 1]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"
