"""Watching the workspace's files: which paths changed, as soon as they did."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_server.storage.values import FOLDERS, is_indexed

if TYPE_CHECKING:
    from anyio import Event

QUIET_MS = 20
"""A burst of changes ends when nothing more came for so long…"""

BURST_MS = 150
"""… and at the latest after this: a changed file must be found within 200 ms."""

CHECK_MS = 2_000
"""How often the watcher looks whether a watched folder came into being or went away."""


async def changed_paths(root: Path, over: Event) -> AsyncIterator[frozenset[str]]:
    """Paths (relative, POSIX) of files that the index holds and of folders, changed together. Ends when `over` is set.

    The watcher waits in a thread, where no cancellation reaches it before `CHECK_MS`; `over` does, within `QUIET_MS`.
    What the system could not watch comes out as an OSError: the caller scans from time to time instead.
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
        yield frozenset()  # from here on nothing is missed; what changed before is the caller's to find
        async for changes in watching:
            if paths := _wanted(root, {Path(changed) for _, changed in changes}):
                yield paths
            if _folders(root) != folders:
                break


def _folders(root: Path) -> list[Path]:
    return [folder for name in FOLDERS if (folder := root / name).is_dir()]


def _wanted(root: Path, changed: set[Path]) -> frozenset[str]:
    """The watcher follows links, the index does not: what lies behind one is told by its own path, if it is ours."""
    real = {place: Path(os.path.realpath(place)) for place in {path.parent for path in changed}}
    places = (real[path.parent] / path.name for path in changed)
    paths = (place.relative_to(root).as_posix() for place in places if place.is_relative_to(root))
    return frozenset(path for path in paths if is_indexed(path) or "." not in path.rpartition("/")[2])
