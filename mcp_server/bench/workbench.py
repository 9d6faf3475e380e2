"""What the measurements need from outside: temporary workspaces, opened as every command opens its own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from mcp_server.memory import Memory
from mcp_server.model import Caller

ASKER = Caller(source="bench", client="bench", explicit_sessions=True)
"""Asks without a session, from no folder: sees what is global, which is what was imported without a project."""

Show = Callable[[float, float, str], None]
"""Called with (done, total, label)."""


def unseen(done: float, total: float, label: str = "") -> None:
    """For callers who show no progress."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """`open(folder, overrides)` opens a workspace with `CONTEXT_MANAGER_…` variables set; `catch_up` indexes it.

    `maintain` does what a server does beside answering: it watches the files and keeps the index up to date.
    """

    open: Callable[[Path, Mapping[str, str]], AbstractAsyncContextManager[Memory]]
    catch_up: Callable[[Memory], Awaitable[object]]
    maintain: Callable[[Memory], AbstractAsyncContextManager[object]]
    show: Show = unseen

    @asynccontextmanager
    async def temporary(self, overrides: Mapping[str, str] | None = None) -> AsyncIterator[tuple[Memory, Path]]:
        """A workspace made from nothing, and its folder; both are gone afterwards."""
        with temporary_folder() as folder:
            async with self.open(folder / "workspace", overrides or {}) as memory:
                yield memory, folder / "workspace"
            await anyio.lowlevel.checkpoint()


class temporary_folder(tempfile.TemporaryDirectory[str]):
    """A temporary folder as a path; sealed transcripts (mode 0444) go with it."""

    def __init__(self) -> None:
        super().__init__(prefix="context-manager-", ignore_cleanup_errors=True)

    def __enter__(self) -> Path:  # type: ignore[override]  # a path is what everybody here wants
        return Path(super().__enter__())
