"""Lets an LLM look over what rules have made, off the path of every turn; whatever process made it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from mcp_server.checkpoints.enrich import enrich_all
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.pressure.reword import reword_all
from mcp_server.storage.checkpoint_files import FOLDER
from mcp_server.storage.values import Change

log = logging.getLogger(__name__)


async def keep_enriching(memory: Memory) -> None:
    """New checkpoints, until it is cancelled."""
    await _keep(memory, enrich_all, lambda one: one.kind == "file" and (one.path or FOLDER).startswith(FOLDER))


async def keep_rewording(memory: Memory) -> None:
    """Summaries of compactions, until it is cancelled."""
    await _keep(memory, reword_all, lambda one: one.kind == "session")


async def _keep(memory: Memory, ask: Callable[[Memory], Awaitable[int]], concerns: Callable[[Change], bool]) -> None:
    async with memory.changes.listen() as heard:
        while True:
            try:
                await ask(memory)
            except ContextManagerError as error:
                log.warning("asking the LLM failed: %s", error)
            while not concerns(await heard.receive()):
                pass
