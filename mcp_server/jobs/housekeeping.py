"""What a running server does now and then: reads lost state back, ends silent sessions, repeats commits that failed."""

from __future__ import annotations

import logging

import anyio

from mcp_server.actions import sessions
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory

logger = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between two rounds."""


async def run(memory: Memory) -> None:
    """Runs until it is cancelled. A round that fails is told to the log and tried again."""
    while True:
        try:
            await sessions.ready(memory)
            for session in await sessions.close_idle(memory):
                logger.info("session %s was silent and is closed", session)
            await sessions.commit_pending(memory)
        except ContextManagerError as error:
            logger.warning("housekeeping: %s", error)
        await anyio.sleep(EVERY)
