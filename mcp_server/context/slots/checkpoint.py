"""The state of the conversation at its last checkpoint, which a model needs to continue after a compaction.

The first contexts after a compaction or a resume contain it: the first and last request, the last tool call, decisions
and open items (the newest ones if not all fit), and the touched files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mcp_server.context.inputs import LeftOff
from mcp_server.context.receipt import Considered
from mcp_server.context.render import SEPARATOR, label, one_line
from mcp_server.context.slots import NOTHING, Filling, Section, Slot
from mcp_server.model import Turn
from mcp_server.text.budget import Meter, Room, shared_out

EXCHANGES = 8
"""Exchanges after a compaction in which contexts contain the state. Later, the conversation has taken it up."""

MOST_TOKENS = 600
SHARE = 0.3
"""Largest part of a small budget."""

LONGEST_ENTRY, LONGEST_LINE, LONGEST_CALL = 200, 240, 160
"""Characters."""


def is_news(turns: Sequence[Turn], emptied: int) -> bool:
    """Returns whether a window that begins with turn number `emptied` has at most `EXCHANGES` user turns."""
    return sum(turn.role == "user" and turn.number >= emptied for turn in turns) <= EXCHANGES


def fill(filling: Filling, room: Room) -> Section:
    """Returns the label, and as much of each kind as fits."""
    left = filling.inputs.checkpoint
    return _shown(left, room.tokens, filling.meter) if left is not None else NOTHING


def _shown(stood: LeftOff, tokens: int, meter: Meter) -> Section:
    source = f"where this conversation stood at {stood.at} UTC, after turn {stood.turn}"
    heading = label("checkpoint", f"{source} · read {one_line(stood.path, 200)}" if stood.path else source)
    left = tokens - meter.line(heading) - meter(SEPARATOR)
    lines, considered = [heading], []

    def show(kind: str, some: Sequence[str], whole: bool) -> int:
        considered.append(_account(stood, kind, some, whole, meter))
        lines.extend(some)
        return _cost(some, meter)

    for kind, some in (("thread", _thread(stood)), ("last tool call", _call(stood))):
        if some:
            left -= show(kind, some if _cost(some, meter) <= left else (), True)
    lists = (
        ("decisions", stood.decisions, _bulleted),
        ("open items", stood.open_items, _bulleted),
        ("files touched", stood.files, _in_a_row),
    )
    needs = [_cost(written(kind, entries, len(entries)), meter) for kind, entries, written in lists]
    spare = 0
    for (kind, entries, written), part in zip(lists, shared_out(needs, left), strict=True):
        spare += part
        if entries:
            fit = _most_that_fit(kind, entries, written, spare, meter)
            spare -= show(kind, written(kind, entries[-fit:], len(entries)) if fit else (), fit == len(entries))
    return Section("\n".join(lines) if len(lines) > 1 else "", tuple(considered))


def _thread(stood: LeftOff) -> list[str]:
    return [one_line(line, LONGEST_LINE) for line in stood.thread.splitlines() if line.strip()]


def _call(stood: LeftOff) -> list[str]:
    call = stood.last_tool_call
    if call is None:
        return []
    said = " ".join(filter(None, (call.name, call.summary)))
    result = f" → {one_line(call.result, LONGEST_CALL)}" if call.result else ""
    return [f"Last tool call: {one_line(said, LONGEST_CALL)}{result}"]


Written = Callable[[str, Sequence[str], int], list[str]]


def _most_that_fit(kind: str, entries: Sequence[str], written: Written, tokens: int, meter: Meter) -> int:
    """Returns how many of the newest entries fit."""
    counts = range(len(entries), 0, -1)
    return next((n for n in counts if _cost(written(kind, entries[-n:], len(entries)), meter) <= tokens), 0)


def _cost(lines: Sequence[str], meter: Meter) -> int:
    return sum(map(meter.line, lines))


def _bulleted(kind: str, entries: Sequence[str], of: int) -> list[str]:
    return (
        [_title(kind, len(entries), of), *(f"- {one_line(one, LONGEST_ENTRY)}" for one in entries)] if entries else []
    )


def _in_a_row(kind: str, entries: Sequence[str], of: int) -> list[str]:
    row = ", ".join(one_line(one, LONGEST_ENTRY) for one in entries)
    return [f"{_title(kind, len(entries), of)} {row}"] if entries else []


def _title(kind: str, shown: int, of: int) -> str:
    newest = f" (the newest {shown} of {of})" if shown < of else ""
    return f"{kind.capitalize()}{newest}:"


def _account(stood: LeftOff, kind: str, lines: Sequence[str], whole: bool, meter: Meter) -> Considered:
    return Considered(
        id=f"{stood.id or 'now'}:{kind.replace(' ', '-')}",
        slot="checkpoint",
        source=stood.path or f"turn {stood.turn}",
        included=bool(lines),
        reason="the conversation stood here" if lines else "no room within its share",
        tokens=_cost(lines, meter),
        whole=whole,
    )


def _cap(filling: Filling) -> int:
    return min(MOST_TOKENS, filling.share(SHARE))


def _floor(filling: Filling) -> int:
    """Returns the tokens that the section needs, within its cap."""
    stood = filling.inputs.checkpoint
    if stood is None:
        return 0
    cap = _cap(filling)
    text = _shown(stood, cap, filling.meter).text
    return min(cap, filling.meter(text) + filling.meter(SEPARATOR)) if text else 0


CHECKPOINT = Slot("checkpoint", "checkpoint", fill, cap=_cap, floor=_floor)
