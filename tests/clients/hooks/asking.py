"""Hook commands as a client starts them, and a handler that tells what it was asked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.to_thread import run_sync

from mcp_server.clients.hooks import command, listener, protocol
from mcp_server.memory import Memory
from tests.end_to_end.servers import eventually
from tests.preloaded import COMMAND
from tests.serving import environment

SESSION = "11111111-2222-3333-4444-555555555555"
PATIENT = {"CONTEXT_MANAGER_HOOK_SECONDS": "30"}
"""On a machine that is busy with other tests an answer may take longer than a prompt would wait for."""


class Told:
    """A handler that remembers its events and answers with their names, or as `answer` says."""

    def __init__(self, answer: Callable[[str], Awaitable[dict[str, object]]] | None = None) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self._answer = answer

    async def __call__(self, memory: Memory, event: str, given: Mapping[str, object]) -> dict[str, object]:
        self.events.append((event, dict(given)))
        return await self._answer(event) if self._answer else injecting(event, f"known at {event}")

    @property
    def names(self) -> list[str]:
        return [event for event, _ in self.events]


def injecting(event: str, text: str) -> dict[str, object]:
    """A hook's output that brings a text in."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


@asynccontextmanager
async def listening(memory: Memory, handle: listener.Handle) -> AsyncIterator[anyio.CancelScope]:
    """The door of the workspace is open; cancelling the scope closes it."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.listen, memory, handle)
        await eventually((memory.disk.local / protocol.ADDRESS).exists)
        yield tasks.cancel_scope
        tasks.cancel_scope.cancel()


def said(**fields: Any) -> bytes:
    """A hook's input."""
    return json.dumps({"session_id": SESSION, **fields}).encode()


async def responded(root: Path, event: str | None, environ: Mapping[str, str] | None = None, **fields: Any) -> Any:
    """What the command prints, parsed; None for nothing. It runs in this process, in a thread."""
    printed = await run_sync(lambda: command.respond(event, said(**fields), str(root), {**PATIENT, **(environ or {})}))
    return json.loads(printed) if printed else None


def hook(
    root: Path, *arguments: str, given: bytes, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", COMMAND, "hook", *arguments],
        input=given,
        capture_output=True,
        env={**environment(root), **PATIENT, **(env or {})},
        check=False,
        timeout=60,
    )


def queued(local: Path) -> list[str]:
    """The names in the queue."""
    folder = local / protocol.QUEUE
    return sorted(place.name for place in folder.iterdir()) if folder.is_dir() else []
