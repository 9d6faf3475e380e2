"""A replica that writes turns into one session, in a process of its own that a test may kill or pause.

    python -m tests.storage.team_writer ADDRESS SESSION NAME FIRST LAST

It prints the number of each turn after `observe` has acknowledged it, and sends a turn again that was refused, as a
client does. At the end it prints the longest time of a turn on stderr.
"""

from __future__ import annotations

import sys
import time

import anyio

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.errors import Unavailable
from mcp_server.model import Caller

PATIENCE = 120.0
"""Seconds for which a turn is sent again."""


async def write(address: str, session: str, name: str, first: int, last: int) -> None:
    """Records the turns with these numbers, in order."""
    longest = 0.0
    async with open_memory(address, {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none"}) as memory:
        for number in range(first, last):
            turn = NewTurn("user", f"{name} says {number}", session, turn_id=f"{name}-{number}", project="global")
            begun = time.monotonic()
            while True:
                try:
                    await observe(memory, turn, Caller("library"))
                    break
                except Unavailable:
                    if time.monotonic() - begun > PATIENCE:
                        raise
                    await anyio.sleep(0.1)
            longest = max(longest, time.monotonic() - begun)
            print(number, flush=True)
    print(f"{longest:.2f}", file=sys.stderr)


if __name__ == "__main__":
    address, session, name, first, last = sys.argv[1:]
    anyio.run(write, address, session, name, int(first), int(last))
