"""Queues of work for an LLM, each entry done once, by one process, outside of every turn.

A queue is a namespace of the state, so that it survives a crash and every process can add to it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.memory import Memory

log = logging.getLogger(__name__)


async def work_off(memory: Memory, queue: str, ask: Callable[[str, Any], Awaitable[bool]]) -> int:
    """Calls `ask` with the key and value of every entry of `queue`, and returns how many it changed. An entry without
    an answer, or that no longer exists (NotFound), is dropped.

    Does nothing without an LLM, or while another process works on the queue: each answer costs money.
    """
    waiting = await memory.state.entries(queue) if memory.llm is not None else {}
    held = await run_sync(memory.locks.try_exclusive, queue) if waiting else None
    if held is None:
        return 0
    changed = 0
    try:
        for key, value in waiting.items():
            try:
                changed += await ask(key, value)
            except NotFound:
                pass
            except ContextManagerError as error:
                log.warning("%s %s failed: %s", queue, key, error)
            await memory.state.remove(queue, key)
    finally:
        held.release()
    return changed
