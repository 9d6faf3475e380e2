"""Sent: what a client's window holds of ours, so that nothing is pushed into it twice.

A window loses it with a compaction, which the client's hooks tell of, or with a turn of the transcript that says so
where no server heard them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from mcp_server.actions import sessions
from mcp_server.memory import Memory

SENT = "sent"
"""Namespace of the state: session → what its window holds of ours (`Window`)."""

KEEP_WINDOWS = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class Window:
    """What a session's window holds of ours, since it began or was last compacted: `lines` are fingerprints, `brief`
    says that a brief is among it, `compacting` that the client has begun to compact. `start` is the number of the
    compaction turn that it began with; `unmarked` that this turn is not recorded yet. `checkpoint` is the id of the one
    that was sent. `printed` is the time (seconds since 1970) of the hook's last report that is counted."""

    lines: frozenset[str] = frozenset()
    brief: bool = False
    compacting: bool = False
    start: int | None = None
    unmarked: bool = False
    at: str = ""
    checkpoint: str = ""
    tokens: int = 0
    """Tokens pushed with prompts so far."""
    printed: float = 0.0


async def window_of(memory: Memory, session: str) -> Window:
    """What the session's window holds of ours; an empty one if nothing is known of it."""
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
    """As `window_of`, of a window that begins with turn number `start` (`sessions.window_start`)."""
    window = await window_of(memory, session)
    if start is not None and (window.start or 0) < start:  # compacted; without `unmarked` nobody has told us
        if window.unmarked:
            return replace(window, start=start, unmarked=False)
        return Window(start=start, at=window.at, printed=window.printed)
    return window


async def keep(memory: Memory, session: str, window: Window) -> None:
    """This is what the session's window holds from now on."""
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
    """The client begins to compact the session's window."""
    await keep(memory, session, replace(await window_of(memory, session), compacting=True))


async def compacted(memory: Memory, session: str) -> None:
    """The client has compacted it: what was sent is gone from it, but for a brief that came right with it."""
    window = await window_of(memory, session)
    if window.compacting:
        await keep(memory, session, await emptied(memory, session, window))


async def emptied(memory: Memory, session: str, window: Window) -> Window:
    """The window after a compaction, whose turn may or may not be recorded by now; the same one, if this compaction
    was told of before."""
    row = await sessions.current_row(memory, session)
    start = await sessions.window_start(memory, row) if row else None
    if window.at and not window.compacting and start == window.start:
        return window
    return Window(start=start, unmarked=start == window.start, at=window.at, printed=window.printed)


async def forget_old(memory: Memory) -> int:
    """Removes what is known of windows that nothing was sent to for two months; returns how many."""
    oldest = memory.clock() - KEEP_WINDOWS
    removed = 0
    for session, stored in (await memory.state.entries(SENT)).items():
        with contextlib.suppress(LookupError, TypeError, ValueError):
            if datetime.fromisoformat(stored["at"]) >= oldest:
                continue
        await memory.state.remove(SENT, session)
        removed += 1
    return removed
