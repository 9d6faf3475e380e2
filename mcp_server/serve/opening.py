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
"""Seconds between the first answer and the work that follows it: the answer leaves the process first."""

PATIENCE = 5.0
"""Seconds that closing in good order may take. What was acknowledged is on disk long before; the rest can be redone."""


@dataclass(slots=True)
class Opening:
    """A workspace that opens in the background.

    `enter` opens it, `work` runs as long as it is open. A failure to open is told to every call that waits, and the
    next call tries again: a disk may have been mended meanwhile.
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
        """The open memory. Raises a ContextManagerError that says why it could not be opened."""
        if self.ready is None:
            tried = self._tried
            self._urgent.set()
            self._nudged.set()
            await tried.wait()
        if self.ready is None:
            raise self._error or Unavailable("the server is shutting down; start it again")
        return self.ready

    def answered(self) -> None:
        """The first answer is on its way: from now on there is time."""
        self._nudged.set()

    async def run(self) -> None:
        """Opens when it is time and keeps the workspace open until `close`."""
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
        """Closes the workspace in good order, within `PATIENCE`."""
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
        """Tells everybody who waits, and gets ready for another attempt."""
        self.ready, self._error = None, error
        self._tried.set()
        if not self._stop.is_set():
            self._nudged, self._urgent, self._tried = anyio.Event(), anyio.Event(), anyio.Event()


def _leaf(error: Exception) -> Exception:
    """What happened, out of the groups that task groups wrap around it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
