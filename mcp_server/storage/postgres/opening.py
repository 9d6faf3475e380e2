"""Opens a team's memory: the tables, the workspace, and the ports of storage on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from anyio import CancelScope
from anyio.to_thread import run_sync

from mcp_server.embed import Embedder
from mcp_server.storage.files import templates
from mcp_server.storage.postgres.changes import TeamChanges
from mcp_server.storage.postgres.connections import parse
from mcp_server.storage.postgres.database import Database
from mcp_server.storage.postgres.files import TeamFiles
from mcp_server.storage.postgres.history import TeamHistory
from mcp_server.storage.postgres.index import TeamIndex
from mcp_server.storage.postgres.indexing import MakeScan
from mcp_server.storage.postgres.locks import TeamLocks
from mcp_server.storage.postgres.migrate import prepare
from mcp_server.storage.postgres.state import TeamState
from mcp_server.storage.values import Folder


@dataclass(frozen=True, slots=True)
class TeamStorage:
    """The ports of one workspace."""

    database: Database
    disk: Folder
    files: TeamFiles
    state: TeamState
    locks: TeamLocks
    changes: TeamChanges

    def index(self, embedder: Embedder | None, name: str, dimensions: int, scan: MakeScan | None = None) -> TeamIndex:
        """Returns the search index for an embedder, which may be missing. While nothing is indexed, `scan` searches."""
        return TeamIndex(self.database, self.files, embedder, name, dimensions, scan)

    def history(self, clock: Callable[[], datetime]) -> TeamHistory:
        return TeamHistory(self.database, self.files, clock)

    async def create(self, generated: Mapping[str, str]) -> None:
        """Writes the files of a new workspace, in one transaction: the templates, and `generated` files such as the
        settings. Does nothing if all generated files exist."""

        def write() -> None:
            if not all(self.files.exists(path) for path in generated):
                self.files.write_missing({**templates(), **generated})

        async with self.locks.files():
            await run_sync(write)


@asynccontextmanager
async def open_storage(text: str) -> AsyncIterator[TeamStorage]:
    """Opens the workspace of an address, and creates tables and workspace that are missing. Raises Invalid for a
    malformed address, Unavailable if the server does not answer."""
    address = parse(text)
    database = Database(address, await run_sync(prepare, address))
    changes = TeamChanges(database)
    await run_sync(database.open)
    try:
        await changes.start()
        yield TeamStorage(
            database=database,
            disk=Folder(f"the workspace {address.workspace}"),  # members may not know the server's address
            files=TeamFiles(database),
            state=TeamState(database),
            locks=TeamLocks(database, changes.send_all),
            changes=changes,
        )
    finally:
        with CancelScope(shield=True):
            await run_sync(changes.close)
            await run_sync(database.close)
