"""A session that was wound back to an earlier turn is shown as it was then, until the next message arrives.

The later turns stay in the transcript; only views leave them out. The state stores how many turns there were at that
time, so that a new turn ends it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mcp_server.memory import Memory
from mcp_server.storage.values import SessionRow

NAMESPACE = "as_of"
"""Namespace of the state: session → the last visible turn, and the number of turns when it was wound back."""


async def as_of(memory: Memory, session: str) -> int | None:
    """Returns the number of the last visible turn of a session; None if all turns are visible."""
    stored = await memory.state.get(NAMESPACE, session)
    return last_visible(stored, await memory.state.session(session)) if stored else None


def last_visible(stored: object, row: SessionRow | None) -> int | None:
    """Returns the number of a session's last visible turn from the stored value; None if all turns are visible."""
    if row is None or not isinstance(stored, Mapping) or row.turns > int(stored["until"]):
        return None
    return int(stored["turn"])


def entry(turn: int, until: int) -> dict[str, int]:
    """Returns the stored value for a session with `until` turns that was wound back to turn number `turn`."""
    return {"turn": turn, "until": until}


def wound_back(seen: int, turns: int) -> str:
    """Returns a sentence about the hidden turns after number `seen`."""
    hidden = f"turn {turns} is" if turns == seen + 1 else f"turns {seen + 1} to {turns} are"
    until = "until the next message, and cold from then on"
    return f"this conversation was wound back to turn {seen}: {hidden} hidden {until}"
