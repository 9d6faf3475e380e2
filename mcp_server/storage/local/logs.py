"""Logs that programs and people read: JSON lines under `.local/logs/context/`, one file a kind, bounded by rotation.

A line is what happened once, never state: losing a log loses nothing that anything depends on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_server.storage.local.files import WorkspaceFiles

FOLDER = ".local/logs/context"
MOST_BYTES = 4_000_000
"""Of one file; then it becomes `KIND.1.jsonl`, in the place of the one before."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def append(files: WorkspaceFiles, kind: str, record: Mapping[str, Any]) -> None:
    """Adds one line. Raises OSError or Unavailable where the disk does not take it; callers go on without."""
    place = files.resolve(f"{FOLDER}/{kind}.jsonl")
    line = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
    try:
        handle = os.open(place, _FLAGS, 0o600)
    except FileNotFoundError:
        files.make_folder(FOLDER)
        handle = os.open(place, _FLAGS, 0o600)
    try:
        os.write(handle, line)  # one call: lines of several processes do not mix
        full = os.fstat(handle).st_size > MOST_BYTES
    finally:
        os.close(handle)
    if full:
        place.replace(place.with_name(f"{kind}.1.jsonl"))


def newest_first(files: WorkspaceFiles, kind: str) -> Iterator[dict[str, Any]]:
    """The lines of a log, the last one first; what is no JSON object is left out."""
    for name in (f"{kind}.jsonl", f"{kind}.1.jsonl"):
        try:
            lines = files.resolve(f"{FOLDER}/{name}").read_bytes().split(b"\n")
        except OSError:
            continue
        for line in reversed(lines):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record
