"""What changed in the workspace, told to whoever listens in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from anyio import WouldBlock, create_memory_object_stream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream


@dataclass(frozen=True, slots=True)
class Change:
    """`kind` is turn, file, index or session; `path` and `session` say which, where that is known."""

    kind: str
    path: str | None = None
    session: str | None = None


@dataclass(slots=True)
class Changes:
    """A fan-out: every listener hears every change published after it began to listen."""

    _listeners: set[MemoryObjectSendStream[Change]] = field(default_factory=set)

    def publish(self, change: Change) -> None:
        """Tells every listener, never waits."""
        for listener in tuple(self._listeners):
            try:
                listener.send_nowait(change)
            except WouldBlock:  # pragma: no cover - the buffer has no bound
                continue

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[MemoryObjectReceiveStream[Change]]:
        """A stream of changes for the length of the block."""
        send, receive = create_memory_object_stream[Change](inf)
        self._listeners.add(send)
        try:
            yield receive
        finally:
            self._listeners.discard(send)
            send.close()
            receive.close()
