"""A replica that writes turns into one session, in a process of its own that a test may kill.

    python -m tests.storage.team_writer ADDRESS SESSION NAME FIRST LAST

It prints the number of each turn after `observe` has acknowledged it.
"""

from __future__ import annotations

import sys

import anyio

from mcp_server.app import open_memory
from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.model import Caller


async def write(address: str, session: str, name: str, first: int, last: int) -> None:
    """Records the turns with these numbers, in order."""
    async with open_memory(address, {"CONTEXT_MANAGER_SEARCH__EMBEDDER": "none"}) as memory:
        for number in range(first, last):
            turn = NewTurn("user", f"{name} says {number}", session, turn_id=f"{name}-{number}", project="global")
            await observe(memory, turn, Caller("library"))
            print(number, flush=True)


if __name__ == "__main__":
    address, session, name, first, last = sys.argv[1:]
    anyio.run(write, address, session, name, int(first), int(last))
