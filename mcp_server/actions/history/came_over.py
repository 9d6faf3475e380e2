"""Came over: conversations that nobody here wrote; git brought them from another machine."""

from __future__ import annotations

from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory


async def take_in(memory: Memory) -> int:
    """Reads the transcripts that nobody here wrote (another machine's, that git brought) into the state; returns how
    many. One that cannot be read is left to `status`."""
    known = {row.path for row in await memory.state.sessions()}
    taken = 0
    for path in await run_sync(lambda: sorted(set(memory.transcripts.all()) - known)):
        try:
            session = await run_sync(memory.transcripts.session_of, path)
            async with memory.locks.transcript(session):
                row = await memory.state.session(session)
                if row is not None and row.status == "open":
                    continue  # it goes on here; once it is closed, the later of both is the current one
                if row is not None and (await run_sync(memory.transcripts.find, session))[-1] == row.path:
                    continue  # an earlier part of it
                await sessions.restore(memory, path)
        except ContextManagerError:
            continue
        taken += 1
    return taken
