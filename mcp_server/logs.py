"""."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.storage import logs


def append(memory: Memory, kind: str, record: Mapping[str, Any]) -> None:
    """One line, if the disk takes it."""
    with contextlib.suppress(OSError, Unavailable):
        logs.append(memory.files, kind, record)


def written(moment: datetime) -> str:
    """ISO 8601, UTC, as S1 writes it."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
