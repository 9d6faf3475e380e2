"""The Clarity block: what the conversation is about right now, with its scores (S0), in a few tokens.

It stands near the end of the text, since it changes with every turn.
"""

from __future__ import annotations

from mcp_server.core.clarity.block import HEAD, BlockItem, block, line
from mcp_server.core.compiler.budget import Room
from mcp_server.core.compiler.receipt import Considered
from mcp_server.core.compiler.render import SEPARATOR, label
from mcp_server.core.compiler.section import NOTHING, Filling, Section, Slot

SHARE = 0.1
"""Most that the block may take of a small budget; of a large one, the setting says how much."""


def fill(filling: Filling, room: Room) -> Section:
    """The label, and as many items as fit, the highest score first."""
    items = filling.inputs.clarity
    if not items:
        return NOTHING
    meter = filling.meter
    head = f"{label('clarity', 'counted in this conversation')}\n{HEAD}"
    text = block(items, meter, room.tokens - meter(SEPARATOR), head)
    shown = text.count("\n") - head.count("\n") if text else 0
    return Section(
        text, tuple(_account(item, place < shown, meter.line(line(item))) for place, item in enumerate(items))
    )


def _account(item: BlockItem, included: bool, tokens: int) -> Considered:
    return Considered(
        id=f"clarity:{item.id}",
        slot="clarity",
        source="clarity",
        included=included,
        reason=item.why if included else "no room in the block",
        tokens=tokens if included else 0,
        score=item.score,
        relevance=item.terms,
    )


def _cap(filling: Filling) -> int:
    return min(filling.inputs.settings.clarity_tokens, filling.share(SHARE))


CLARITY = Slot("clarity", "clarity", fill, cap=_cap)
