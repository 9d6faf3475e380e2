"""The words of a message with their places, folded: what keywords and names are looked up in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_server.core.text.words import fold

_WORD = re.compile(r"['’](?:s|t|d|m|re|ve|ll)\b|(?:[^\W_][\u0300-\u036f]*)+", re.IGNORECASE)
_UNSPACED = re.compile(r"[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class Spoken:
    """Words in order, folded, without the tails of contractions; word `i` stands in characters `spans[i]`."""

    words: Sequence[str]
    spans: Sequence[tuple[int, int]]


def spoken(text: str) -> Spoken:
    """The words of a message."""
    found = [match for match in _WORD.finditer(text) if match[0][0] not in "'’" or match.start() == 0]
    words = [match[0].lower() if match[0].isascii() else fold(match[0]) for match in found]
    return Spoken(words, [match.span() for match in found])


def has_no_spaces(text: str) -> bool:
    """Is it written in a script that puts no blanks between words? Then it is looked for as it stands."""
    return _UNSPACED.search(text) is not None
