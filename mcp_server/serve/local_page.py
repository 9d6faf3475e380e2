"""`context-manager page`: serves the page from a separate process, and opens it in the browser."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TextIO

import anyio
from anyio.to_thread import run_sync
from starlette.types import Receive, Scope, Send

from mcp_server.errors import Unavailable
from mcp_server.memory import Memory
from mcp_server.page.door import CODE_SECONDS, Door
from mcp_server.page.site import application
from mcp_server.serve.http import bound, web_server

HOST = "127.0.0.1"
IDLE_SECONDS = 30 * 60
"""Seconds without a request after which a page in the background ends. An open page sends a request every second."""

UNTIL_IDLE = "--until-idle"
OPENED = "The page is open in your browser."
NO_BROWSER = "No browser could be opened here. Run `context-manager page` in a terminal: it prints an address."


def run(
    workspace: Path | str | None, environ: Mapping[str, str], port: int, browser: bool, until_idle: bool = False
) -> None:
    """Serves the page until it is interrupted, or with `until_idle` until it has been idle for IDLE_SECONDS.

    Raises NotFound if there is no memory, Unavailable if the port is in use.
    """
    with contextlib.suppress(KeyboardInterrupt):
        anyio.run(_serve, workspace, environ, port, browser, until_idle)


def run_in_background(workspace: Path | str | None) -> str:
    """Starts the page in a process that outlives this one, and returns that process's first line of output.

    Raises Unavailable if the page does not open.
    """
    chosen = ["--workspace", str(workspace)] if workspace else []
    command = "from mcp_server.cli.start import main; raise SystemExit(main())"
    started = subprocess.Popen(
        [sys.executable, "-c", command, *chosen, "page", UNTIL_IDLE],
        env={**os.environ, "TERM": ""},  # rules out browsers that run in a terminal
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    with started.stdout:
        said = started.stdout.readline().strip()
    if said != OPENED:
        started.wait()
        raise Unavailable(
            said.removeprefix("context-manager: ") or "the page did not start; run `context-manager doctor`"
        )
    started.returncode = 0  # the process keeps running; nothing waits for it
    return said


async def _serve(
    workspace: Path | str | None, environ: Mapping[str, str], port: int, browser: bool, until_idle: bool
) -> None:
    from mcp_server.app import catch_up, maintain, open_memory

    async with open_memory(workspace, environ, if_missing="refuse") as memory:
        local = memory.disk.local  # raises for a memory without a folder, before the port is opened
        listening = bound(HOST, port)
        door = Door(listening.getsockname()[1])

        async def opened() -> Memory:
            return memory

        page, last_visit = application(opened, door), time.monotonic()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            nonlocal last_visit
            last_visit = time.monotonic()
            await page(scope, receive, send)

        server = web_server(app, lifespan="off")
        await catch_up(memory)

        async def invite() -> None:
            if not until_idle:
                await _invite(door, local, browser)
                return
            opened = await run_sync(_open_browser, _address(door), local)
            _say(OPENED if opened else NO_BROWSER, sys.stdout)
            while opened and (left := last_visit + IDLE_SECONDS - time.monotonic()) > 0:  # noqa: ASYNC110
                await anyio.sleep(left)
            server.should_exit = True

        async with maintain(memory, environ), anyio.create_task_group() as tasks:
            tasks.start_soon(invite)
            await server.serve(sockets=[listening])
            tasks.cancel_scope.cancel()


async def _invite(door: Door, folder: Path, browser: bool) -> None:
    """Opens the browser, and prints an address; on a terminal, a new one each time that Enter is pressed."""
    address = _address(door)
    opened = browser and await run_sync(_open_browser, address, folder)
    told = OPENED if opened else "Open this address in your browser:"
    _say(f"{told}\n  {address}\nIt works once, within {CODE_SECONDS:.0f} seconds. Ctrl+C ends the page.")
    if not sys.stdin.isatty():
        return
    _say("Press Enter for a new address.")
    while await run_sync(sys.stdin.readline, abandon_on_cancel=True):
        _say(f"  {_address(door)}")


def _address(door: Door) -> str:
    return f"http://{HOST}:{door.port}/open#{door.new_code()}"


def _open_browser(address: str, folder: Path) -> bool:
    """Opens an address in the browser through a file that redirects to it. Returns False if there is no browser.

    The address is not passed as an argument, because other programs can read the arguments of a process. The file is
    readable by this user only, and is deleted when its code has expired.
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


def _say(text: str, to: TextIO | None = None) -> None:
    print(text, file=to or sys.stderr, flush=True)
