"""Logs for programs and people, which nothing in the program depends on.

`.local/logs/context/` has JSON lines, one file for each kind, limited by rotation. `.local/advisor/{session}.json` has
the advisor's view of each session; a thread writes it, so that no message waits for it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from threading import Lock
from typing import Any

from anyio import sleep
from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.storage.files import Files
from mcp_server.text.transcript_head import file_id

log = logging.getLogger(__name__)

ADVISOR = ".local/advisor"


class AdvisorFiles:
    """Writes the advisor files of a workspace. `close` waits for pending writes."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._lock = Lock()
        self._writer: ThreadPoolExecutor | None = None

    def put_later(self, session: str, state: Mapping[str, Any]) -> None:
        """Queues a session's state for writing and returns at once."""
        with self._lock:
            queued = session in self._waiting
            self._waiting[session] = state
            if not queued:
                self._writer = self._writer or ThreadPoolExecutor(1, "advisor")
                self._writer.submit(self._write, session)

    def close(self) -> None:
        """Writes all queued states and ends the thread."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.shutdown(wait=True)

    def _write(self, session: str) -> None:
        with self._lock:
            state = self._waiting.pop(session)
        try:
            self._files.write_atomic(advisor_path(session), written(state))
        except ContextManagerError as error:  # a full disk: the advice was given already
            log.warning("the advisor's view of %s was not written: %s", session, error)


def written(state: Mapping[str, Any]) -> str:
    """Returns the state as JSON with one item or recommendation per line."""

    def value(entry: Any) -> str:
        if not isinstance(entry, list) or not entry:
            return json.dumps(entry, ensure_ascii=False)
        lines = ",\n    ".join(json.dumps(one, ensure_ascii=False) for one in entry)
        return f"[\n    {lines}\n  ]"

    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {value(entry)}" for key, entry in state.items()) + "\n}\n"


def advisor_path(session: str) -> str:
    return f"{ADVISOR}/{file_id(session)}.json"


FOLDER = ".local/logs/context"
MOST_BYTES = 4_000_000
"""Bytes of a log above which it becomes `KIND.1.jsonl`."""


FOLLOW_SECONDS = 0.3
"""Seconds between two looks at a log that is followed."""


def append(files: Files, kind: str, record: Mapping[str, Any]) -> None:
    """Appends a record. Raises Unavailable if the disk refuses it; callers continue without."""
    line = json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
    files.append_log(f"{FOLDER}/{kind}.jsonl", line, MOST_BYTES)


def append_or_drop(files: Files, kind: str, record: Mapping[str, Any]) -> None:
    """Appends a record. Drops it if the disk refuses it."""
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
    """Yields the records that are added to a log from now on, oldest first, by whatever process."""
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
