"""What the process that maintains a workspace does for the hooks of clients: first what waited, then what comes.

The next session's first prompt often follows on the last session's end (`claude -p`), which no server saw. So the door
opens when what that left in the queue is recorded and can be found, or after a little while anyway.
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

FIRST_SECONDS = 4.0
"""The socket opens after this time at the latest. Hook commands wait at most 1.5 s for it."""

AGAIN_SECONDS = 30.0
"""So long after a door could not be made it is tried again: people mend what is in its way."""


async def attend(memory: Memory) -> None:
    """Works off the queue, answers hooks, and works off what is queued later; until it is cancelled."""
    first_done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_working, memory, first_done)
        with anyio.move_on_after(FIRST_SECONDS):
            await first_done.wait()
        await _keep_listening(memory)


async def _keep_listening(memory: Memory) -> None:
    """Where no door can be made (no sockets here, a folder of somebody else's), the queue does it until one can."""
    told = ""
    while True:
        try:
            await listener.listen(memory, handle)
        except OSError as error:
            if str(error) != told:
                told = str(error)
                log.warning("clients' hooks cannot reach this server yet, what they record is read later: %s", error)
            await anyio.sleep(AGAIN_SECONDS)


async def begun(memory: Memory) -> None:
    """Returns once the door of a server that is just starting is open: for the tool `hook`, which needs no door."""
    local = str(memory.files.local)
    if alone.starting(local):  # one look at a folder, at every prompt: a thread would take longer to wake up
        await run_sync(_wait_for_the_door, local)


def _wait_for_the_door(local: str) -> None:
    end = time.monotonic() + FIRST_SECONDS
    with contextlib.suppress(TimeoutError):  # somebody is there, and busy
        while alone.starting(local) and command.ask(local, "Nothing", end) is None and time.monotonic() < end:
            time.sleep(0.02)  # another process is about to listen, or this one: there is nothing to wait on yet


async def _keep_working(memory: Memory, first_done: anyio.Event) -> None:
    try:
        if await queue.drain(memory, work):
            await memory.index.refresh()
    except ContextManagerError as error:
        log.warning("what clients' hooks left could not all be recorded yet: %s", error)
    finally:
        first_done.set()
    await queue.watch(memory, work)
