"""A raised voice: the marks in a message that say that something is urgent or that somebody is upset (S4 §4.2).

run       `!!!`, `?!?!`: three or more in a row
alarm     a word of alarm in capitals: URGENT, ASAP, …
shouting  three or more words in capitals in a row, which are no abbreviations
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_RUN = re.compile(r"[!?]*![!?]*")
_WORDS = re.compile(r"\b[A-Z][A-Z'’]*\b(?:[ ,]+\b[A-Z][A-Z'’]*\b)*")
_LEAST_RUN = 3
_LEAST_SHOUTED = 3

ALARM = frozenset(
    ("URGENT", "URGENTLY", "ASAP", "EMERGENCY", "IMMEDIATELY", "HELP", "SOS", "CRITICAL", "DRINGEND", "SOFORT", "HITNO")
)


def marks(text: str) -> Iterator[tuple[int, int]]:
    """Where such marks stand, in the order of their kinds: characters from and to."""
    if "!" in text:
        yield from (match.span() for match in _RUN.finditer(text) if len(match[0]) >= _LEAST_RUN)
    for match in _WORDS.finditer(text):
        words = match[0].replace(",", " ").split()
        shouted = len(words) >= _LEAST_SHOUTED and 2 * sum(len(word) > 3 for word in words) >= len(words)
        if shouted or any(word.strip("'’") in ALARM for word in words):
            yield match.span()
