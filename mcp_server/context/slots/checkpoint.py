"""The state of the conversation at its last checkpoint, which a model needs to continue after a compaction.

The first contexts after a compaction or a resume contain it: the first and last request, the last tool call, all
decisions in force, rules and open items, and the touched files. If the items do not fit, each is shown by its
beginning; if that is not enough, the oldest are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcp_server.context.inputs import LeftOff
from mcp_server.context.receipt import Considered
from mcp_server.context.render import SEPARATOR, label, one_line
from mcp_server.context.slots import NOTHING, Filling, Section, Slot
from mcp_server.model import Turn
from mcp_server.text.budget import Meter, Room, shared_out

EXCHANGES = 8
"""Exchanges after a compaction in which contexts contain the state. Later, the conversation has taken it up."""

LENGTHS = range(240, 20, -10)
"""Characters of a decision: the first length with which all items fit."""

TIMES = {"decisions": 1.0, "rules": 2.5, "open": 2.0}
"""By kind of item: the factor by which its line may be longer. There are few rules and open items, and they are needed
in full."""

LONGEST_LINE, LONGEST_CALL, LONGEST_FILE = 140, 160, 100
"""Characters."""

MOST_FILES = 10
NEXT = "open items, the last one is the next step"


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
    decisions = tuple(one for one in stood.decisions if one not in stood.rules)
    lists = (("rules", stood.rules), (NEXT, stood.open_items), ("decisions", decisions))

    def needs(longest: int) -> list[int]:
        return [_cost(_bulleted(kind, entries, len(entries), longest), meter) for kind, entries in lists]

    longest = next((most for most in LENGTHS if sum(needs(most)) <= left), LENGTHS[-1])
    spare = 0
    for (kind, entries), part in zip(lists, shared_out(needs(longest), left), strict=True):
        spare += part
        if entries:
            fit = next(n for n in range(len(entries), -1, -1) if _fits(kind, entries, n, longest, spare, meter))
            spent = show(
                kind, _bulleted(kind, entries[-fit:] if fit else (), len(entries), longest), fit == len(entries)
            )
            spare, left = spare - spent, left - spent
    if row := _files(stood):
        show("files touched", row if _cost(row, meter) <= left else (), True)
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


def _fits(kind: str, entries: Sequence[str], newest: int, longest: int, tokens: int, meter: Meter) -> bool:
    some = entries[-newest:] if newest else ()
    return _cost(_bulleted(kind, some, len(entries), longest), meter) <= tokens


def _cost(lines: Sequence[str], meter: Meter) -> int:
    return sum(map(meter.line, lines))


def _bulleted(kind: str, entries: Sequence[str], of: int, longest: int) -> list[str]:
    newest = f" (the newest {len(entries)} of {of})" if len(entries) < of else ""
    title = f"{kind[0].upper()}{kind[1:]}{newest}:"
    longest = min(LENGTHS[0], round(longest * TIMES[kind.partition(" ")[0]]))
    return [title, *(f"- {one_line(one, longest)}" for one in entries)] if entries else []


def _files(stood: LeftOff) -> list[str]:
    row = ", ".join(one_line(one, LONGEST_FILE) for one in stood.files[-MOST_FILES:])
    return [f"Files touched: {row}"] if row else []


def _account(stood: LeftOff, kind: str, lines: Sequence[str], whole: bool, meter: Meter) -> Considered:
    return Considered(
        id=f"{stood.id or 'now'}:{kind.partition(',')[0].replace(' ', '-')}",
        slot="checkpoint",
        source=stood.path or f"turn {stood.turn}",
        included=bool(lines),
        reason="the conversation stood here" if lines else "no room within its share",
        tokens=_cost(lines, meter),
        whole=whole,
    )


def _cap(filling: Filling) -> int:
    return filling.share(filling.inputs.settings.holding_share)


def _floor(filling: Filling) -> int:
    """Returns the tokens that the section needs, within its cap."""
    stood = filling.inputs.checkpoint
    if stood is None:
        return 0
    cap = _cap(filling)
    text = _shown(stood, cap, filling.meter).text
    return min(cap, filling.meter(text) + filling.meter(SEPARATOR)) if text else 0


CHECKPOINT = Slot("checkpoint", "checkpoint", fill, cap=_cap, floor=_floor)
