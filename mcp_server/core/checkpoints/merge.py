"""Merges recognized entries with a language model's review of them.

The language model's entries have precedence. Of entries that say the same one is kept. The result does not depend on
the order of either list, and merging twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcp_server.core.checkpoints.duplicates import covered, normalised


def merge(captured: Sequence[str], enriched: Sequence[str]) -> list[str]:
    """Returns the entries of both lists without duplicates, in their order."""
    kept: list[str] = []
    for entries in (enriched, captured):
        for entry in sorted(set(entries), key=_firmness):
            if normalised(entry) and not covered(entry, kept):
                kept.append(entry)
    survivors = set(kept)
    return [entry for entry in dict.fromkeys([*enriched, *captured]) if entry in survivors]


def _firmness(entry: str) -> tuple[int, str, str]:
    """Returns the sort key: of duplicates the longest is kept, because it says most; then the first by alphabet."""
    plain = normalised(entry)
    return -len(plain), plain, entry
