"""Mirrors: what has to be said wherever pruning is told of, since most clients keep their own window."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_server.core.pressure.words import OF_MIRRORS
from mcp_server.memory import Memory


async def mirror_note(memory: Memory, sessions: Iterable[str]) -> str:
    """The sentence for a report about these conversations; "" where each is sent just as we compile it."""
    ours = {row.session for row in await memory.state.sessions() if row.delivery == "replace"}
    return "" if set(sessions) <= ours else OF_MIRRORS
