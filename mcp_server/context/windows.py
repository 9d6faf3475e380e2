"""The windows of clients: the session that each is in, and which of our texts it holds, so that none is pushed twice.

Hooks report a window's session to the process that maintains the workspace, but another process may serve the window,
so the state stores it. A compaction removes our texts from a window. The client's hooks report it; if no server was
running, the transcript has a compaction turn.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.memory import Memory

WINDOWS = "windows"
"""Namespace of the state: window → its session."""


async def session_in(memory: Memory, window: str) -> str | None:
    """Returns the window's session; None if its hooks have not reported one yet."""
    session = await memory.state.get(WINDOWS, window)
    return session if isinstance(session, str) else None


async def enter(memory: Memory, window: str, session: str) -> None:
    """Stores the window's session."""
    if await session_in(memory, window) != session:
        await memory.state.put(WINDOWS, window, session)


async def forget_closed(memory: Memory) -> None:
    """Removes closed windows. A window's name is the path of a file that exists as long as the window."""
    for window in await memory.state.entries(WINDOWS):
        if not await run_sync(_is_there, window):
            await memory.state.remove(WINDOWS, window)


def _is_there(window: str) -> bool:
    """Returns True if in doubt. A named pipe of Windows is not checked, because that would open it."""
    try:
        return window.startswith("\\\\.\\pipe\\") or Path(window).exists()
    except OSError:
        return True


SENT = "sent"
"""Namespace of the state: session → its `Window`."""

KEEP_WINDOWS = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class Window:
    """The texts of ours in a session's window since it began or was last compacted.

    `lines` are fingerprints of the texts' lines. `brief`: it holds a brief. `compacting`: the client has begun to
    compact. `start` is the number of the compaction turn that the window begins with; `unmarked`: that turn is not
    recorded yet. `checkpoint` is the id of the checkpoint that was sent, `tokens` counts those pushed with prompts.
    `printed` is the time, in seconds since 1970, of the hook's last report that was counted.
    """

    lines: frozenset[str] = frozenset()
    brief: bool = False
    compacting: bool = False
    start: int | None = None
    unmarked: bool = False
    at: str = ""
    checkpoint: str = ""
    tokens: int = 0
    printed: float = 0.0


async def window_of(memory: Memory, session: str) -> Window:
    """Returns the session's window; an empty one if nothing is known of it."""
    stored = await memory.state.get(SENT, session)
    if not isinstance(stored, dict):
        return Window()
    start = stored.get("start")
    return Window(
        lines=frozenset(str(mark) for mark in stored.get("lines", ())),
        brief=stored.get("brief") is True,
        compacting=stored.get("compacting") is True,
        start=start if isinstance(start, int) else None,
        unmarked=stored.get("unmarked") is True,
        at=str(stored.get("at", "")),
        checkpoint=str(stored.get("checkpoint", "")),
        tokens=int(stored.get("tokens", 0)),
        printed=float(stored.get("printed", 0.0)),
    )


async def window_from(memory: Memory, session: str, start: int | None) -> Window:
    """Returns the session's window if it still begins with turn number `start` (`sessions.window_start`), else a new
    one."""
    window = await window_of(memory, session)
    if start is not None and (window.start or 0) < start:  # compacted; without `unmarked` no hook reported it
        if window.unmarked:
            return replace(window, start=start, unmarked=False)
        return Window(start=start, at=window.at, printed=window.printed)
    return window


async def keep(memory: Memory, session: str, window: Window) -> None:
    """Stores the session's window."""
    stored = {
        "lines": sorted(window.lines),
        "brief": window.brief,
        "compacting": window.compacting,
        "start": window.start,
        "unmarked": window.unmarked,
        "checkpoint": window.checkpoint,
        "tokens": window.tokens,
        "printed": window.printed,
        "at": memory.clock().isoformat(),
    }
    await memory.state.put(SENT, session, stored)


async def compacting(memory: Memory, session: str) -> None:
    """Stores that the client has begun to compact the session's window."""
    await keep(memory, session, replace(await window_of(memory, session), compacting=True))


async def compacted(memory: Memory, session: str) -> None:
    """Empties the session's window after a compaction, unless the brief that followed it has done so."""
    window = await window_of(memory, session)
    if window.compacting:
        await keep(memory, session, await emptied(memory, session, window))


async def emptied(memory: Memory, session: str, window: Window) -> Window:
    """Returns the window after a compaction, or the same window if this compaction was reported before.

    The compaction's turn may not be recorded yet.
    """
    row = await sessions.current_row(memory, session)
    start = await sessions.window_start(memory, row) if row else None
    if window.at and not window.compacting and start == window.start:
        return window
    return Window(start=start, unmarked=start == window.start, at=window.at, printed=window.printed)


async def forget_old(memory: Memory) -> int:
    """Removes windows that nothing was sent to for two months and returns how many."""
    oldest = memory.clock() - KEEP_WINDOWS
    removed = 0
    for session, stored in (await memory.state.entries(SENT)).items():
        with contextlib.suppress(LookupError, TypeError, ValueError):
            if datetime.fromisoformat(stored["at"]) >= oldest:
                continue
        await memory.state.remove(SENT, session)
        removed += 1
    return removed
