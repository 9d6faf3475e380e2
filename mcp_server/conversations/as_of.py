"""As of: a session that was wound back is seen as it was after an earlier turn, until the next message arrives.

The later turns stay where they are, in the transcript; only views leave them out. Nothing has to end this: it holds as
long as no turn came after those that were there when it began.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_server.memory import Memory

NAMESPACE = "as_of"
"""Namespace of the state: session → the last turn that is seen, and how many there were when that began."""


async def as_of(memory: Memory, session: str) -> int | None:
    """The number of the last turn of a session that views show; None if they show all of it."""
    stored = await memory.state.get(NAMESPACE, session)
    if not isinstance(stored, Mapping):
        return None
    row = await memory.state.session(session)
    return int(stored["turn"]) if row is not None and row.turns <= int(stored["until"]) else None


def entry(turn: int, until: int) -> dict[str, int]:
    """What is stored for a session with `until` turns that is to be seen as it was after turn number `turn`."""
    return {"turn": turn, "until": until}


def wound_back(seen: int, turns: int) -> str:
    """What is to be known of a session whose turns after number `seen` are hidden."""
    hidden = f"turn {turns} is" if turns == seen + 1 else f"turns {seen + 1} to {turns} are"
    until = "until the next message, and cold from then on"
    return f"this conversation was wound back to turn {seen}: {hidden} hidden {until}"
