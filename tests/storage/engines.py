"""Both implementations of the ports of storage, for tests that hold for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.embed import Embedder
from mcp_server.storage import ports
from mcp_server.storage.files import Files
from mcp_server.storage.live_sets import LiveSets
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.git.git import Git
from mcp_server.storage.local.index.index import Index
from mcp_server.storage.local.locks import Locks
from mcp_server.storage.local.state import LocalState
from mcp_server.storage.state import State
from mcp_server.storage.values import Changes
from tests.postgres import server


@dataclass(frozen=True)
class Ports:
    """The ports of one workspace, as one process has them."""

    files: Files
    locks: ports.Locks
    state: State
    live: LiveSets
    changes: Changes
    history: ports.History
    index: Callable[[Embedder | None], ports.Index]


_numbers = count(1)


@cache
def _database() -> str:
    return server().new_database()


Opened = Callable[[], AbstractAsyncContextManager[Ports]]
"""Opens the workspace of the test; a second call opens it as a second process would."""


def local(folder: Path) -> Opened:
    """Returns what opens a workspace in a folder."""
    folder.mkdir(exist_ok=True)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Ports]:
        files = WorkspaceFiles(folder)
        locks = Locks(files.local)
        state = await LocalState.open(files.local / "state.db", locks)
        made: list[Index] = []

        def index(embedder: Embedder | None) -> Index:
            made.append(Index(files, locks, files.local / "index", embedder))
            return made[-1]

        try:
            history = Git(folder, lambda: datetime.now(UTC), files)
            yield Ports(files, locks, state, LiveSets(state), Changes(), history, index)
        finally:
            for one in made:
                await one.close()
            await state.close()

    return opened


def postgres() -> Opened:
    """Returns what opens a new workspace, in one database for all tests."""
    address = f"{_database()}&workspace=w{next(_numbers)}"

    @asynccontextmanager
    async def opened() -> AsyncIterator[Ports]:
        from mcp_server.storage.postgres.opening import open_storage

        async with open_storage(address) as storage:
            history = await run_sync(storage.history, lambda: datetime.now(UTC))
            yield Ports(
                storage.files,
                storage.locks,
                storage.state,
                LiveSets(storage.state),
                storage.changes,
                history,
                lambda embedder: storage.index(embedder, embedder.name if embedder else "none", 0),
            )

    return opened
