"""Rewrites the briefs shortly after their sources changed."""

from __future__ import annotations

import logging

import anyio

from mcp_server.context import briefs
from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError
from mcp_server.jobs.maintainer import next_burst
from mcp_server.memory import Memory
from mcp_server.storage.values import Change

log = logging.getLogger(__name__)

QUIET_SECONDS = 2.0
"""Seconds without a change after which the briefs are rewritten …"""

BURST_SECONDS = 15.0
"""… and the longest wait for such a pause."""

LOOK_SECONDS = 600.0
"""Seconds after which the briefs are rewritten without a change: a day ends, a pause runs out."""

SOURCES = ("knowledge/identity", "knowledge/memory", "knowledge/journal", "knowledge/projects", "knowledge/reference")


async def keep_briefs(memory: Memory) -> None:
    """Rewrites the briefs after each burst of changes, until it is cancelled. Logs failures."""
    async with memory.changes.listen() as changes:
        while True:
            try:
                await sessions.ready(memory)
                await briefs.refresh(memory)
            except ContextManagerError as error:
                log.warning("a brief could not be written: %s", error)
            with anyio.move_on_after(LOOK_SECONDS):
                await next_burst(changes, concerns, QUIET_SECONDS, BURST_SECONDS)


def concerns(change: Change) -> bool:
    """Returns whether a brief may be different after this change."""
    if change.kind == "file":
        return change.path is None or change.path.startswith(SOURCES)
    return change.kind == "session"  # a pause, a project of another name
