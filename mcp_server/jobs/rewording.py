"""Lets an LLM word the summaries of compactions, off the path of every turn; whatever process compacted."""

from __future__ import annotations

import logging

from mcp_server.actions.reword import reword_all
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory

log = logging.getLogger(__name__)


async def keep_rewording(memory: Memory) -> None:
    """Until it is cancelled."""
    async with memory.changes.listen() as heard:
        while True:
            try:
                await reword_all(memory)
            except ContextManagerError as error:
                log.warning("summaries were not worded: %s", error)
            while (await heard.receive()).kind != "session":
                pass
