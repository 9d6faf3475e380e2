"""`context-manager page`: serves the page from a process of its own, and opens it in the browser."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Mapping
from html import escape
from pathlib import Path

import anyio
import uvicorn
from anyio.to_thread import run_sync

from mcp_server.memory import Memory
from mcp_server.page.door import CODE_SECONDS, Door
from mcp_server.page.site import application
from mcp_server.serve.http import Connection, bound

HOST = "127.0.0.1"


def run(workspace: Path | None, environ: Mapping[str, str], port: int, browser: bool) -> None:
    """Serves the page until it is interrupted. Raises NotFound if there is no memory, Unavailable for a port in use."""
    with contextlib.suppress(KeyboardInterrupt):
        anyio.run(_serve, workspace, environ, port, browser)


async def _serve(workspace: Path | None, environ: Mapping[str, str], port: int, browser: bool) -> None:
    from mcp_server.app import catch_up, maintain, open_memory

    async with open_memory(workspace, environ, if_missing="refuse") as memory:
        listening = bound(HOST, port)
        door = Door(listening.getsockname()[1])

        async def opened() -> Memory:
            return memory

        config = uvicorn.Config(
            application(opened, door),
            http=Connection,
            log_level="warning",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        await catch_up(memory)
        async with maintain(memory, environ), anyio.create_task_group() as tasks:
            tasks.start_soon(_invite, door, memory.disk.local, browser)
            await uvicorn.Server(config).serve(sockets=[listening])
            tasks.cancel_scope.cancel()


async def _invite(door: Door, folder: Path, browser: bool) -> None:
    """Opens the browser, and prints an address; on a terminal, a new one each time that Enter is pressed."""
    address = _address(door)
    opened = browser and await run_sync(_open_browser, address, folder)
    told = "The page is open in your browser." if opened else "Open this address in your browser:"
    _say(f"{told}\n  {address}\nIt works once, within {CODE_SECONDS:.0f} seconds. Ctrl+C ends the page.")
    if not sys.stdin.isatty():
        return
    _say("Press Enter for a new address.")
    while await run_sync(sys.stdin.readline, abandon_on_cancel=True):
        _say(f"  {_address(door)}")


def _address(door: Door) -> str:
    return f"http://{HOST}:{door.port}/open#{door.new_code()}"


def _open_browser(address: str, folder: Path) -> bool:
    """Opens an address in the browser by a file that redirects to it: programs can read each other's arguments.

    Returns False if there is no browser. The file is readable by this user only, and is deleted when its code is not
    valid any more.
    """
    handle, name = tempfile.mkstemp(prefix="open-", suffix=".html", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        shown = escape(address, quote=True)
        file.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={shown}"><a href="{shown}">Open the memory</a>\n'
        )
    path = Path(name)
    try:
        opened = webbrowser.open(path.as_uri())
    except webbrowser.Error:
        opened = False
    if not opened:
        path.unlink(missing_ok=True)
        return False
    timer = threading.Timer(CODE_SECONDS, lambda: path.unlink(missing_ok=True))
    timer.daemon = True
    timer.start()
    return True


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the person at the terminal
