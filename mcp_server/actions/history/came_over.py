"""Reads transcripts that git brought from another machine into the state."""

from __future__ import annotations

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory


async def take_in(memory: Memory) -> int:
    """Reads transcripts that the state does not know yet and returns how many. `status` names unreadable ones."""
    known = {row.path for row in await memory.state.sessions()}
    taken = 0
    for path in await run_sync(lambda: sorted(set(memory.transcripts.all()) - known)):
        try:
            session = await run_sync(memory.transcripts.session_of, path)
            async with memory.locks.transcript(session):
                row = await memory.state.session(session)
                if row is not None and row.status == "open":
                    continue  # it is open here; after it is closed, the later of both transcripts is current
                if row is not None and (await run_sync(memory.transcripts.find, session))[-1] == row.path:
                    continue  # an earlier transcript of the session
                await sessions.restore(memory, path)
        except ContextManagerError:
            continue
        taken += 1
    return taken
