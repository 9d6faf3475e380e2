"""What the maintaining process extracts: conversations that were closed, a look twice a minute."""

from __future__ import annotations

import logging

import anyio

from mcp_server.actions.extract import extract_pending
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
REST = 3.0
"""After each conversation it rests so many times as long as that took: after an import of many, whoever asks comes
first."""


async def keep_extracted(memory: Memory) -> None:
    """Makes knowledge of closed conversations until it is cancelled; what a crash leaves, the next process does."""
    while True:
        try:
            if memory.settings.lifecycle.extraction_trigger == "on_session_end":
                await extract_pending(memory, REST)
        except ContextManagerError as error:  # a full disk, a locked file: the next look may go better
            log.warning("making knowledge of closed conversations failed: %s", error)
        await anyio.sleep(LOOK_SECONDS)
