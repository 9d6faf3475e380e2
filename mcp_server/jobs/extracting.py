"""Extraction in the maintaining process: closed conversations twice a minute, and the items of open conversations.

An exchange of an open conversation is read a moment after it ended, off the path of `observe`. The pages that this
changes are committed with everything else, every `lifecycle.commit_interval_minutes`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import perf_counter

import anyio

from mcp_server.context import briefs
from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError
from mcp_server.jobs import worker
from mcp_server.jobs.maintainer import next_burst
from mcp_server.knowledge import extract
from mcp_server.knowledge.extract import extract_pending, is_waiting, queue_outdated
from mcp_server.memory import Memory
from mcp_server.storage.values import Change

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
REST = 3.0
"""In this process (no child can be started), the pause after a conversation, as a multiple of the time it took: calls
come first."""

QUIET_SECONDS = 2.0
"""Seconds without a change after which open conversations are read …"""

BURST_SECONDS = 10.0
"""… and the longest wait for such a pause."""

LAST_SECONDS = 5.0
"""Most seconds by which the last reading may delay the end of the process."""


async def keep_live(memory: Memory) -> None:
    """Writes the items of open conversations to their pages until it is cancelled; then reads the last turns, so that
    the next window knows them, and updates the briefs."""
    async with memory.changes.listen() as changes:
        try:
            while True:
                began = perf_counter()
                await _refresh(memory)
                await anyio.sleep(REST * (perf_counter() - began))
                await next_burst(changes, _adds_turns, QUIET_SECONDS, BURST_SECONDS)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_SECONDS):
                if await _refresh(memory):
                    await briefs.refresh(memory)


def _adds_turns(change: Change) -> bool:
    return change.kind in ("turn", "session")


async def _refresh(memory: Memory) -> int:
    try:
        await sessions.ready(memory)
        return await extract.refresh(memory)
    except ContextManagerError as error:  # a full disk, a locked file: the next turn tries again
        log.warning("the items of open conversations could not be written: %s", error)
        return 0


async def keep_extracted(memory: Memory, environ: Mapping[str, str] | None = None) -> None:
    """Makes knowledge of closed conversations until it is cancelled. The next process continues after a crash.

    First it queues the conversations that an earlier version of the extractors read. With the `environ` of
    `open_memory` a child process does the work, otherwise this one.
    """
    is_queued = False
    while True:
        try:
            is_queued = is_queued or await queue_outdated(memory) >= 0
            if memory.settings.lifecycle.extraction_trigger == "on_session_end" and await is_waiting(memory):
                aside = environ is not None and await worker.run("knowledge", memory.disk.root, environ)
                if not aside:
                    await extract_pending(memory, REST)
        except ContextManagerError as error:  # a full disk, a locked file: the next look may go better
            log.warning("making knowledge of closed conversations failed: %s", error)
        await anyio.sleep(LOOK_SECONDS)
