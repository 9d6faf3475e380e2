"""The worker process of a server: does long work in a separate process, with the lowest priority if no user waits.

Work that computes for minutes (extracting knowledge from a large import, condensing) would delay every answer of the
server's process, because Python runs one thread at a time. A worker uses the workspace like any other process, through
files and locks. Killing it at any moment loses no acknowledged data.

    server                         worker
    starts it, sends an order    → lowers its priority if no user waits, opens the workspace, works
    keeps its standard input open  exits at once when it is closed, because the server has then ended
    waits                        ← exit code: 0 done
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Literal

import anyio

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory

Work = Literal["knowledge", "jobs"]
"""Extracting knowledge from closed conversations; running the scheduled jobs that are due."""

PROGRAM = """\
import sys
sys.path.append(sys.argv[1])
from mcp_server.jobs import worker
work, workspace, environ = worker.begin()
from mcp_server.app import open_memory
worker.do(work, open_memory(worker.Path(workspace), environ, if_missing="refuse"))
"""
"""Passed to `python -c`: `-m` would search the working folder first, which is a user's project."""

NICE = 19
"""The lowest priority on POSIX."""

PRIORITY = getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)
"""The priority on Windows."""


def order(work: Work, workspace: Path, environ: Mapping[str, str], *, awaited: bool = False) -> bytes:
    """Returns the line that tells a worker what to do, in which workspace, with which environment for the settings, and
    whether a user waits for it."""
    return json.dumps([work, str(workspace), dict(environ), awaited]).encode("ascii") + b"\n"


async def run(work: Work, workspace: Path, environ: Mapping[str, str], *, awaited: bool = False) -> bool:
    """Does `work` in a worker, which is killed if this call is cancelled. Returns False if no process can be started.

    If a user waits (`awaited`), the worker has the usual priority. Raises Unavailable if the worker failed.
    """
    if not sys.executable:  # a program that embeds Python
        return False
    command = [sys.executable, "-P", "-c", PROGRAM, str(Path(__file__).parents[2])]
    try:
        process = await anyio.open_process(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=None,
            creationflags=0 if awaited else PRIORITY,
        )
    except OSError:
        return False
    async with process:
        assert process.stdin is not None, "opened with a pipe"
        with suppress(anyio.BrokenResourceError):  # the worker has ended already; its exit code says more
            await process.stdin.send(order(work, workspace, environ, awaited=awaited))
        code = await process.wait()
    if code:
        raise Unavailable(f"the child process for {work} ended with code {code}; stderr of the server says why")
    return True


def begin() -> tuple[Work, str, dict[str, str]]:
    """Returns the `order` from standard input. Makes this process end with its parent, and lowers its priority if no
    user waits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C and ends this process
    work, workspace, environ, awaited = json.loads(sys.stdin.buffer.readline())
    if hasattr(os, "nice") and not awaited:
        os.nice(NICE)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    return work, workspace, environ


def do(work: Work, opening: AbstractAsyncContextManager[Memory]) -> None:
    import logging

    from mcp_server import set_up_process

    set_up_process()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    anyio.run(_do, work, opening)


def _end_with_the_parent() -> None:
    with suppress(OSError):
        os.read(0, 1)
    os._exit(0)  # the files on disk are valid at any moment


async def _do(work: Work, opening: AbstractAsyncContextManager[Memory]) -> None:
    async with opening as memory:
        if work == "knowledge":
            from mcp_server.knowledge.extract import extract_pending

            await extract_pending(memory)
        else:
            from mcp_server.jobs.scheduler import JOBS, run_due

            await run_due(memory, JOBS)
