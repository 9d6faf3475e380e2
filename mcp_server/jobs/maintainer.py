"""One process of a workspace maintains it; the others notice its changes.

The process with the maintainer's lock watches files, indexes changes, rebuilds a missing or broken index, and runs the
other background jobs. The operating system releases the lock of a process that dies; then another process maintains.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import anyio

from mcp_server.checkpoints import restore
from mcp_server.errors import ContextManagerError
from mcp_server.forgetting import forget
from mcp_server.jobs.duties import keep_house
from mcp_server.jobs.file_watcher import changed_paths
from mcp_server.memory import Memory
from mcp_server.storage.ports import Listener
from mcp_server.storage.values import Change

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

HOUSE_SECONDS = 60.0
"""Seconds between attempts to close idle sessions and to repeat failed commits."""

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
        """Adds paths; None stands for all files."""
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
    memory.changes.indexed = True  # by us, or by the process that has the lock
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_notice, memory)
            tasks.start_soon(_hold, memory, duties)
    finally:
        memory.changes.indexed = False


async def next_burst(changes: Listener, concerns: Callable[[Change], bool], quiet: float, most: float) -> None:
    """Waits for a change that `concerns` accepts, and then until no change came for `quiet` seconds, at most for `most`
    seconds."""
    while not concerns(await changes.receive()):
        pass
    with anyio.move_on_after(most):
        while True:
            with anyio.move_on_after(quiet) as silence:
                await changes.receive()
            if silence.cancelled_caught:
                return


async def _hold(memory: Memory, duties: Sequence[Duty]) -> None:
    """Waits for the lock, maintains while it is held, and starts again after a failure."""
    while True:
        held = await anyio.to_thread.run_sync(memory.locks.try_maintainer)
        if held is not None:
            try:
                await _work(memory, duties)
            except Exception as error:  # a background job never takes the server down
                _complain("maintaining the workspace", error)
            finally:
                held.release()
        await anyio.sleep(TAKE_OVER_SECONDS)


async def _work(memory: Memory, duties: Sequence[Duty]) -> None:
    wanted = Wanted()
    wanted.add(None)
    async with anyio.create_task_group() as tasks, memory.changes.listen() as changes:
        tasks.start_soon(_watch, memory, wanted)
        tasks.start_soon(_listen, changes, wanted)
        tasks.start_soon(_scan, wanted)
        tasks.start_soon(_mend, memory, wanted)
        tasks.start_soon(_keep_house, memory)
        tasks.start_soon(_finish_forgetting, memory)
        tasks.start_soon(_finish_recovering, memory)
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
            with _complaining("indexing"):
                changed, left = await memory.index.apply_small(paths)
                if left:
                    long.add(left)
                if changed:
                    memory.changes.publish(Change("index"))


async def _index_long(memory: Memory, wanted: Wanted) -> None:
    """Indexes large changes in a second task, because searches wait for the small ones."""
    while True:
        paths, everything = await wanted.take()
        with _complaining("indexing"):
            if await (memory.index.refresh() if everything else memory.index.apply(paths)):
                memory.changes.publish(Change("index"))


async def _scan(wanted: Wanted) -> None:
    while True:
        await anyio.sleep(SCAN_SECONDS)
        wanted.add(None)


async def _keep_house(memory: Memory) -> None:
    while True:
        try:
            await keep_house(memory)
        except ContextManagerError as error:
            _complain("closing idle sessions", error)
        await anyio.sleep(HOUSE_SECONDS)


async def _finish_forgetting(memory: Memory) -> None:
    """Finishes a `forget` that a crash interrupted. Tries once; `status` shows a failure."""
    try:
        await forget.finish(memory)
    except ContextManagerError as error:
        _complain("forgetting what was to be forgotten", error)


async def _finish_recovering(memory: Memory) -> None:
    """Finishes a recovery that a crash interrupted. Tries once; `status` shows a failure."""
    try:
        await restore.finish(memory)
    except ContextManagerError as error:
        _complain("finishing a recovery", error)


async def _keep_doing(memory: Memory, duty: Duty) -> None:
    """Runs a duty, and starts it again whenever it fails or ends."""
    while True:
        try:
            await duty(memory)
        except Exception as error:
            _complain("a background job", error)
        await anyio.sleep(DUTY_AGAIN_SECONDS)


async def _mend(memory: Memory, wanted: Wanted) -> None:
    """Asks for a refresh while the index needs one, at growing intervals if that does not help (a full disk)."""
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
                async for paths in changed_paths(memory.disk.root, over):
                    if not paths:
                        wanted.add(None)
                    for path in paths:  # `_listen` adds them to `wanted`
                        memory.changes.publish(Change("file", path))
            except (OSError, RuntimeError, ValueError) as error:  # too many watches, no events, a name that is no text
                _complain("watching the files; they are compared every two seconds instead", error)
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
    """Publishes in this process that another one has changed the index or the state."""
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
                _complain("looking for changes", error)
            failed = str(error)
        await anyio.sleep(NOTICE_SECONDS)


@contextmanager
def _complaining(what: str) -> Iterator[None]:
    """Logs our own errors (a full disk, a locked file) instead of raising them: the work is tried again later."""
    try:
        yield
    except ContextManagerError as error:
        _complain(what, error)


def _complain(what: str, error: BaseException) -> None:
    log.warning("%s failed: %s", what, error)
