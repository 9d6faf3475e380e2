"""The block `[CLARITY CONTEXT]`: what the conversation is about, in at most 150 tokens (S0 "Debugging")."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mcp_server.core.clarity.pruner import Verdict
from mcp_server.core.text.fencing import neutralise

MOST_TOKENS = 150
HIGH, MIDDLE = 50, 40
"""Points from which an item is marked ● and ◐; below stands ○."""

HEAD = "[CLARITY CONTEXT]\nHigh-relevance context:"


def line(verdict: Verdict) -> str:
    """One item: its mark, its anchor, its id, its points."""
    mark = "●" if verdict.score >= HIGH else "◐" if verdict.score >= MIDDLE else "○"
    anchor = "⚓ " if verdict.item.anchored else ""
    return f"  {mark} {anchor}{neutralise(verdict.item.id)} ({verdict.score:.0f})"


def block(verdicts: Sequence[Verdict], count: Callable[[str], int], most: int = MOST_TOKENS) -> str:
    """The kept items, the highest first, as many as fit into `most` tokens; empty without any."""
    text = HEAD
    for verdict in verdicts:
        if verdict.keep:
            longer = f"{text}\n{line(verdict)}"
            if count(longer) > most:
                break
            text = longer
    return text if text != HEAD else ""
