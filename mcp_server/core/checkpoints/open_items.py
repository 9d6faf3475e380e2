"""Open items: what still has to be done, as it was said (SPEC §11).

An item opens with `TODO`, `next:`, an empty task box, or a user's sentence with need, should or must (no question); it
closes with an entry that says the same and is marked done (`done: …`, a ticked box).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mcp_server.core.checkpoints.duplicates import covered, is_duplicate
from mcp_server.core.checkpoints.messages import is_injected
from mcp_server.core.checkpoints.prose import entry, prose, sentences
from mcp_server.core.model import Role

_OPEN_BOX = re.compile(r"^[-*+]\s+\[ \]\s+(.+)")
_DONE_BOX = re.compile(r"^[-*+]\s+\[[xX]\]\s+(.+)")
_TODO = re.compile(
    r"^(?:[-*+]\s+)?(?:\*\*)?(?:TODO|todo|next(?: steps?)?|open)\b(?:\*\*)?\s*[:\-–]\s*(.+)", re.IGNORECASE
)
_DONE = re.compile(
    r"^(?:[-*+]\s+)?(?:\*\*)?(?:done|finished|completed|fixed|closed|gotovo|zavrseno|završeno)(?:\*\*)?\s*[:\-–]\s*(.+)",
    re.IGNORECASE,
)
_NEED = re.compile(
    r"\b(?:i|we)\s+(?:still\s+|also\s+|really\s+)?(?:need|have\s+to|must|should|ought\s+to)\b"
    r"|\b(?:moram|moramo|treba)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Items:
    """What one message opens and what it closes."""

    opened: tuple[str, ...] = ()
    done: tuple[str, ...] = ()


def found_in(role: Role, text: str) -> Items:
    """The items of one message; none in what a program injected."""
    if is_injected(text):
        return Items()
    opened, done = [], []
    for line in prose(text):
        if match := _DONE_BOX.match(line) or _DONE.match(line):
            done.append(entry(match[1]))
        elif match := _OPEN_BOX.match(line) or _TODO.match(line):
            opened.append(entry(match[1]))
        elif role == "user":
            for said in sentences(line):  # people put it behind a "Yes, do that."
                if match := _DONE.match(said):
                    done.append(entry(match[1]))
                elif match := _TODO.match(said):
                    opened.append(entry(match[1]))
                elif _NEED.search(said) and not said.endswith("?"):
                    opened.append(entry(said))
    return Items(tuple(filter(None, opened)), tuple(filter(None, done)))


def after(items: Iterable[str], new: Items) -> list[str]:
    """The open items after a message: each thing once, what is done gone."""
    kept = [item for item in items if not any(is_duplicate(item, done) for done in new.done)]
    for item in new.opened:
        if not covered(item, kept) and not covered(item, new.done):
            kept.append(item)
    return kept
