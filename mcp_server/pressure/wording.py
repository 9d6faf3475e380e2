"""Summaries that a model words: what it is asked, and what of its answer counts.          (S1 "Adaptive Drop Logic")

The rules' summary stands at once (`summary`); a model's takes its place if it fits, is whole, and says what the
original says: a model does not get to make things up.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mcp_server.text.fencing import neutralise
from mcp_server.text.words import content_words

LONGEST_SHOWN = 24_000
"""Characters of a message that a request shows: of a longer one head and tail."""

WORDS_A_TOKEN = 0.6
"""Fewer words than tokens are asked for, so that the answer ends before the limit cuts it."""

SUPPORTED = 0.5
"""Share of a summary's content words that must stand in the original."""

_FENCED = re.compile(r"\s*```\w*\n(.*?)\n```\s*", re.DOTALL)
_ENDED = re.compile(r"[.!?…:;)\]\"'`*|]$|\n\s*(?:[-*+]|\d+[.)])\s[^\n]*$")
_LAST_END = re.compile(r".*[.!?…](?=\s)", re.DOTALL)


def request(template: str, message: str, most_tokens: int) -> str:
    """The prompt for one message."""
    shown = message
    if len(message) > LONGEST_SHOWN:
        shown = f"{message[: LONGEST_SHOWN * 3 // 4]}\n[…]\n{message[-LONGEST_SHOWN // 4 :]}"
    words = max(1, int(most_tokens * WORDS_A_TOKEN))
    before, _, after = template.replace("{words}", str(words)).partition("{message}")
    return before + neutralise(shown) + after


def read(answer: str, original: str, most_tokens: int, count: Callable[[str], int]) -> str | None:
    """The summary that an answer holds, with at most `most_tokens` tokens as `count` counts them; None for what is
    none: too long, not shorter than the original, or about something else."""
    fenced = _FENCED.fullmatch(answer)
    text = _whole((fenced[1] if fenced else answer).strip())
    if not text or len(text) >= len(original) or count(text) > most_tokens:
        return None
    said, known = content_words(text), set(content_words(original))
    return text if said and sum(word in known for word in said) >= SUPPORTED * len(said) else None


def _whole(text: str) -> str:
    """Without a last sentence that the limit cut off."""
    if _ENDED.search(text):
        return text
    found = _LAST_END.match(text)
    return found[0] if found else text
