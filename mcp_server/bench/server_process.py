"""A real server process, spoken to in plain JSON-RPC over its pipes: nothing of a client weighs on the measurement."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from mcp_server.errors import Unavailable

PROTOCOL = "2025-11-25"
EMPTY = "from mcp.server import MCPServer; MCPServer('empty').run('stdio')"
"""The least that a server can be: what ours is compared with."""

HELLO = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


@dataclass(slots=True)
class ServerProcess:
    """A running server. `first_answer` is how long it took from the start of the process to its first answer, in s."""

    process: subprocess.Popen[bytes]
    first_answer: float = 0.0
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def pid(self) -> int:
        return self.process.pid

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """The result of one request.

        Raises:
            Unavailable: the server answered with an error, or is gone.
        """
        number = next(self._ids)
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while True:
            line = _pipe(self.process.stdout).readline()
            if not line:
                raise Unavailable("the server process ended before it answered; start it by hand: python -m mcp_server")
            message = json.loads(line)
            if message.get("id") == number:
                if "error" in message:
                    raise Unavailable(f"the server process answered {method} with: {message['error']['message']}")
                return message["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        """The result of one tool call.

        Raises:
            Unavailable: the tool failed; the message is its own.
        """
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise Unavailable(f"{tool}: {result['content'][0]['text']}")
        return result

    def hello(self) -> None:
        """The handshake."""
        self.request("initialize", HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: Mapping[str, Any]) -> None:
        pipe = _pipe(self.process.stdin)
        pipe.write(json.dumps(message).encode() + b"\n")
        pipe.flush()


@contextmanager
def running(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[ServerProcess]:
    """Starts `command` as an MCP server over stdio and shakes hands with it; ends it afterwards."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(environ)
    )
    server = ServerProcess(process)
    try:
        server.hello()
        server.first_answer = time.perf_counter() - began
        yield server
    finally:
        _pipe(process.stdin).close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _pipe(process.stdout).close()


def ours(workspace: Path) -> list[str]:
    """The command line of our own server on `workspace`."""
    return [sys.executable, "-m", "mcp_server", "--workspace", str(workspace)]


def empty() -> list[str]:
    """The command line of a server that does nothing."""
    return [sys.executable, "-c", EMPTY]


def resident(pid: int) -> float | None:
    """Resident memory of a process in MB (of 1,048,576 bytes); None where this system does not tell."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    if os.name != "posix":
        return None
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return int(said) / 1024 if said.strip().isdigit() else None


def proportional(pid: int) -> float | None:
    """A process's part of the memory in MB: pages that several processes share count once over all of them.

    None where this system does not tell.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), None)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "opened with pipes"
    return pipe
