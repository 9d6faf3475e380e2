"""Marks a server that is starting, so that a prompt waits a little until it listens.

`claude -p "…"` starts the server and sends its only prompt at once; without the mark that prompt would get nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from mcp_server.clients.hooks import protocol


def starting(local: Path | None) -> None:
    """Marks this process as about to listen. Does nothing for None, a workspace that does not exist yet."""
    with contextlib.suppress(OSError):
        if local is not None and local.is_dir():
            (local / "run").mkdir(mode=0o700, exist_ok=True)
            _own(local).touch(mode=0o600)


def started(local: Path) -> None:
    """Deletes this process's mark, and the old marks of servers that died before they listened."""
    with contextlib.suppress(OSError):
        for marker in (local / "run").glob(f"{protocol.STARTING}*"):
            if marker == _own(local) or time.time() - marker.stat().st_mtime > protocol.STARTING_SECONDS:
                marker.unlink(missing_ok=True)


def _own(local: Path) -> Path:
    return local / "run" / f"{protocol.STARTING}{os.getpid()}"
