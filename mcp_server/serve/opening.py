"""Opens the workspace behind a running server: after the first answer, or when a call needs it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from mcp_server.errors import ContextManagerError, Unavailable

if TYPE_CHECKING:
    from mcp_server.memory import Memory

logger = logging.getLogger(__name__)

GRACE = 0.05
"""Seconds between the first answer and opening the workspace, so that the answer is sent first."""

PATIENCE = 5.0
"""Time limit of closing, in seconds. Acknowledged data is on disk before; everything else can be redone."""


@dataclass(slots=True)
class Opening:
    """A workspace that opens in the background.

    `enter` opens it, `work` runs as long as it is open. If opening fails, every waiting call gets the error, and the
    next call tries again.
    """

    enter: Callable[[], AbstractAsyncContextManager[Memory]]
    work: Callable[[Memory], Coroutine[Any, Any, None]]
    ready: Memory | None = None
    _nudged: anyio.Event = field(default_factory=anyio.Event)
    _urgent: anyio.Event = field(default_factory=anyio.Event)
    _tried: anyio.Event = field(default_factory=anyio.Event)
    _stop: anyio.Event = field(default_factory=anyio.Event)
    _stopped: anyio.Event = field(default_factory=anyio.Event)
    _error: ContextManagerError | None = None

    async def memory(self) -> Memory:
        """Returns the open memory. Raises a ContextManagerError that says why it could not be opened."""
        if self.ready is None:
            tried = self._tried
            self._urgent.set()
            self._nudged.set()
            await tried.wait()
        if self.ready is None:
            raise self._error or Unavailable("the server is shutting down; start it again")
        return self.ready

    def answered(self) -> None:
        """Starts opening, because the first answer was given."""
        self._nudged.set()

    async def run(self) -> None:
        """Opens the workspace after the first answer or for the first call, and keeps it open until `close`."""
        try:
            while not self._stop.is_set():
                await self._nudged.wait()
                with anyio.move_on_after(GRACE):
                    await self._urgent.wait()
                if not self._stop.is_set():
                    await self._attempt()
        finally:
            self._tried.set()
            self._stopped.set()

    async def close(self) -> None:
        """Closes the workspace, within `PATIENCE` seconds."""
        for event in (self._stop, self._urgent, self._nudged):
            event.set()
        with anyio.move_on_after(PATIENCE):
            await self._stopped.wait()

    async def _attempt(self) -> None:
        try:
            async with self.enter() as memory, anyio.create_task_group() as tasks:
                self.ready, self._error = memory, None
                self._tried.set()
                tasks.start_soon(self.work, memory)
                await self._stop.wait()
                self.ready = None
                tasks.cancel_scope.cancel()
        except Exception as raised:
            error = _leaf(raised)
            if not isinstance(error, ContextManagerError):
                logger.error("the workspace could not be opened", exc_info=raised)
                why = str(error) or type(error).__name__
                error = Unavailable(f"the memory could not be opened: {why} (context-manager doctor)")
            self._failed(error)

    def _failed(self, error: ContextManagerError) -> None:
        """Gives the error to all waiting calls, and prepares another attempt."""
        self.ready, self._error = None, error
        self._tried.set()
        if not self._stop.is_set():
            self._nudged, self._urgent, self._tried = anyio.Event(), anyio.Event(), anyio.Event()


def _leaf(error: Exception) -> Exception:
    """Returns the error inside the exception groups that task groups raise."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
