"""The maintainer: the one process, of all that use a workspace, that does its background work.

The process with the maintainer's lock watches files, indexes changes, rebuilds a missing or broken index, and runs the
other background jobs. The operating system releases the lock of a process that dies; then another process maintains.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.storage.ports import Held
from mcp_server.storage.values import FOLDERS, Change, Listener, is_indexed

log = logging.getLogger(__name__)

TAKE_OVER_SECONDS = 1.0
"""Seconds between attempts to take the maintainer's lock."""

NOTICE_SECONDS = 0.25
"""Seconds between checks whether another process has written."""

GATHER_SECONDS = 0.05
"""Seconds in which changes are gathered before they are indexed, so that the call that made them is answered first."""

HEALTH_SECONDS = 0.5
"""Seconds between checks whether the index is still there."""

SCAN_SECONDS = 60.0
"""Seconds between comparisons of all files with the index, for changes that no watcher sees (network drives)."""

SCAN_UNWATCHED_SECONDS = 2.0

DUTY_AGAIN_SECONDS = 5.0
"""Seconds until a duty that failed or ended is started again."""

Duty = Callable[[Memory], Awaitable[None]]
"""A background job that runs as long as this process maintains; `app` lists them."""


@dataclass(slots=True)
class Wanted:
    """The paths to index next. Paths that arrive while the index is busy are indexed together."""

    paths: set[str] = field(default_factory=set)
    everything: bool = False
    _came: anyio.Event = field(default_factory=anyio.Event)

    def add(self, paths: Iterable[str] | None) -> None:
        self.everything = self.everything or paths is None
        self.paths.update(paths or ())
        self._came.set()

    async def take(self) -> tuple[list[str], bool]:
        """Waits for paths and takes them. Returns the paths, and whether all files are wanted."""
        await self._came.wait()
        taken = sorted(self.paths), self.everything
        self.paths, self.everything, self._came = set(), False, anyio.Event()
        return taken


async def run(memory: Memory, duties: Sequence[Duty] = ()) -> None:
    """Maintains the workspace, with these duties, whenever this process has the lock. Runs until it is cancelled."""
    memory.changes.indexed = True  # this process or the one with the lock indexes changes
    try:
        async with anyio.create_task_group() as tasks:
            if memory.disk.here:  # PostgreSQL sends the changes of other processes
                tasks.start_soon(_notice, memory)
            tasks.start_soon(_hold, memory, duties)
    finally:
        memory.changes.indexed = False


async def attempt(what: str, act: Callable[[], Awaitable[object]]) -> object:
    """Returns the result of `act`. Logs a ContextManagerError (a full disk, a locked file) and returns None, because
    the work is tried again later."""
    try:
        return await act()
    except ContextManagerError as error:
        log.warning("%s failed: %s", what, error)
        return None


async def _hold(memory: Memory, duties: Sequence[Duty]) -> None:
    """Waits for the lock, maintains while it is held, and starts again after a failure."""
    while True:
        held = await anyio.to_thread.run_sync(memory.locks.try_maintainer)
        if held is not None:
            try:
                with held:
                    await _work(memory, duties, held)
            except Exception as error:  # a background job never takes the server down
                log.warning("maintaining the workspace failed: %s", error)
        await anyio.sleep(TAKE_OVER_SECONDS)


async def _work(memory: Memory, duties: Sequence[Duty], held: Held) -> None:
    wanted = Wanted()
    wanted.add(None)
    async with anyio.create_task_group() as tasks, memory.changes.listen() as changes:
        tasks.start_soon(_until_lost, held, tasks.cancel_scope)
        if memory.disk.here:
            tasks.start_soon(_watch, memory, wanted)
        tasks.start_soon(_listen, changes, wanted)
        tasks.start_soon(_scan, wanted)
        tasks.start_soon(_mend, memory, wanted)
        for duty in duties:
            tasks.start_soon(_keep_doing, memory, duty)
        long = Wanted()
        tasks.start_soon(_index_long, memory, long)
        while True:
            paths, everything = await wanted.take()
            if everything:
                long.add(None)
            if not paths:
                continue
            try:
                changed, left = await memory.index.apply_small(paths)
            except ContextManagerError as error:  # a full disk, a locked file: the next scan tries again
                log.warning("indexing failed: %s", error)
                continue
            if left:
                long.add(left)
            if changed:
                memory.changes.publish(Change("index"))


async def _until_lost(held: Held, work: anyio.CancelScope) -> None:
    """Cancels the work when another process has taken over the lock."""
    while not held.lost:  # noqa: ASYNC110 - a thread sets it
        await anyio.sleep(TAKE_OVER_SECONDS)
    work.cancel()


async def _index_long(memory: Memory, wanted: Wanted) -> None:
    """Indexes large changes in a second task, so that they do not delay small ones, which searches wait for."""
    while True:
        paths, everything = await wanted.take()
        try:
            if await (memory.index.refresh() if everything else memory.index.apply(paths)):
                memory.changes.publish(Change("index"))
        except ContextManagerError as error:
            log.warning("indexing failed: %s", error)


async def _scan(wanted: Wanted) -> None:
    while True:
        await anyio.sleep(SCAN_SECONDS)
        wanted.add(None)


async def _keep_doing(memory: Memory, duty: Duty) -> None:
    """Runs a duty, and starts it again whenever it fails or ends."""
    while True:
        try:
            await duty(memory)
        except Exception as error:
            log.warning("a background job failed: %s", error)
        await anyio.sleep(DUTY_AGAIN_SECONDS)


async def _mend(memory: Memory, wanted: Wanted) -> None:
    """Requests a refresh while the index needs one, at growing intervals if that does not help (a full disk)."""
    pause = HEALTH_SECONDS
    while True:
        await anyio.sleep(pause)
        if await anyio.to_thread.run_sync(lambda: memory.index.needs_care):
            wanted.add(None)
            pause = min(pause * 2, SCAN_SECONDS)
        else:
            pause = HEALTH_SECONDS


async def _watch(memory: Memory, wanted: Wanted) -> None:
    """Publishes the changes of files by an editor, git, an agent or another process."""
    over = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set_at_the_end, over)
        while not over.is_set():
            try:
                async for paths in _changed_paths(memory.disk.root, over):
                    if not paths:
                        wanted.add(None)
                    for path in paths:  # `_listen` adds them to `wanted`
                        memory.changes.publish(Change("file", path))
            # Too many watches, no events, or a name that is not text.
            except (OSError, RuntimeError, ValueError) as error:
                log.warning("watching the files failed; they are compared every two seconds instead: %s", error)
                await anyio.sleep(SCAN_UNWATCHED_SECONDS)
                wanted.add(None)


async def _set_at_the_end(over: anyio.Event) -> None:
    """Sets the event when this task is cancelled, for the watcher thread, which cannot be cancelled."""
    try:
        await anyio.sleep_forever()
    finally:
        over.set()


async def _listen(changes: Listener, wanted: Wanted) -> None:
    """Adds the changes of the watcher and of this process to `wanted`, a moment after they were published."""
    async for change in changes:
        await anyio.sleep(GATHER_SECONDS)
        paths = [change.path]
        with suppress(anyio.WouldBlock):
            while True:
                paths.append(changes.receive_nowait().path)
        if named := [path for path in paths if path is not None]:
            wanted.add(named)


async def _notice(memory: Memory) -> None:
    """Publishes a change in this process when another process has changed the index or the state."""
    seen: tuple[object, object] | None = None
    failed = ""
    while True:
        try:
            now = (await memory.index.data_version(), await memory.state.data_version())
            if seen is not None and now[0] != seen[0]:
                memory.changes.publish(Change("index"))
            if seen is not None and now[1] != seen[1]:
                memory.changes.publish(Change("session"))
            seen, failed = now, ""
        except ContextManagerError as error:
            if str(error) != failed:  # log a lasting problem once
                log.warning("looking for changes failed: %s", error)
            failed = str(error)
        await anyio.sleep(NOTICE_SECONDS)


# ---------------------------------------------------------------- watching files

QUIET_MS = 20
"""Milliseconds without a change after which a burst ends."""

BURST_MS = 150
"""The longest burst, in milliseconds: a changed file must be found within 200 ms."""

CHECK_MS = 2_000
"""Milliseconds between checks for new or deleted folders."""


async def _changed_paths(root: Path, over: anyio.Event) -> AsyncIterator[frozenset[str]]:
    """Yields the paths (relative, POSIX) of indexed files and of folders that changed together, until `over` is set.

    The watcher waits in a thread. Cancellation ends the thread only after `CHECK_MS`, but `over` ends it within
    `QUIET_MS`. Raises OSError if the system cannot watch the folders; the caller then scans from time to time.
    """
    from watchfiles import awatch

    while not over.is_set():
        folders = _folders(root)
        if not folders:
            await anyio.sleep(CHECK_MS / 1000)
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
        yield frozenset()  # the caller scans for earlier changes; later ones are not missed
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
