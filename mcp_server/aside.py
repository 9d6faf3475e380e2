"""The worker process of a server; `jobs/child.py` starts it.

It uses the workspace like any other process, with the lowest priority. It ends when its standard input is closed,
because the server has then gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress

from mcp_server.jobs.worker import Order
from mcp_server.memory import Memory

NICE = 19
"""The lowest priority."""


def main() -> None:
    """Reads an order from standard input and carries it out. Exits with 1 if it fails."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C and ends this process
    order = Order.from_json(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_the_parent, daemon=True).start()

    from mcp_server.garbage import look_seldom

    look_seldom()
    import logging

    import anyio

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    anyio.run(_work, order)


def _end_with_the_parent() -> None:
    with suppress(OSError):
        os.read(0, 1)
    os._exit(0)  # the files on disk are valid at any moment


async def _work(order: Order) -> None:
    from pathlib import Path

    from mcp_server.app import open_memory

    async with open_memory(Path(order.workspace), order.environ, if_missing="refuse") as memory:
        await _DOING[order.work](memory)


async def _knowledge(memory: Memory) -> None:
    from mcp_server.knowledge.extract import extract_pending

    await extract_pending(memory)


async def _jobs(memory: Memory) -> None:
    from mcp_server.jobs.scheduler import JOBS, run_due

    await run_due(memory, JOBS)


_DOING = {"knowledge": _knowledge, "jobs": _jobs}
