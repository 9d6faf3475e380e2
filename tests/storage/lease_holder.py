"""A replica that works under the maintainer's lease, in a process of its own that a test may pause.

    python -m tests.storage.lease_holder ADDRESS SECONDS WORK [GIT_FOLDER]

It prints its fencing number. WORK is `wait`, which ends with "lost" when another process has taken the lease over; or
`file`, `state`, `index` or `git`, which stops in the middle, prints "in the middle", goes on after a line on stdin, and
prints "stored", or the sentence with which its write was refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import anyio

from mcp_server.app import open_memory
from mcp_server.errors import Unavailable
from mcp_server.history.committing import export_history
from mcp_server.memory import Memory
from mcp_server.storage import whole
from mcp_server.storage.postgres import indexing, locks
from mcp_server.storage.postgres import whole as team
from mcp_server.storage.postgres.locks import Lease
from tests.conftest import KEYWORDS_ONLY


def pause() -> None:
    """Stops until the test sends a line."""
    print("in the middle", flush=True)
    sys.stdin.readline()


def pausing_after(real: Callable[..., Any]) -> Callable[..., Any]:
    def paused(*arguments: Any, **options: Any) -> Any:
        result = real(*arguments, **options)
        pause()
        return result

    return paused


async def work(memory: Memory, kind: str) -> None:
    """Does some work, with a pause before its last commit."""
    if kind == "file":
        async with memory.locks.files():
            memory.files.write_atomic("knowledge/late.md", "# Late\n\nWritten by the paused one.\n")
            pause()
    elif kind == "state":
        pause()
        await memory.state.put("late", "key", "written by the paused one")
    elif kind == "index":
        indexing.Indexing._batch = pausing_after(indexing.Indexing._batch)  # type: ignore[method-assign]
        await memory.index.refresh()
    else:
        team.fast_import = pausing_after(whole.fast_import)  # type: ignore[attr-defined]
        await export_history(memory)


async def hold(address: str, kind: str, environ: dict[str, str]) -> None:
    """Works under the lease."""
    async with open_memory(address, environ) as memory:
        lease = memory.locks.try_maintainer()
        assert isinstance(lease, Lease)
        with lease:
            print(lease.fence, flush=True)
            if kind == "wait":
                while not lease.lost:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
                print("lost", flush=True)
                return
            try:
                await work(memory, kind)
                print("stored", flush=True)
            except Unavailable as error:
                print(error, flush=True)


if __name__ == "__main__":
    address, seconds, kind, *folder = sys.argv[1:]
    locks.LEASE_SECONDS = float(seconds)
    locks.RENEW_SECONDS = float(seconds) / 4
    git = {"CONTEXT_MANAGER_GIT__EXPORT_FOLDER": folder[0]} if folder else {}
    anyio.run(hold, address, kind, {**KEYWORDS_ONLY, **git})
