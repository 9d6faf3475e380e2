"""One process of a workspace maintains it; all the others notice what it did.

    async with maintain(memory): …     a server: maintains if nobody else does, takes over when that process ends
    await catch_up(memory)             one command: brings the index up to date if nobody else maintains, and leaves

The holder of the maintainer's lock watches files, indexes what changes, rebuilds an index that is missing or broken and closes idle
sessions. The operating system takes the lock back from a process that dies.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mcp_server.actions.sessions import close_idle
from mcp_server.errors import ContextManagerError
from mcp_server.jobs.file_watcher import changed_paths
from mcp_server.memory import Memory
from mcp_server.store.changes import Change

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

Paths = frozenset[str]


async def catch_up(memory: Memory) -> bool:
    """Brings the index up to date; False if another process maintains the workspace, on which one can rely."""
    held = await anyio.to_thread.run_sync(memory.locks.try_maintainer)
    if held is None:
        return False
    try:
        await memory.index.refresh()
        await memory.index.embed_missing()
    finally:
        held.release()
    return True


@asynccontextmanager
async def maintain(memory: Memory) -> AsyncIterator[None]:
    """Maintains the workspace, or waits for the chance to, for the length of the block."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_notice, memory)
        tasks.start_soon(_hold, memory)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _hold(memory: Memory) -> None:
    """Waits for the lock, maintains while it is held, and starts again after a failure."""
    while True:
        held = await anyio.to_thread.run_sync(memory.locks.try_maintainer)
        if held is not None:
            try:
                await _work(memory)
            except Exception as error:  # a background job never takes the server down
                _complain("maintaining the workspace", error)
            finally:
                held.release()
        await anyio.sleep(TAKE_OVER_SECONDS)


async def _work(memory: Memory) -> None:
    send, receive = anyio.create_memory_object_stream[Paths | None](1024)
    async with anyio.create_task_group() as tasks, memory.changes.listen() as heard:
        tasks.start_soon(_watch, memory, send.clone())
        tasks.start_soon(_hear, heard, send.clone())
        tasks.start_soon(_every, SCAN_SECONDS, "scanning the files", lambda: send.send(None))
        tasks.start_soon(_every, SCAN_SECONDS, "closing idle sessions", lambda: close_idle(memory))
        tasks.start_soon(_every, HEALTH_SECONDS, "looking after the index", lambda: _mend(memory, send))
        await _refresh(memory)
        await _index(memory, receive)


async def _index(memory: Memory, wanted: MemoryObjectReceiveStream[Paths | None]) -> None:
    """Indexes what comes in; what came meanwhile is done together. None stands for everything."""
    async for first in wanted:
        paths, everything = set(first or ()), first is None
        while True:
            try:
                more = wanted.receive_nowait()
            except anyio.WouldBlock:
                break
            paths |= more or set()
            everything = everything or more is None
        if everything:
            await _refresh(memory)
            continue
        try:
            changed = await memory.index.apply(sorted(paths))
        except ContextManagerError as error:
            _complain("indexing", error)
            continue
        if changed:
            memory.changes.publish(Change("index"))


async def _refresh(memory: Memory) -> None:
    try:
        changed = await memory.index.refresh()
        changed += await memory.index.embed_missing()
    except ContextManagerError as error:
        _complain("indexing", error)
        return
    if changed:
        memory.changes.publish(Change("index"))


async def _mend(memory: Memory, send: MemoryObjectSendStream[Paths | None]) -> None:
    if memory.index.needs_rebuild or memory.index.moved:
        await send.send(None)


async def _watch(memory: Memory, send: MemoryObjectSendStream[Paths | None]) -> None:
    """Files that anybody changes: an editor, git, an agent, another process."""
    while True:
        try:
            async for paths in changed_paths(memory.files.root):
                if not paths:
                    await send.send(None)
                    continue
                await send.send(paths)
                for path in paths:
                    memory.changes.publish(Change("file", path))
        except (OSError, RuntimeError) as error:  # too many watches, a file system without events
            _complain("watching the files; they are compared every two seconds instead", error)
            await anyio.sleep(SCAN_UNWATCHED_SECONDS)
            await send.send(None)


async def _hear(heard: MemoryObjectReceiveStream[Change], send: MemoryObjectSendStream[Paths | None]) -> None:
    """What this process writes itself is indexed without waiting for the watcher."""
    async for change in heard:
        if change.path is not None and change.kind in ("turn", "session"):
            await send.send(frozenset({change.path}))


async def _notice(memory: Memory) -> None:
    """Tells this process's listeners what another one has changed."""
    seen: tuple[object, object] | None = None
    while True:
        try:
            now = (await memory.index.data_version(), await memory.state.data_version())
            if seen is not None and now[0] != seen[0]:
                memory.changes.publish(Change("index"))
            if seen is not None and now[1] != seen[1]:
                memory.changes.publish(Change("session"))
            seen = now
        except ContextManagerError as error:
            _complain("looking for changes", error)
        await anyio.sleep(NOTICE_SECONDS)


async def _every(seconds: float, what: str, act: Callable[[], Awaitable[object]]) -> None:
    while True:
        await anyio.sleep(seconds)
        try:
            await act()
        except ContextManagerError as error:
            _complain(what, error)


def _complain(what: str, error: BaseException) -> None:
    log.warning("%s failed: %s", what, error)
