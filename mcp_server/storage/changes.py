"""Change notices within this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from anyio import create_memory_object_stream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from mcp_server.storage.values import Change

Listener = MemoryObjectReceiveStream[Change]
"""A stream of changes. `receive_nowait` raises anyio.WouldBlock if there is none."""

MOST_FRESH = 1_000
"""Changed files that are remembered; beyond that the oldest are dropped."""


@dataclass(slots=True)
class Changes:
    """A fan-out: every listener gets every change that is published after it began to listen.

    `indexed` is True while some process indexes changes; only then is it worth waiting for the index.
    """

    indexed: bool = False
    _listeners: set[MemoryObjectSendStream[Change]] = field(default_factory=set)
    _fresh: dict[str, int] = field(default_factory=dict)
    _published: int = 0

    @property
    def fresh(self) -> Mapping[str, int]:
        """Returns the changed files that searches may not see yet, with the numbers that `settled` expects."""
        return dict(self._fresh)

    def settled(self, seen: Mapping[str, int]) -> None:
        """Removes these files from `fresh`, unless they changed since: searches see them."""
        for path, number in seen.items():
            if self._fresh.get(path) == number:
                del self._fresh[path]

    def publish(self, change: Change) -> None:
        """Sends a change to every listener. Never waits."""
        if change.path is not None and self.indexed:
            self._published += 1
            self._fresh.pop(change.path, None)
            self._fresh[change.path] = self._published
            if len(self._fresh) > MOST_FRESH:
                del self._fresh[next(iter(self._fresh))]
        for listener in tuple(self._listeners):
            listener.send_nowait(change)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Listener]:
        """Yields a stream of the changes that are published during the block."""
        send, receive = create_memory_object_stream[Change](inf)
        self._listeners.add(send)
        try:
            yield receive
        finally:
            self._listeners.discard(send)
            send.close()
            receive.close()
