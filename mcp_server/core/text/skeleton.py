"""Text as a reader sees it: without the characters that have no shape of their own."""

from __future__ import annotations

import re

IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point, for a character class."""
_VISIBLE = re.compile(f"[^{IGNORABLE}]")
_HIDDEN = re.compile(f"[{IGNORABLE}]")


def visible(text: str) -> tuple[str, list[int] | None]:
    """Returns the text without its invisible characters, and where each of the others is; no list if all are seen."""
    if text.isascii() or not _HIDDEN.search(text):
        return text, None
    kept = [match.start() for match in _VISIBLE.finditer(text)]
    return "".join(text[position] for position in kept), kept
