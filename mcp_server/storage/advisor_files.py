"""What the advisor thinks of each session: `.local/advisor/{session}.json`, in S2's shape.

It is written behind the caller's back, in one thread, so that no message waits for it; the newest of a session wins.
Nothing reads it but people and programs who want to look: it is made again from the live set.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from mcp_server.errors import ContextManagerError
from mcp_server.storage.ports import Files
from mcp_server.text.transcript_head import file_id

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

log = logging.getLogger(__name__)

FOLDER = ".local/advisor"


class AdvisorFiles:
    """The port. `close` waits for what is still to be written."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: dict[str, Mapping[str, Any]] = {}
        self._lock = Lock()
        self._writer: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def put_later(self, session: str, state: Mapping[str, Any]) -> None:
        """Takes a session's state for writing and returns at once."""
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            queued = session in self._waiting
            self._waiting[session] = state
            if not queued:
                self._writer = self._writer or ThreadPoolExecutor(1, "advisor")
                self._last = self._writer.submit(self._write, session)

    def get(self, session: str) -> dict[str, Any] | None:
        """The state of a session as it was last written; None if there is none that can be read."""
        try:
            stored = json.loads(self._files.read_text(path_of(session)))
        except (ContextManagerError, ValueError):
            return None
        return stored if isinstance(stored, dict) else None

    def flush(self) -> None:
        """Waits until everything that was given is on disk, or was refused by it."""
        with self._lock:
            last = self._last
        if last is not None:
            last.result()

    def close(self) -> None:
        """Writes what waits, and ends the thread."""
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.shutdown(wait=True)

    def _write(self, session: str) -> None:
        with self._lock:
            state = self._waiting.pop(session)
        try:
            self._files.write_atomic(path_of(session), written(state))
        except ContextManagerError as error:  # a full disk: the advice was given all the same
            log.warning("what the advisor thinks of %s was not written: %s", session, error)


def written(state: Mapping[str, Any]) -> str:
    """The state as JSON, an item or recommendation a line: readable, and without the slow way of indenting all."""

    def value(entry: Any) -> str:
        if not isinstance(entry, list) or not entry:
            return json.dumps(entry, ensure_ascii=False)
        lines = ",\n    ".join(json.dumps(one, ensure_ascii=False) for one in entry)
        return f"[\n    {lines}\n  ]"

    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {value(entry)}" for key, entry in state.items()) + "\n}\n"


def path_of(session: str) -> str:
    """Where a session's state lies in the workspace."""
    return f"{FOLDER}/{file_id(session)}.json"
