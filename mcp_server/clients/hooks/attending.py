"""Serves clients' hooks in the process that maintains a workspace: first the queued events, then new ones.

With `claude -p` no server sees the end of a session, and the first prompt of the next one follows soon. So the server
listens only when the queued events are recorded and indexed, or after `FIRST_SECONDS`.
"""

from __future__ import annotations

import contextlib
import logging
import time

import anyio
from anyio.to_thread import run_sync

from mcp_server.clients.hooks import alone, command, listener, queue
from mcp_server.clients.hooks.events import handle, work
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory

log = logging.getLogger(__name__)

FIRST_SECONDS = 1.0
"""Seconds that a starting server works on the queue before it answers hooks: a prompt waits 1.5 s at most."""

AGAIN_SECONDS = 30.0
"""Seconds between attempts to listen, after one failed."""


async def attend(memory: Memory) -> None:
    """Works on the queue, then also answers hooks, until it is cancelled."""
    first_done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_working, memory, first_done)
        with anyio.move_on_after(FIRST_SECONDS):
            await first_done.wait()
        await _keep_listening(memory)


async def _keep_listening(memory: Memory) -> None:
    """Listens, and retries if it cannot (no sockets, another user's folder). Until then the queue keeps events."""
    told = ""
    while True:
        try:
            await listener.listen(memory, handle)
        except OSError as error:
            if str(error) != told:
                told = str(error)
                log.warning(
                    "clients' hooks cannot reach this server yet, so their events are recorded later: %s", error
                )
            await anyio.sleep(AGAIN_SECONDS)


async def begun(memory: Memory) -> None:
    """Waits until a starting server listens. The tool `hook` calls it, so that it sees the recorded queue."""
    local = str(memory.disk.local)
    if alone.starting(local):  # lists one folder, faster than starting a thread
        await run_sync(_wait_for_the_door, local)


def _wait_for_the_door(local: str) -> None:
    end = time.monotonic() + FIRST_SECONDS
    with contextlib.suppress(TimeoutError):  # a server listens and is busy
        while alone.starting(local) and command.ask(local, "Nothing", end) is None and time.monotonic() < end:
            time.sleep(0.02)  # there is no socket to wait on yet


async def _keep_working(memory: Memory, first_done: anyio.Event) -> None:
    try:
        if await queue.drain(memory, work):
            await memory.index.refresh()
    except ContextManagerError as error:
        log.warning("some queued events of clients' hooks could not be recorded yet: %s", error)
    finally:
        first_done.set()
    await queue.watch(memory, work)
