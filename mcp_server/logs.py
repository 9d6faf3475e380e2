"""Appends to the logs of a memory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.storage import logs


def append(memory: Memory, kind: str, record: Mapping[str, Any]) -> None:
    """Appends a record to a log. Does nothing if the disk refuses it."""
    with contextlib.suppress(OSError, Unavailable):
        logs.append(memory.files, kind, record)
