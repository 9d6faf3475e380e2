"""Lets an LLM look over new checkpoints, off the path of every turn; whatever process made them."""

from __future__ import annotations

import logging

from mcp_server.actions.enrich import enrich_all
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.store.checkpoint_files import FOLDER

log = logging.getLogger(__name__)


async def keep_enriching(memory: Memory) -> None:
    """Until it is cancelled."""
    async with memory.changes.listen() as heard:
        while True:
            try:
                await enrich_all(memory)
            except ContextManagerError as error:
                log.warning("checkpoints were not enriched: %s", error)
            while not ((change := await heard.receive()).kind == "file" and (change.path or FOLDER).startswith(FOLDER)):
                pass
