"""A real browser and a real server of the page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio

from tests.preloaded import context_manager

if TYPE_CHECKING:
    from playwright.sync_api import Page

T = TypeVar("T")

BROWSER = os.environ.get("CM_BROWSER") or shutil.which("chromium-headless-shell") or ""
"""Debian's package of this name, or the program that CM_BROWSER names; "" if there is none."""

_ADDRESS = re.compile(r"http://\S+/open#\S+")


@contextmanager
def serving(workspace: Path, **environ: str) -> Iterator[str]:
    """Gives the one-time address of a page that runs until the end of the block."""
    process = subprocess.Popen(
        context_manager("--workspace", str(workspace), "page", "--no-browser"),
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        told = ""
        for line in process.stderr:
            told += line
            if found := _ADDRESS.search(line):
                break
        else:
            raise AssertionError(f"the page did not start: {told}")
        yield found[0]
    finally:
        process.terminate()
        process.communicate()


def run_apart(work: Callable[[], Awaitable[T]]) -> T:
    """Runs a coroutine function in a thread of its own, because Playwright's loop runs in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(anyio.run, work).result()


def open_page(page: Page, address: str) -> None:
    """Opens the page with an address that has a code, and waits for its first screen."""
    page.goto(address)
    page.wait_for_url("**/now")
