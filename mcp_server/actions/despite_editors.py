"""Changing files that somebody may have open in an editor, which takes no lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

from mcp_server.errors import Conflict

T = TypeVar("T")

TRIES = 5


def despite_editors(work: Callable[[], T]) -> T:
    """What `work` gives, which reads, decides and writes. It is run again, five times in all, where somebody wrote in
    between; raises Conflict if somebody did each time."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(Conflict):
            return work()
    return work()
