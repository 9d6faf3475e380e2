"""Exports a history to git, and kills itself at a moment: amid the commits, before they are noted, or at the push."""

from __future__ import annotations

import os
import signal
from typing import Any

import anyio

from mcp_server.app import open_memory
from mcp_server.history.committing import export_history
from mcp_server.storage.postgres import whole


def main(address: str, moment: str) -> None:
    name = {"commits": "_commit", "note": "put_entries", "push": "git"}[moment]
    real = getattr(whole, name)

    def killed(*arguments: Any, **options: Any) -> Any:
        if moment != "push" or "push" in arguments:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    setattr(whole, name, killed)

    async def run() -> None:
        async with open_memory(address, os.environ) as memory:
            await export_history(memory)

    anyio.run(run)
