"""One process of a workspace maintains it; all the others notice what it did.

The holder of the maintainer's lock watches files, indexes what changes, rebuilds an index that is missing or broken
and keeps house. The operating system takes the lock back from a process that dies; then another one maintains.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from mcp_server.checkpoints import restore
from mcp_server.errors import ContextManagerError
from mcp_server.forgetting import forget
from mcp_server.jobs.file_watcher import changed_paths
from mcp_server.jobs.housekeeping import keep_house
from mcp_server.memory import Memory
from mcp_server.storage.ports import Listener
from mcp_server.storage.values import Change

log = logging.getLogger(__name__)

TAKE_OVER_SECONDS = 1.0
"""How often a process asks whether it may maintain now."""

NOTICE_SECONDS = 0.25
"""How often it looks whether another process has written."""

HEALTH_SECONDS = 0.5
"""How often the maintainer looks whether the index is still there."""

SCAN_SECONDS = 60.0
"""How often all files are compared with the index: for what a watcher cannot see (network drives, too many folders)."""

SCAN_UNWATCHED_SECONDS = 2.0

HOUSE_SECONDS = 60.0
"""How often idle sessions are closed and failed commits repeated."""

DUTY_AGAIN_SECONDS = 5.0
"""So long after a duty has failed or ended it is begun again."""

Duty = Callable[[Memory], Awaitable[None]]
"""What the maintainer does besides, as long as it maintains; `app` says what that is."""


@dataclass(slots=True)
class Wanted:
    """What should be indexed next: what comes in while the index is busy is done together."""

    paths: set[str] = field(default_factory=set)
    everything: bool = False
    _came: anyio.Event = field(default_factory=anyio.Event)

    def add(self, paths: Iterable[str] | None) -> None:
        """Adds paths; None stands for all files."""
        self.everything = self.everything or paths is None
        self.paths.update(paths or ())
        self._came.set()

    async def take(self) -> tuple[list[str], bool]:
        """Waits until there is something, and takes it: paths, and whether all files are wanted."""
        await self._came.wait()
        taken = sorted(self.paths), self.everything
        self.paths, self.everything, self._came = set(), False, anyio.Event()
        return taken


async def run(memory: Memory, duties: Sequence[Duty] = ()) -> None:
    """Maintains the workspace, or waits for the chance to; ends when it is cancelled. `duties` are done alongside."""
    memory.changes.indexed = True  # by us, or by the process that has the lock
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_notice, memory)
            tasks.start_soon(_hold, memory, duties)
    finally:
        memory.changes.indexed = False


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
    async with anyio.create_task_group() as tasks, memory.changes.listen() as heard:
        tasks.start_soon(_watch, memory, wanted)
        tasks.start_soon(_hear, heard, wanted)
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
    """What takes long is indexed beside what takes a moment, for which somebody waits."""
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
    """What a crash left of a `forget` is carried on, once: if that fails, `status` says so."""
    try:
        await forget.finish(memory)
    except ContextManagerError as error:
        _complain("forgetting what was to be forgotten", error)


async def _finish_recovering(memory: Memory) -> None:
    """What a crash left of a recovery is carried on, once: if that fails, `status` says so."""
    try:
        await restore.finish(memory)
    except ContextManagerError as error:
        _complain("finishing a recovery", error)


async def _keep_doing(memory: Memory, duty: Duty) -> None:
    """A duty that fails is not the end of the others."""
    while True:
        try:
            await duty(memory)
        except Exception as error:
            _complain("a background job", error)
        await anyio.sleep(DUTY_AGAIN_SECONDS)


async def _mend(memory: Memory, wanted: Wanted) -> None:
    """Asks for a refresh while the index needs one; where that does not help (a full disk), less and less often."""
    pause = HEALTH_SECONDS
    while True:
        await anyio.sleep(pause)
        if await anyio.to_thread.run_sync(lambda: memory.index.needs_care):
            wanted.add(None)
            pause = min(pause * 2, SCAN_SECONDS)
        else:
            pause = HEALTH_SECONDS


async def _watch(memory: Memory, wanted: Wanted) -> None:
    """Files that anybody changes: an editor, git, an agent, another process."""
    over = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_set_at_the_end, over)
        while not over.is_set():
            try:
                async for paths in changed_paths(memory.disk.root, over):
                    if not paths:
                        wanted.add(None)
                    for path in paths:  # `_hear` has them indexed
                        memory.changes.publish(Change("file", path))
            except (OSError, RuntimeError, ValueError) as error:  # too many watches, no events, a name that is no text
                _complain("watching the files; they are compared every two seconds instead", error)
                await anyio.sleep(SCAN_UNWATCHED_SECONDS)
                wanted.add(None)


async def _set_at_the_end(over: anyio.Event) -> None:
    """Waits until it is cancelled, with all that maintains, and says so to what cannot be cancelled."""
    try:
        await anyio.sleep_forever()
    finally:
        over.set()


async def _hear(heard: Listener, wanted: Wanted) -> None:
    """What the watcher saw, and what this process wrote: that is indexed before the watcher sees it."""
    async for change in heard:
        if change.path is not None:
            wanted.add((change.path,))


async def _notice(memory: Memory) -> None:
    """Tells this process's listeners what another one has changed."""
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
            if str(error) != failed:  # what lasts (a workspace that was moved away) is said once
                _complain("looking for changes", error)
            failed = str(error)
        await anyio.sleep(NOTICE_SECONDS)


@contextmanager
def _complaining(what: str) -> Iterator[None]:
    """A full disk, a locked file: the next look may go better."""
    try:
        yield
    except ContextManagerError as error:
        _complain(what, error)


def _complain(what: str, error: BaseException) -> None:
    log.warning("%s failed: %s", what, error)
