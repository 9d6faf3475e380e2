"""Sets how often a process looks for reference cycles."""

from __future__ import annotations

import gc

ALLOCATIONS = 20_000
"""Allocations between two searches. A compilation makes about ten thousand objects, which are freed when it is done. By
default Python searches after every 700 allocations, and sometimes through all objects: 27 ms in every tenth compilation
(measured)."""


def look_seldom() -> None:
    """Makes Python look for reference cycles less often. Programs call it at their start; a library must not."""
    gc.set_threshold(ALLOCATIONS, 10, 10)
