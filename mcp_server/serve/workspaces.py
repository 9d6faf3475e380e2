"""The workspaces of a team that this process has open: each from its first call until nobody uses it for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from mcp_server.serve import measures
from mcp_server.serve.server import Opening, Subscriptions

if TYPE_CHECKING:
    from mcp_server.memory import Memory

IDLE_SECONDS = 300.0
"""Seconds after which a workspace that nobody uses is closed in this process."""

MOST_OPEN = 32
"""Workspaces that one process keeps open if nobody uses them. Each has connections and threads of its own."""


@dataclass(slots=True, eq=False)
class Workspace:
    """A workspace that this process serves. `users` counts the calls that use it now."""

    name: str
    opening: Opening
    subscriptions: Subscriptions
    users: int = 0
    since: float = 0.0
    """The time of the last use."""


class Workspaces:
    """The workspaces that this process serves. They open when they are needed, and close when nobody uses them."""

    def __init__(self, enter: Callable[[str], AbstractAsyncContextManager[Memory]]) -> None:
        self._enter = enter
        self._all: dict[str, Workspace] = {}
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Opens and closes workspaces during the block."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._close_idle)
            try:
                yield
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as closing:
                        for one in self._all.values():
                            closing.start_soon(one.opening.close)
                tasks.cancel_scope.cancel()

    def hold(self, name: str) -> Workspace:
        """Returns a workspace that stays open until `release`."""
        one = self._all.get(name)
        if one is None:
            assert self._tasks is not None
            subscriptions = Subscriptions()

            async def work(memory: Memory) -> None:
                async with memory.changes.listen() as changes:
                    await subscriptions.follow(changes)

            one = self._all[name] = Workspace(name, Opening(lambda: self._enter(name), work), subscriptions)
            measures.OPEN.set(len(self._all))
            self._tasks.start_soon(one.opening.run)
        one.users += 1
        return one

    def release(self, one: Workspace) -> None:
        """Allows a workspace to close when nobody else uses it."""
        one.users -= 1
        one.since = anyio.current_time()

    async def _close_idle(self) -> None:
        while True:
            await anyio.sleep(1)
            idle = sorted((one for one in self._all.values() if not one.users), key=lambda one: one.since)
            late = [one for one in idle if one.since < anyio.current_time() - IDLE_SECONDS]
            for one in late or idle[: max(0, len(self._all) - MOST_OPEN)]:
                del self._all[one.name]
                measures.OPEN.set(len(self._all))
                assert self._tasks is not None
                self._tasks.start_soon(one.opening.close)
