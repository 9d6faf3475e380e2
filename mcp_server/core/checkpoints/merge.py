"""Merging what was captured by rules with what a model made of it (S3 "Issue 2" and "Improvement 5").

A model's entries come first; of the captured ones stays what no entry that is kept covers. Nothing that the gate
refuses comes back. Which entries survive does not depend on the order of either list, and merging twice changes
nothing: survivors are chosen in an order of their own, and shown in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mcp_server.core.checkpoints.duplicates import covered, normalised


def merge(captured: Sequence[str], enriched: Sequence[str], accepts: Callable[[str], bool]) -> list[str]:
    """The entries of both that say something of their own; `accepts` is the gate."""
    kept: list[str] = []
    for entries in (enriched, captured):
        for entry in sorted({entry for entry in entries if accepts(entry)}, key=_firmness):
            if normalised(entry) and not covered(entry, kept):
                kept.append(entry)
    survivors = set(kept)
    return [entry for entry in dict.fromkeys([*enriched, *captured]) if entry in survivors]


def _firmness(entry: str) -> tuple[int, str, str]:
    """Of entries that say the same the longest survives, since it says most; then the first by the alphabet."""
    plain = normalised(entry)
    return -len(plain), plain, entry
