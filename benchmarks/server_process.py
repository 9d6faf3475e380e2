"""Real server processes for `speed`: requests in plain JSON-RPC over pipes, memory, and the time of clients' hooks."""

from __future__ import annotations

import compileall
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import mcp_server
from benchmarks.workbench import Talk
from mcp_server.clients.hooks import command
from mcp_server.errors import Unavailable

PROTOCOL = "2025-11-25"
EMPTY = "from mcp.server import MCPServer; MCPServer('empty').run('stdio')"
"""A server without tools: the baseline."""

HELLO = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


@dataclass(slots=True)
class ServerProcess:
    """A running server. `first_answer` is the time from the start of the process to its first answer, in seconds."""

    process: subprocess.Popen[bytes]
    first_answer: float = 0.0
    _ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def pid(self) -> int:
        return self.process.pid

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Returns the result of a request.

        Raises:
            Unavailable: the server answered with an error, or ended.
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
        """Returns the result of a tool call.

        Raises:
            Unavailable: the tool failed; the message is that of the tool.
        """
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise Unavailable(f"{tool}: {result['content'][0]['text']}")
        return result

    def hello(self) -> None:
        """Sends the handshake."""
        self.request("initialize", HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: Mapping[str, Any]) -> None:
        pipe = _pipe(self.process.stdin)
        pipe.write(json.dumps(message).encode() + b"\n")
        pipe.flush()


@contextmanager
def running(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[ServerProcess]:
    """Starts `command` as an MCP server over stdio and yields it after the handshake; ends it afterwards."""
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
    """Returns the command line of our server on `workspace`."""
    return [sys.executable, "-m", "mcp_server", "--workspace", str(workspace)]


def empty() -> list[str]:
    """Returns the command line of the baseline server."""
    return [sys.executable, "-c", EMPTY]


def resident(pid: int) -> float | None:
    """Returns the resident memory of a process in MB (of 1,048,576 bytes), or None if the system does not tell it."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    if os.name != "posix":
        return None
    said = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return int(said) / 1024 if said.strip().isdigit() else None


def proportional(pid: int) -> float | None:
    """Returns the proportional memory (PSS) of a process in MB, or None if the system does not tell it. A page that
    several processes share counts once over all of them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), None)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "opened with pipes"
    return pipe


WARM = 3
PATIENCE = 60.0
EVENT = "UserPromptSubmit"


def round_trips(workspace: Path, count: int) -> tuple[list[float], list[float], list[float]]:
    """Returns the milliseconds of `count` prompts to a client's hook with a running server: by command and by tool, and
    of as many starts of a Python that does nothing.

    Raises:
        Unavailable: the server does not listen for hooks.
    """
    environ = {**os.environ, "CONTEXT_MANAGER_HOME": str(workspace)}
    talk = Talk(6)
    # pip compiles what it installs. A clone would be compiled at every call if Python must not write bytecode.
    compileall.compile_dir(Path(mcp_server.__file__).parent, quiet=2)
    with running([*ours(workspace), "--hooks"], environ) as server:
        server.call("status")
        _wait_until_it_listens(workspace, environ)
        times: tuple[list[float], ...] = ([], [], [])
        for number in range(WARM + count):  # alternating, so that the load of the machine is the same for all
            given = {"session_id": "bench-hooks", "prompt": talk.question(), "cwd": str(workspace)}
            calls = (
                partial(_run, [*_command(), EVENT], environ, given),
                partial(_call, server, given),
                partial(_run, [sys.executable, "-c", "pass"], environ, {}),
            )
            for kept, call in zip(times, calls, strict=True):
                taken = _timed(call)
                if number >= WARM:
                    kept.append(taken)
    by_command, by_tool, idle = times
    return by_command, by_tool, idle


def _command() -> list[str]:
    """Returns the hook command as clients start it, or without the script if that is not beside this Python."""
    script = Path(sys.executable).with_name("context-manager")
    if script.exists():
        return [str(script), "hook"]
    return [sys.executable, "-c", "import sys; from mcp_server.cli.start import main; sys.exit(main())", "hook"]


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def _run(words: list[str], environ: Mapping[str, str], given: Mapping[str, str]) -> None:
    subprocess.run(words, input=json.dumps(given).encode(), env=dict(environ), capture_output=True, check=True)


def _call(server: ServerProcess, given: Mapping[str, str]) -> None:
    server.call("hook", event=EVENT, **given)


def _wait_until_it_listens(workspace: Path, environ: Mapping[str, str]) -> None:
    local = command.local_folder(str(workspace), environ)
    end = time.monotonic() + PATIENCE
    while command.ask(local, "Nothing", end) is None:
        if time.monotonic() > end:
            raise Unavailable("the server does not listen for hooks; context-manager doctor says why")
        time.sleep(0.05)  # another process gives no event to wait on
