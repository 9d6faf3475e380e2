"""Windows: which session a client's window is in, as its hooks last said (SPEC §2 "Which session").

Hooks reach the process that maintains the workspace; the server that belongs to the window may be another one. So it
stands in the state, where every server can ask.
"""

from __future__ import annotations

from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.memory import Memory

WINDOWS = "windows"


async def session_in(memory: Memory, window: str) -> str | None:
    """The session that the window is in; None if its hooks have said nothing yet."""
    session = await memory.state.get(WINDOWS, window)
    return session if isinstance(session, str) else None


async def enter(memory: Memory, window: str, session: str) -> None:
    """The window is in this session now."""
    if await session_in(memory, window) != session:
        await memory.state.put(WINDOWS, window, session)


async def forget_closed(memory: Memory) -> None:
    """Drops windows that are gone: a client names its window by a file that exists as long as the window does."""
    for window in await memory.state.entries(WINDOWS):
        if not await run_sync(_is_there, window):
            await memory.state.remove(WINDOWS, window)


def _is_there(window: str) -> bool:
    """True if in doubt. A named pipe of Windows is no file: looking at it would open it."""
    try:
        return window.startswith("\\\\.\\pipe\\") or Path(window).exists()
    except OSError:
        return True
