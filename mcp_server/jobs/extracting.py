"""What the maintaining process has extracted: conversations that were closed, a look twice a minute."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import anyio

from mcp_server.actions.lifecycle.extract import extract_pending, is_waiting
from mcp_server.errors import ContextManagerError
from mcp_server.jobs import child
from mcp_server.memory import Memory

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
REST = 3.0
"""Where no child can be started it rests, after each conversation, so many times as long as that took: after an import
of many, whoever asks comes first."""


async def keep_extracted(memory: Memory, environ: Mapping[str, str] | None = None) -> None:
    """Makes knowledge of closed conversations until it is cancelled; what a crash leaves, the next process does.

    With `environ`, where the settings of `memory` come from too, a child process does it; without, this one.
    """
    while True:
        try:
            if memory.settings.lifecycle.extraction_trigger == "on_session_end" and await is_waiting(memory):
                aside = environ is not None and await child.run("knowledge", memory.files.root, environ)
                if not aside:
                    await extract_pending(memory, REST)
        except ContextManagerError as error:  # a full disk, a locked file: the next look may go better
            log.warning("making knowledge of closed conversations failed: %s", error)
        await anyio.sleep(LOOK_SECONDS)
