"""Replicas of a team's server, as real processes, and clients that reach any of them under one address."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import Implementation

from mcp_server.app import open_memory
from mcp_server.conversations import sessions
from mcp_server.model import Turn
from tests.conftest import KEYWORDS_ONLY
from tests.issuing import AUDIENCE
from tests.preloaded import context_manager, python
from tests.running import printed
from tests.serving import PLAIN, ROOT

MANY_CALLS = {"CONTEXT_MANAGER_CALLS_PER_MINUTE": "1000000"}


class Replica:
    """A running server: `base` is its own address, without a path."""

    def __init__(self, address: str, log: Path, environ: Mapping[str, str], port: int) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CONTEXT_MANAGER_")}
        self._environ = {**kept, **PLAIN, **MANY_CALLS, **environ}
        self._arguments = ("-m", "mcp_server", "--workspace", address, "--http", "--tools", "full")
        self._pid = log.with_suffix(".pid")
        self.log = log
        self.base = ""
        self._start(port)

    def _start(self, port: int) -> None:
        self._pid.unlink(missing_ok=True)
        command = python(*self._arguments, "--port", str(port), pid_file=self._pid)
        with self.log.open("w") as stderr:
            self._process = subprocess.Popen(
                command, stderr=stderr, stdin=subprocess.DEVNULL, env=self._environ, cwd=ROOT
            )

    def listen(self) -> None:
        """Waits until the server listens."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            found = re.search(r"^context-manager: (http://\S+?)/mcp,", self.logged(), re.MULTILINE)
            if found:
                self.base = found[1]
                return
            assert self._process.poll() is None, self.logged()
            time.sleep(0.02)
        raise AssertionError(self.logged())

    def kill(self) -> None:
        """`kill -9`."""
        number = int(self._pid.read_text()) if self._pid.exists() else self._process.pid
        os.kill(number, signal.SIGKILL)
        self._process.wait(30)

    def start_again(self) -> None:
        """Starts the server that was killed, at the same address, and waits until it listens."""
        self._start(int(self.base.rpartition(":")[2]))
        self.listen()

    def end(self) -> None:
        """Ends the server as an operator does."""
        self._process.terminate()
        self._process.wait(30)

    def logged(self) -> str:
        """Returns what the process has written to stderr."""
        return self.log.read_text("utf-8")


@contextmanager
def replicas(
    address: str, folder: Path, environ: Mapping[str, str], number: int = 2, port: int = 0
) -> Iterator[list[Replica]]:
    """Yields `number` servers on the database at `address`, on free ports unless there is only one."""
    with ExitStack() as stack:
        running = []
        for place in range(number):
            running.append(Replica(address, folder / f"replica-{place}.log", environ, port))
            stack.callback(running[-1].end)
        for one in running:
            one.listen()
        yield running


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


async def posted(http: httpx2.AsyncClient, url: str, method: str, **params: Any) -> dict[str, Any]:
    """Returns the answer to a request of the modern protocol, sent without the SDK's client. It can be asked."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        "mcp-name": str(params.get("name", "")),
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    found: dict[str, Any] = (await http.post(url, json=body, headers=headers)).json()
    return found


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


def operator(address: str, workspace: str, issuer: str, *arguments: str) -> str:
    """Returns what a command of the operator prints; it must succeed."""
    environ = {**os.environ, **PLAIN, "CONTEXT_MANAGER_OAUTH_ISSUER": issuer}
    told = context_manager("--workspace", f"{address}&workspace={workspace}", *arguments)
    return printed(told, env=environ, cwd=ROOT)


async def turns_by_writer(address: str, writers: Sequence[str], each: int) -> tuple[Turn, ...]:
    """Returns the turns of the session, after checking that it has `each` turns of each writer, in order and without
    gaps."""
    async with open_memory(address, KEYWORDS_ONLY) as memory:
        shown = await sessions.show_session(memory, "ses_team")
        assert await memory.state.last_number("ses_team") == len(shown.turns)
        assert memory.files.stat(shown.row.path).size == shown.row.size
    assert [turn.number for turn in shown.turns] == list(range(1, len(writers) * each + 1))
    for name in writers:
        said = [turn.content for turn in shown.turns if turn.content.startswith(f"{name} ")]
        assert said == [f"{name} says {number}" for number in range(each)]
    return shown.turns
