"""A server that only waits holds little: what searching needs is loaded by whoever searches."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import pytest

from mcp_server.conversations.observe import NewTurn, observe
from mcp_server.memory import Memory
from mcp_server.model import Caller
from tests.serving import environment

pytestmark = pytest.mark.anyio

WAITS = """
import os, sys, anyio
from mcp_server.app import open_memory
from mcp_server.search.query import plain_query

async def main():
    async with open_memory(None, os.environ) as memory:
        generation, _ = await memory.index.data_version()
        assert generation != "none"
        print("numpy" in sys.modules)
        found = await memory.index.candidates(plain_query("walrus"))
        print(found.used, len(found.found), "numpy" in sys.modules)

anyio.run(main)
"""


async def test_looking_whether_the_index_has_changed_loads_no_numpy(memory: Memory, workspace: Path) -> None:
    await observe(memory, NewTurn("user", "The walrus sleeps.", "s"), Caller())
    await memory.index.refresh()
    done = await anyio.run_process([sys.executable, "-c", WAITS], env=environment(workspace), check=False)
    assert done.stdout.decode().split("\n")[:2] == ["False", "keyword 1 True"], done.stderr
