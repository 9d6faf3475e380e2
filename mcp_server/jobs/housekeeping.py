"""What the maintaining process does once a minute.

Lost state is read back, and what git brought from another machine; silent sessions end, failed commits are repeated,
what crashed writes and old windows left behind (trees without a checkpoint among it) is cleared away, once a day what
was in cold storage for long enough, and what embeddings cost is entered.
"""

from __future__ import annotations

from anyio.to_thread import run_sync

from mcp_server.actions import clarity, closed_sessions, costs, sessions
from mcp_server.actions.checkpoints import checkpoint, noted
from mcp_server.actions.history import came_over
from mcp_server.actions.injecting import sent
from mcp_server.actions.pressure import cold
from mcp_server.actions.watching import topics
from mcp_server.memory import Memory


async def keep_house(memory: Memory) -> None:
    """One round. Doing it again right away changes nothing."""
    await run_sync(memory.files.remove_leftovers)
    await sessions.ready(memory)
    await came_over.take_in(memory)
    await closed_sessions.commit_pending(memory)
    await sent.forget_old(memory)
    await cold.expire(memory)
    await checkpoint.sweep(memory)
    await clarity.forget_old(memory)
    await noted.forget_old(memory)
    await topics.forget_old(memory)
    await costs.enter_embeddings(memory)
    await sessions.close_idle(memory)  # last: it says which transcript is broken by raising
