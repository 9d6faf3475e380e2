"""Appends to the logs of a memory, and formats their times."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.storage import logs


def append(memory: Memory, kind: str, record: Mapping[str, Any]) -> None:
    """Appends a record to a log. Does nothing if the disk refuses it."""
    with contextlib.suppress(OSError, Unavailable):
        logs.append(memory.files, kind, record)


def written(moment: datetime) -> str:
    """Returns a moment as ISO 8601 in UTC, in whole seconds and with Z."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
