"""A replica that holds the maintainer's lease, in a process of its own that a test may pause.

    python -m tests.storage.lease_holder ADDRESS SECONDS

It prints its fencing number, and "lost" when it learns that another process has taken the lease over.
"""

from __future__ import annotations

import sys

import anyio

from mcp_server.storage.postgres import locks
from mcp_server.storage.postgres.opening import open_storage


async def hold(address: str) -> None:
    """Holds the lease until it is lost."""
    async with open_storage(address) as storage:
        lease = storage.locks.try_maintainer()
        assert lease is not None
        print(lease.fence, flush=True)
        while not lease.lost:  # noqa: ASYNC110
            await anyio.sleep(0.05)
        print("lost", flush=True)


if __name__ == "__main__":
    locks.LEASE_SECONDS = float(sys.argv[2])
    locks.RENEW_SECONDS = float(sys.argv[2]) / 4
    anyio.run(hold, sys.argv[1])
