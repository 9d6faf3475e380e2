"""The block `[CLARITY CONTEXT]`: what the conversation is about, in at most 150 tokens (S0 "Debugging")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mcp_server.text.fencing import neutralise

COMMANDS = ("status", "scores", "stats", "config", "state", "anchor", "unanchor", "prune")
"""S0's commands; `status` is the one without a word."""

MOST_TOKENS = 150
HIGH, MIDDLE = 50, 40
"""Points from which an item is marked ● and ◐; below stands ○."""

LONGEST_SHOWN = 100

HEAD = "[CLARITY CONTEXT]\nHigh-relevance context:"


@dataclass(frozen=True, slots=True)
class BlockItem:
    """An item that the block may show: its id, its points and their terms, why it stays."""

    id: str
    score: float
    anchored: bool = False
    why: str = ""
    terms: Mapping[str, float] = field(default_factory=dict)


def line(item: BlockItem) -> str:
    """One item: its mark, its anchor, its id, its points."""
    mark = "●" if item.score >= HIGH else "◐" if item.score >= MIDDLE else "○"
    anchor = "⚓ " if item.anchored else ""
    name = " ".join(neutralise(item.id).split())  # anchors are written by hand, too
    return f"  {mark} {anchor}{name[:LONGEST_SHOWN]} ({item.score:.0f})"


def block(items: Sequence[BlockItem], count: Callable[[str], int], most: int = MOST_TOKENS, head: str = HEAD) -> str:
    """The items, the highest first as they are given, as many as fit into `most` tokens; empty without any."""
    text = head
    for item in items:
        longer = f"{text}\n{line(item)}"
        if count(longer) > most:
            break
        text = longer
    return text if text != head else ""
