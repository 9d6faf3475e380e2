"""Logs that programs and people read: JSON lines under `.local/logs/context/`, one file a kind, bounded by rotation.

A line is what happened once, never state: losing a log loses nothing that anything depends on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_server.errors import ContextManagerError
from mcp_server.storage.ports import Files

FOLDER = ".local/logs/context"
MOST_BYTES = 4_000_000
"""Of one file; then it becomes `KIND.1.jsonl`, in the place of the one before."""


def append(files: Files, kind: str, record: Mapping[str, Any]) -> None:
    """Adds one line. Raises OSError or Unavailable where the disk does not take it; callers go on without."""
    line = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
    files.append_log(f"{FOLDER}/{kind}.jsonl", line, MOST_BYTES)


def newest_first(files: Files, kind: str) -> Iterator[dict[str, Any]]:
    """The lines of a log, the last one first; what is no JSON object is left out."""
    for name in (f"{kind}.jsonl", f"{kind}.1.jsonl"):
        try:
            lines = files.read_bytes(f"{FOLDER}/{name}").split(b"\n") if files.exists(f"{FOLDER}/{name}") else []
        except ContextManagerError:
            continue
        for line in reversed(lines):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record
