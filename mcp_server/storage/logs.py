"""Logs for programs and people: JSON lines in `.local/logs/context/`, one file for each kind, limited by rotation.

Nothing depends on a log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_server.errors import ContextManagerError
from mcp_server.storage.ports import Files

FOLDER = ".local/logs/context"
MOST_BYTES = 4_000_000
"""Bytes of a log above which it becomes `KIND.1.jsonl`."""


def append(files: Files, kind: str, record: Mapping[str, Any]) -> None:
    """Appends a record. Raises Unavailable if the disk refuses it; callers continue without."""
    line = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
    files.append_log(f"{FOLDER}/{kind}.jsonl", line, MOST_BYTES)


def newest_first(files: Files, kind: str) -> Iterator[dict[str, Any]]:
    """Yields the records of a log, newest first. Skips lines that are not JSON objects."""
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
