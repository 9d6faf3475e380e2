"""Text as a reader sees it: without invisible characters, and with look-alikes of ASCII as ASCII.

A skeleton is only for comparing (Unicode TR 39): it finds `<\u200csystem>`, and `<ѕystem>` with a Cyrillic letter.
"""

from __future__ import annotations

import re

from mcp_server.core.text.look_alikes import LIGATURES, LOOK_ALIKES

IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The characters with Unicode's property Default_Ignorable_Code_Point, for a character class."""
_HIDDEN = re.compile(f"[{IGNORABLE}]+")


def visible(text: str) -> tuple[str, list[int] | None]:
    """Returns the text without invisible characters, and the position of each other one; None if all are visible."""
    if text.isascii() or not _HIDDEN.search(text):
        return text, None
    kept: list[int] = []
    position = 0
    for match in _HIDDEN.finditer(text):
        kept.extend(range(position, match.start()))
        position = match.end()
    kept.extend(range(position, len(text)))
    return _HIDDEN.sub("", text), kept


_FOLDED = str.maketrans({look: plain for plain, looks in LOOK_ALIKES.items() for look in looks} | LIGATURES)


def skeleton(text: str) -> tuple[str, list[int] | None]:
    """Returns the skeleton, and the position in the text of each of its characters; None if they are the same."""
    if text.isascii():
        return text, None
    seen, positions = visible(text)
    folded = seen.translate(_FOLDED)
    if len(folded) == len(seen):
        return folded, positions
    kept = range(len(text)) if positions is None else positions
    return folded, [
        position for character, position in zip(seen, kept, strict=True) for _ in character.translate(_FOLDED)
    ]
