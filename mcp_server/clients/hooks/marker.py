"""A server that has just been started says so: a prompt that comes before it listens waits for it a little.

`claude -p "…"` starts the server and asks at once; without this the one prompt of such a session would get nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from mcp_server.clients.hooks import wire


def starting(local: Path | None) -> None:
    """Notes that this process will soon listen; does nothing for None, a workspace that does not exist yet."""
    with contextlib.suppress(OSError):
        if local is not None and local.is_dir():
            (local / "run").mkdir(mode=0o700, exist_ok=True)
            _own(local).touch(mode=0o600)


def started(local: Path) -> None:
    """This process listens now. Takes away, too, what servers left that died before they could."""
    with contextlib.suppress(OSError):
        for marker in (local / "run").glob(f"{wire.STARTING}*"):
            if marker == _own(local) or time.time() - marker.stat().st_mtime > wire.STARTING_SECONDS:
                marker.unlink(missing_ok=True)


def _own(local: Path) -> Path:
    return local / "run" / f"{wire.STARTING}{os.getpid()}"
