"""The housekeeping of the maintaining process, once a minute.

It restores lost state, reads transcripts that git brought, ends idle sessions, retries failed commits, deletes
leftovers of crashed writes, trees without a checkpoint and data of old sessions, and records the costs of embeddings.
Once a day it deletes expired cold records.
"""

from __future__ import annotations

from anyio.to_thread import run_sync

from mcp_server.checkpoints import checkpoint
from mcp_server.context import windows
from mcp_server.conversations import closed_sessions, sessions
from mcp_server.history import sync
from mcp_server.knowledge import session_notes
from mcp_server.llm import metered
from mcp_server.memory import Memory
from mcp_server.pressure import cold
from mcp_server.relevance import clarity
from mcp_server.topics import listing


async def keep_house(memory: Memory) -> None:
    """Runs one round. A second round right after it changes nothing."""
    await run_sync(memory.files.remove_leftovers)
    await sessions.ready(memory)
    await sync.take_in(memory)
    await closed_sessions.commit_pending(memory)
    await windows.forget_old(memory)
    await cold.expire(memory)
    await checkpoint.sweep(memory)
    await clarity.forget_old(memory)
    await session_notes.forget_old(memory)
    await listing.forget_old(memory)
    await metered.enter_embeddings(memory)
    await sessions.close_idle(memory)  # last: it raises if a transcript is broken
