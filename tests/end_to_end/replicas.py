"""Replicas of a team's server, as real processes, and clients that reach any of them under one address."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import Implementation

from tests.issuing import AUDIENCE
from tests.preloaded import python
from tests.serving import PLAIN, ROOT

MANY_CALLS = {"CONTEXT_MANAGER_CALLS_PER_MINUTE": "1000000"}


@dataclass(frozen=True, slots=True)
class Replica:
    """A running server: `base` is its own address, without a path."""

    base: str
    log: Path

    def logged(self) -> str:
        """Returns what the process has written to stderr."""
        return self.log.read_text("utf-8")


@contextmanager
def replicas(
    address: str, folder: Path, environ: Mapping[str, str], number: int = 2, port: int = 0
) -> Iterator[list[Replica]]:
    """Yields `number` servers on the database at `address`, on free ports unless there is only one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CONTEXT_MANAGER_")}
    given = {**kept, **PLAIN, **MANY_CALLS, **environ}
    with ExitStack() as stack:
        running = []
        for place in range(number):
            log = folder / f"replica-{place}.log"
            command = python(
                "-m", "mcp_server", "--workspace", address, "--http", "--port", str(port), "--tools", "full"
            )
            stderr = stack.enter_context(log.open("w"))
            process = subprocess.Popen(command, stderr=stderr, stdin=subprocess.DEVNULL, env=given, cwd=ROOT)
            stack.callback(_ended, process)
            running.append((process, log))
        yield [_listening(process, log) for process, log in running]


def _listening(process: subprocess.Popen[bytes], log: Path) -> Replica:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        found = re.search(r"^context-manager: (http://\S+?)/mcp,", log.read_text("utf-8"), re.MULTILINE)
        if found:
            return Replica(found[1], log)
        assert process.poll() is None, log.read_text("utf-8")
        time.sleep(0.02)
    raise AssertionError(log.read_text("utf-8"))


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


class Proxy(httpx2.AsyncBaseTransport):
    """Sends each request to the next replica, as a proxy does. Other addresses are reached directly."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._next = itertools.cycle([httpx2.URL(one.base) for one in replicas])
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if str(request.url).startswith(AUDIENCE.removesuffix("/mcp")):
            to = next(self._next)
            request.url = request.url.copy_with(host=to.host, port=to.port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def http_client(
    replicas: Sequence[Replica], token: str = "", **options: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """Yields an HTTP client of the replicas."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    transport = Proxy(replicas)
    async with httpx2.AsyncClient(transport=transport, headers=headers, timeout=120, **options) as client:
        yield client


@asynccontextmanager
async def connected(
    replicas: Sequence[Replica],
    token: str,
    workspace: str = "",
    mode: Literal["auto", "legacy"] = "auto",
    **options: Any,
) -> AsyncIterator[Client]:
    """Yields an MCP client of a workspace, by default the personal one."""
    url = f"{AUDIENCE}/{workspace}" if workspace else AUDIENCE
    async with (
        http_client(replicas, token) as http,
        Client(
            streamable_http_client(url, http_client=http),
            mode=mode,
            client_info=Implementation(name="test-agent", version="1"),
            **options,
        ) as client,
    ):
        yield client


def command(address: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Returns a command of an operator, done."""
    program = "import sys; from mcp_server.cli.main import main; sys.exit(main())"
    given = {**os.environ, **PLAIN, **environ}
    told = [*python("-c", program), "--workspace", address, *arguments]
    return subprocess.run(told, capture_output=True, text=True, env=given, cwd=ROOT, check=False)
