"""Watches the workspace's files and reports changed paths at once."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_server.storage.values import FOLDERS, is_indexed

if TYPE_CHECKING:
    from anyio import Event

QUIET_MS = 20
"""Milliseconds without a change after which a burst ends."""

BURST_MS = 150
"""The longest burst, in milliseconds: a changed file must be found within 200 ms."""

CHECK_MS = 2_000
"""Milliseconds between checks for new or deleted folders."""


async def changed_paths(root: Path, over: Event) -> AsyncIterator[frozenset[str]]:
    """Yields the paths (relative, POSIX) of indexed files and of folders that changed together, until `over` is set.

    The watcher waits in a thread that cancellation reaches only after `CHECK_MS`, but `over` within `QUIET_MS`. Raises
    OSError if the system cannot watch the folders: the caller then scans from time to time.
    """
    from watchfiles import awatch

    while not over.is_set():
        folders = _folders(root)
        if not folders:
            from anyio import sleep

            await sleep(CHECK_MS / 1000)
            continue
        watching = awatch(
            *folders,
            watch_filter=None,
            debounce=BURST_MS,
            step=QUIET_MS,
            rust_timeout=CHECK_MS,
            yield_on_timeout=True,
            recursive=True,
            stop_event=over,
        )
        yield frozenset()  # no change after this is missed; the caller finds the earlier ones
        async for changes in watching:
            if paths := _wanted(root, {Path(changed) for _, changed in changes}):
                yield paths
            if _folders(root) != folders:
                break


def _folders(root: Path) -> list[Path]:
    return [folder for name in FOLDERS if (folder := root / name).is_dir()]


def _wanted(root: Path, changed: set[Path]) -> frozenset[str]:
    """Returns the relative paths of changes, with links resolved: the watcher follows them, the index does not."""
    real = {place: Path(os.path.realpath(place)) for place in {path.parent for path in changed}}
    places = (real[path.parent] / path.name for path in changed)
    paths = (place.relative_to(root).as_posix() for place in places if place.is_relative_to(root))
    return frozenset(path for path in paths if is_indexed(path) or "." not in path.rpartition("/")[2])
