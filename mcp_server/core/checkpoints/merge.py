"""Merges the entries that were recognized with those that a language model made of them.

The language model's entries come first. A recognized entry is kept unless another entry says the same. Which entries
survive does not depend on the order of either list, and merging twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcp_server.core.checkpoints.duplicates import covered, normalised


def merge(captured: Sequence[str], enriched: Sequence[str]) -> list[str]:
    """Returns the entries of both lists that say something of their own, in the order in which they came."""
    kept: list[str] = []
    for entries in (enriched, captured):
        for entry in sorted(set(entries), key=_firmness):
            if normalised(entry) and not covered(entry, kept):
                kept.append(entry)
    survivors = set(kept)
    return [entry for entry in dict.fromkeys([*enriched, *captured]) if entry in survivors]


def _firmness(entry: str) -> tuple[int, str, str]:
    """Of entries that say the same the longest survives, since it says most; then the first by the alphabet."""
    plain = normalised(entry)
    return -len(plain), plain, entry
