"""Checks that a command speaks MCP: starts it, sends a handshake, asks for its tools, and ends it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from pydantic import ValidationError

from mcp_server import __version__

PATIENCE = 30.0
"""Time limit in seconds, the same as Claude Code's. A first start on a busy machine takes over 10 s."""


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

    The process gets the variables that most clients pass on, or with `whole` all of `environ`.
    """
    from mcp.client.session import ClientSession  # importing it takes 0.3 s
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.shared.exceptions import MCPError
    from mcp.types import CONNECTION_CLOSED, Implementation

    if problem := missing(words, environ):
        return Answered(0.0, problem=problem)
    env = {**(environ if whole else {}), **(more or {})}
    command = StdioServerParameters(command=words[0], args=list(words[1:]), env=env)
    began = time.monotonic()
    version, problem = "", f"no answer within {patience:.0f} s"
    tools: tuple[str, ...] = ()
    scope = anyio.move_on_after(patience)

    async def look(message: object) -> None:
        nonlocal problem
        if isinstance(message, ValidationError):
            problem = f"its stdout is no protocol: {str(message.errors()[0]['input'])[:80]!r}"
            scope.cancel()

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            async with (
                stdio_client(command, log) as streams,
                ClientSession(
                    *streams,
                    message_handler=look,
                    client_info=Implementation(name="context-manager-doctor", version=__version__),
                ) as session,
            ):
                with scope:
                    try:
                        version = (await session.initialize()).server_info.version
                        tools = tuple(tool.name for tool in (await session.list_tools()).tools)
                        problem = ""
                    except MCPError as error:
                        ended = error.error.code == CONNECTION_CLOSED
                        problem = "it ended at once" if ended else f"it refused: {error.error.message}"
                took = time.monotonic() - began  # without the time to end
        except OSError as error:
            return Answered(0.0, problem=f"it cannot be started: {error.strerror or error}")
        log.seek(0)
        said = [line.strip()[:300] for line in log if line.strip()]
    last = f"; it said: {said[-1]}" if said and problem else ""
    return Answered(took, version, tools, problem + last)


def missing(words: Sequence[str], environ: Mapping[str, str]) -> str:
    if not words or not words[0]:
        return "no command is named"
    command = words[0]
    if Path(command).is_absolute():
        if not Path(command).exists():
            return f"there is no {command}"
        return "" if os.access(command, os.X_OK) else f"{command} is not executable"
    return "" if shutil.which(command, path=environ.get("PATH")) else f"{command} is not on PATH"
