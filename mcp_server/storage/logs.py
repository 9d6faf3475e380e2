"""Logs for people and other programs. This program works without them.

`.local/logs/context/` has JSON lines, one file for each kind, limited by rotation.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import takewhile
from typing import Any

from anyio import sleep
from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.storage.files import Files

FOLDER = ".local/logs/context"
MOST_BYTES = 4_000_000
"""Bytes of a log above which it becomes `KIND.1.jsonl`."""

FOLLOW_SECONDS = 0.3
"""Seconds between two checks of a followed log."""


def append(files: Files, kind: str, record: Mapping[str, Any]) -> None:
    """Appends a record. Raises Unavailable if it cannot be written; callers then continue without it."""
    line = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
    files.append_log(f"{FOLDER}/{kind}.jsonl", line, MOST_BYTES)


def append_or_drop(files: Files, kind: str, record: Mapping[str, Any]) -> None:
    """Appends a record. Drops it if it cannot be written."""
    with contextlib.suppress(OSError, Unavailable):
        append(files, kind, record)


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


async def follow(files: Files, kind: str) -> AsyncIterator[dict[str, Any]]:
    """Yields the records that any process appends to a log from now on, oldest first."""
    path = f"{FOLDER}/{kind}.jsonl"
    last = await run_sync(lambda: next(newest_first(files, kind), None))
    version = await run_sync(files.version, path)
    while True:
        await sleep(FOLLOW_SECONDS)
        now = await run_sync(files.version, path)
        if now == version:
            continue
        version = now
        fresh = await run_sync(_newer, files, kind, last)
        for record in reversed(fresh):
            yield record
        last = fresh[0] if fresh else last


def _newer(files: Files, kind: str, last: dict[str, Any] | None) -> list[dict[str, Any]]:
    return list(takewhile(lambda record: record != last, newest_first(files, kind)))
