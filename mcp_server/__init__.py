"""context-manager-mcp: a long memory for any agent, and each turn the densest prompt that fits a token budget."""

import gc

__version__ = "0.1.0"

ALLOCATIONS = 20_000
"""Allocations between two searches. A compilation makes about ten thousand objects, which are freed when it is done. By
default Python searches after every 700 allocations, and sometimes through all objects: 27 ms in every tenth compilation
(measured)."""


def look_seldom() -> None:
    """Makes Python look for reference cycles less often. Programs call it at their start; a library must not."""
    gc.set_threshold(ALLOCATIONS, 10, 10)
