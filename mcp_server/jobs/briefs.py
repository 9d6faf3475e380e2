"""Keeps the briefs ready: rewritten when what they are made of changes, a little after it did."""

from __future__ import annotations

import logging

import anyio

from mcp_server.context import briefs
from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.storage.values import Change

log = logging.getLogger(__name__)

QUIET_SECONDS = 2.0
"""A burst of changes is written down once, when nothing more came for so long …"""

BURST_SECONDS = 15.0
"""… and at the latest after this."""

LOOK_SECONDS = 600.0
"""How often they are looked at anyway: a day ends, a pause runs out."""

SOURCES = ("knowledge/identity", "knowledge/memory", "knowledge/journal", "knowledge/projects", "knowledge/reference")


async def keep_briefs(memory: Memory) -> None:
    """Until it is cancelled. What fails is said once and tried again with the next change."""
    async with memory.changes.listen() as heard:
        while True:
            try:
                await sessions.ready(memory)
                await briefs.refresh(memory)
            except ContextManagerError as error:
                log.warning("a brief could not be written: %s", error)
            with anyio.move_on_after(LOOK_SECONDS):
                while not concerns(await heard.receive()):
                    pass
                with anyio.move_on_after(BURST_SECONDS):
                    while True:
                        with anyio.move_on_after(QUIET_SECONDS) as silence:
                            await heard.receive()
                        if silence.cancelled_caught:
                            break


def concerns(change: Change) -> bool:
    """May a brief say something else after this change?"""
    if change.kind == "file":
        return change.path is None or change.path.startswith(SOURCES)
    return change.kind == "session"  # a pause, a project of another name
