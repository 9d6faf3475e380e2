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
from mcp_server.jobs import child
from mcp_server.knowledge import live
from mcp_server.knowledge.extract import extract_pending, is_waiting, queue_outdated
from mcp_server.memory import Memory

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
REST = 3.0
"""Where no child can be started it rests, after each conversation, so many times as long as that took: after an import
of many, whoever asks comes first."""


QUIET_SECONDS = 1.0
"""Open conversations are read when no turn came for this long …"""

BURST_SECONDS = 10.0
"""… and at the latest after this."""

LAST_SECONDS = 5.0
"""The last reading may delay the end of the process for this long."""


async def keep_live(memory: Memory) -> None:
    """Keeps the items of open conversations on their pages until it is cancelled; then reads what was said last, so
    that the next window knows it, and brings the briefs up to date."""
    async with memory.changes.listen() as heard:
        try:
            while True:
                began = perf_counter()
                await _refresh(memory)
                await anyio.sleep(REST * (perf_counter() - began))
                while (await heard.receive()).kind not in ("turn", "session"):
                    pass
                with anyio.move_on_after(BURST_SECONDS):
                    while True:
                        with anyio.move_on_after(QUIET_SECONDS) as silence:
                            await heard.receive()
                        if silence.cancelled_caught:
                            break
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(LAST_SECONDS):
                if await _refresh(memory):
                    await briefs.refresh(memory)


async def _refresh(memory: Memory) -> int:
    try:
        await sessions.ready(memory)
        return await live.refresh(memory)
    except ContextManagerError as error:  # a full disk, a locked file: the next turn tries again
        log.warning("the items of open conversations could not be written: %s", error)
        return 0


async def keep_extracted(memory: Memory, environ: Mapping[str, str] | None = None) -> None:
    """Makes knowledge of closed conversations until it is cancelled; what a crash leaves, the next process does.

    First it queues what an earlier version of the extractors read: each conversation is read anew once.

    With `environ`, where the settings of `memory` come from too, a child process does it; without, this one.
    """
    is_queued = False
    while True:
        try:
            is_queued = is_queued or await queue_outdated(memory) >= 0
            if memory.settings.lifecycle.extraction_trigger == "on_session_end" and await is_waiting(memory):
                aside = environ is not None and await child.run("knowledge", memory.disk.root, environ)
                if not aside:
                    await extract_pending(memory, REST)
        except ContextManagerError as error:  # a full disk, a locked file: the next look may go better
            log.warning("making knowledge of closed conversations failed: %s", error)
        await anyio.sleep(LOOK_SECONDS)
