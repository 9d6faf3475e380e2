"""How often a process of ours looks for reference cycles."""

from __future__ import annotations

import gc

ALLOCATIONS = 20_000
"""A compilation makes some ten thousand objects, and they go when it is done. By default Python looks through them
every 700, and every now and then through all that the libraries hold: measured, 27 ms at every tenth compilation."""


def look_seldom() -> None:
    """For programs, at their start; a library leaves the setting to those who use it."""
    gc.set_threshold(ALLOCATIONS, 10, 10)
