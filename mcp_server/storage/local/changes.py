"""What changed in the workspace, told to whoever listens in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
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


MOST_FRESH = 1_000


@dataclass(slots=True)
class Changes:
    """A fan-out: every listener hears every change published after it began to listen.

    `indexed` says that a process, this one or another, indexes what changes; only then is it worth waiting for.
    """

    indexed: bool = False
    _listeners: set[MemoryObjectSendStream[Change]] = field(default_factory=set)
    _fresh: dict[str, int] = field(default_factory=dict)
    _published: int = 0

    @property
    def fresh(self) -> Mapping[str, int]:
        """The files that changed and that searches may not see yet; the numbers are for `settled`."""
        return dict(self._fresh)

    def settled(self, seen: Mapping[str, int]) -> None:
        """Searches see these files of `fresh` as they were then: those that have not changed since are dropped."""
        for path, number in seen.items():
            if self._fresh.get(path) == number:
                del self._fresh[path]

    def publish(self, change: Change) -> None:
        """Tells every listener, never waits."""
        if change.path is not None and self.indexed:
            self._published += 1
            self._fresh.pop(change.path, None)
            self._fresh[change.path] = self._published
            if len(self._fresh) > MOST_FRESH:
                del self._fresh[next(iter(self._fresh))]
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
