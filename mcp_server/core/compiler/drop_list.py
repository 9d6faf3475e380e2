"""The drop list: what left this conversation's live context, so that the model knows what it can have back.

An id and a few words a line, the newest first, in at most 200 tokens; then how many more there are. It stands at the
end of the text, since it changes whenever something goes.
"""

from __future__ import annotations

from mcp_server.core.compiler.budget import Room
from mcp_server.core.compiler.inputs import Dropped
from mcp_server.core.compiler.receipt import Considered
from mcp_server.core.compiler.render import SEPARATOR, label, one_line
from mcp_server.core.compiler.section import NOTHING, Filling, Section, Slot

MOST_TOKENS = 200
SHARE = 0.08
"""Most that the list may take of a small budget."""

LONGEST_LINE = 60
"""Characters that are shown of what went."""

HEADING = label("dropped", "left the live context; recover with an id brings it back")


def fill(filling: Filling, room: Room) -> Section:
    """The label, as many lines as fit, and the count of the rest."""
    dropped, meter = filling.inputs.drop_list, filling.meter
    if not dropped:
        return NOTHING
    left = room.tokens - meter.line(HEADING) - meter(SEPARATOR)
    closing = meter.line(_more(filling.inputs.dropped))
    lines: list[str] = []
    for one in dropped:
        line = f"- {one.id} {one_line(one.line, LONGEST_LINE)}"
        last = len(lines) + 1 == filling.inputs.dropped
        cost = meter.line(line)
        if cost + (0 if last else closing) > left:
            break
        lines.append(line)
        left -= cost
    considered = tuple(_account(one, place < len(lines), lines, place, filling) for place, one in enumerate(dropped))
    rest = filling.inputs.dropped - len(lines)
    if rest and closing > left:
        return Section(considered=considered)
    return Section("\n".join([HEADING, *lines, *([_more(rest)] if rest else [])]), considered)


def _more(count: int) -> str:
    return f"- {count:,} chunks more (recover lists them)"


def _account(one: Dropped, shown: bool, lines: list[str], place: int, filling: Filling) -> Considered:
    return Considered(
        id=one.id,
        slot="dropped",
        source=f"turn {one.turn}",
        included=shown,
        reason="left the live context" if shown else "no room in the drop list",
        tokens=filling.meter.line(lines[place]) if shown else 0,
        turn=one.turn,
        whole=False,
    )


def _cap(filling: Filling) -> int:
    return min(MOST_TOKENS, filling.share(SHARE))


def _floor(filling: Filling) -> int:
    return _cap(filling) if filling.inputs.drop_list else 0


DROP_LIST = Slot("dropped", "dropped", fill, cap=_cap, floor=_floor)
