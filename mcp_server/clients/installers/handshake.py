"""Checks that a command speaks MCP: starts it, sends a handshake, asks for its tools, and ends it.

The two requests are written without the SDK, because the user needs to see what a broken command prints.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, Process

from mcp_server import __version__

PATIENCE = 30.0
"""Time limit in seconds, the same as Claude Code's. A first start on a busy machine takes over 10 s."""

GOODBYE = 2.0
"""Seconds that the process has to end after its stdin was closed."""

PROTOCOL = "2025-06-18"

INHERITED = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR"),
    *("APPDATA", "LOCALAPPDATA", "USERPROFILE", "USERNAME", "SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "PATHEXT"),
)
"""The variables that most clients pass on to servers."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a handshake. `problem` is "" if it succeeded."""

    seconds: float
    version: str = ""
    tools: tuple[str, ...] = ()
    problem: str = ""


async def handshake(
    words: Sequence[str],
    environ: Mapping[str, str],
    more: Mapping[str, str] | None = None,
    *,
    whole: bool = False,
    patience: float = PATIENCE,
) -> Answered:
    """Starts `words` as a client does, with `more` in its environment, and asks for its tools.

    The process gets the INHERITED variables of `environ`; with `whole`, all of them.
    """
    began = time.monotonic()
    problem = missing(words, environ)
    if problem:
        return Answered(0.0, problem=problem)
    kept = environ if whole else {name: environ[name] for name in INHERITED if name in environ}
    env = {**kept, **(more or {})}
    try:
        process = await anyio.open_process(
            list(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
    except OSError as error:
        return Answered(0.0, problem=f"it cannot be started: {error.strerror or error}")
    said: list[str] = []
    answered = Answered(0.0, problem=f"no answer within {patience:.0f} s")
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_listen, process, said)
            with anyio.move_on_after(patience):
                answered = await _talk(process)
            took = time.monotonic() - began  # without the time to end
            await _end(process)
    finally:
        with anyio.CancelScope(shield=True):
            await process.aclose()
    last = f"; it said: {said[-1]}" if said and answered.problem else ""
    return Answered(took, answered.version, answered.tools, answered.problem + last)


def missing(words: Sequence[str], environ: Mapping[str, str]) -> str:
    if not words or not words[0]:
        return "no command is named"
    command = words[0]
    if Path(command).is_absolute():
        if not Path(command).exists():
            return f"there is no {command}"
        return "" if os.access(command, os.X_OK) else f"{command} is not executable"
    return "" if shutil.which(command, path=environ.get("PATH")) else f"{command} is not on PATH"


async def _talk(process: Process) -> Answered:
    assert process.stdin is not None
    assert process.stdout is not None
    lines = _lines_of(process.stdout)
    try:
        hello = {
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "context-manager-doctor", "version": __version__},
        }
        await _send(process, {"id": 1, "method": "initialize", "params": hello})
        greeting = await _response_to(lines, 1)
        await _send(process, {"method": "notifications/initialized"})
        await _send(process, {"id": 2, "method": "tools/list"})
        listed = await _response_to(lines, 2)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        code = await process.wait()
        return Answered(0.0, problem=f"it ended at once, with exit code {code}")
    except ValueError as error:
        return Answered(0.0, problem=str(error))
    version = str(greeting.get("serverInfo", {}).get("version", ""))
    return Answered(0.0, version, tuple(str(tool.get("name")) for tool in listed.get("tools", [])))


async def _send(process: Process, message: dict[str, Any]) -> None:
    assert process.stdin is not None
    await process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


async def _response_to(lines: AsyncIterator[bytes], number: int) -> dict[str, Any]:
    """Returns the result of request `number`. Ignores the server's notifications and requests."""
    async for line in lines:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            shown = line.decode("utf-8", "replace").strip()[:80]
            raise ValueError(f"its stdout is no protocol: {shown!r}")
        if message.get("id") == number and "method" not in message:
            if "error" in message:
                raise ValueError(f"it refused: {message['error'].get('message', message['error'])}")
            return dict(message.get("result") or {})
    raise anyio.EndOfStream


async def _lines_of(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    kept = b""
    async for part in stream:
        *whole, kept = (kept + part).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
    if kept.strip():
        yield kept


async def _listen(process: Process, said: list[str]) -> None:
    """Keeps the last three lines of stderr in `said`."""
    assert process.stderr is not None
    async for line in _lines_of(process.stderr):
        said.append(line.decode("utf-8", "replace").strip()[:300])
        del said[:-3]


async def _end(process: Process) -> None:
    assert process.stdin is not None
    await process.stdin.aclose()
    with anyio.move_on_after(GOODBYE) as waited:
        await process.wait()
    if waited.cancelled_caught:
        process.kill()
        await process.wait()
