"""What waits for an LLM until there is time: asked about once, by one process, off the path of every turn.

The waiting stands in the state, so that it outlasts a crash and any process can have put it there.
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
    """Asks about every entry of `queue`, a namespace of the state, by its key and value; returns how many `ask` has
    changed. What got no answer, or is gone by now (NotFound), is not asked about again.

    Nothing happens without an LLM, or while another process is at it: each answer costs.
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
