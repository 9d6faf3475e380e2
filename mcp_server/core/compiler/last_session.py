"""What the last conversation of the project was about: its title, its date and its last exchanges, in short.

It is what "where were we?" gets at the beginning of another one. Newest turns come in first, each cut to its beginning
and end: what it is about, and what was done.
"""

from __future__ import annotations

from mcp_server.core.compiler.budget import Room
from mcp_server.core.compiler.cut import LEFT_OUT, head_and_tail
from mcp_server.core.compiler.inputs import LastSession
from mcp_server.core.compiler.receipt import Considered
from mcp_server.core.compiler.render import SEPARATOR, label, one_line, said, speaker
from mcp_server.core.compiler.section import NOTHING, Filling, Section, Slot
from mcp_server.core.model import Turn

LONGEST_TURN = 70
"""Tokens that are shown of one turn."""

REACH = 8 * LONGEST_TURN
"""Characters at either end of a turn that could be shown."""


def fill(filling: Filling, room: Room) -> Section:
    """The label, and as many of the last turns as fit, in their order."""
    last = filling.inputs.last_session
    if last is None:
        return NOTHING
    meter = filling.meter
    heading = label("last session", f"{last.day} · {one_line(last.title, 80)} · read {one_line(last.path, 200)}")
    left = room.tokens - meter.line(heading) - meter(SEPARATOR)
    if left <= 0:
        return Section(considered=(_account(last, None, "no room within its share", 0),))
    lines: list[str] = []
    considered: list[Considered] = []
    for turn in reversed(last.turns):
        line = _line(turn, filling)
        cost = meter.line(line)
        if cost > left:
            left = -1  # nothing that is older comes in either
            considered.append(_account(last, turn, "older than what fits", 0))
            continue
        lines.insert(0, line)
        left -= cost
        considered.append(_account(last, turn, "said last", cost))
    return Section("\n".join([heading, *lines]) if lines else "", tuple(considered))


def _line(turn: Turn, filling: Filling) -> str:
    text = " ".join(turn.content.split())
    if len(text) > 2 * REACH:
        text = f"{text[:REACH]} {LEFT_OUT} {text[-REACH:]}"
    return said(speaker(turn.role, turn.name), head_and_tail(text, LONGEST_TURN, filling.meter))


def _account(last: LastSession, turn: Turn | None, reason: str, tokens: int) -> Considered:
    return Considered(
        id=f"{last.path}#{turn.number}" if turn else last.path,
        slot="last session",
        source=last.path,
        included=tokens > 0,
        reason=reason,
        tokens=tokens,
        turn=turn.number if turn else None,
        whole=False,
    )


LAST_SESSION = Slot("last session", "last session", fill)
