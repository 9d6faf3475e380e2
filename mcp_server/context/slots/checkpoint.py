"""The state of the conversation at its last checkpoint, which a model needs to continue after a compaction.

The first contexts after a compaction or a resume contain it: the first and last request, the last tool call, the next
step, all decisions in force, rules and open items, and the touched files. If the items do not fit, each is shortened to
its likeliest clauses; if that is not enough, those that the recognizer doubts most are left out. With room to spare,
sentences that may state further ones follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from mcp_server.context.condense import Entry, condensed
from mcp_server.context.inputs import LeftOff
from mcp_server.context.sections import NOTHING, SEPARATOR, Considered, Filling, Section, Slot, label, one_line
from mcp_server.model import Turn
from mcp_server.tokens import Meter, Room
from mcp_server.understanding.features import content_stems, word_list

EXCHANGES = 8
"""Exchanges after a compaction in which contexts contain the state. Later, the conversation has taken it up."""

WEIGHTS = {"rules": 2.5, "open items": 2.0, "decisions": 1.0, "perhaps": 0.6}
"""By kind of item: its worth. There are few rules and open items, and they are needed in full. Also the order in which
the kinds are shown."""

NEWEST, LAST_SUBJECT = 1.2, 1.25
"""Factors of the worth of the newest item, and of one about the subject of the last request or of the next step."""

SHARED = 2
"""Words that an item about that subject shares with it, at least."""

LONGEST_THREAD, LONGEST_STEP, LONGEST_CALL, LONGEST_FILE, LONGEST_ITEM = 100, 140, 100, 100, 480
"""Characters."""

MOST_FILES = 10


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

    ahead = [f"Next step: {one_line(stood.next_step, LONGEST_STEP)}"] if stood.next_step else []
    for kind, some in (("thread", _thread(stood)), ("last tool call", _call(stood)), ("next step", ahead)):
        if some:
            left -= show(kind, some if _cost(some, meter) <= left else (), True)
    for kind, entries in _lists(stood, left, meter).items():
        some = [line for line in entries if line]
        left -= show(kind, [_title(kind, len(some), len(entries)), *some] if some else (), len(some) == len(entries))
    if row := _files(stood):
        show("files touched", row if _cost(row, meter) <= left else (), True)
    return Section("\n".join(lines) if len(lines) > 1 else "", tuple(considered))


def _lists(stood: LeftOff, tokens: int, meter: Meter) -> dict[str, list[str]]:
    """Returns the line of each item by kind, oldest first; empty for those that do not fit."""
    texts = {
        "rules": stood.rules,
        "open items": stood.open_items,
        "decisions": stood.decisions,
        "perhaps": stood.possible,
    }
    items = [(kind, place, text) for kind, some in texts.items() for place, text in enumerate(some)]
    tokens -= sum(meter.line(_title(kind, len(some) - 1, len(some))) for kind, some in texts.items() if some)
    lines = [f"- {one_line(text, LONGEST_ITEM)}" for _, _, text in items]
    if _cost(lines, meter) > tokens:
        probabilities = dict(stood.probabilities)
        subject = content_stems(word_list(f"{stood.thread.rpartition(chr(10))[2]} {stood.next_step}"))
        entries = []
        for kind, place, text in items:
            weight = WEIGHTS[kind] * NEWEST ** ((place + 1) / len(texts[kind]))
            weight *= LAST_SUBJECT if len(subject & content_stems(word_list(text))) >= SHARED else 1
            entries.append(Entry(text, weight, probabilities.get(text, 1.0), all_words=kind == "rules"))
        lines = condensed(entries, tokens, meter)
    return {
        kind: [line for (of, _, _), line in zip(items, lines, strict=True) if of == kind]
        for kind, some in texts.items()
        if some
    }


def _thread(stood: LeftOff) -> list[str]:
    return [one_line(line, LONGEST_THREAD) for line in stood.thread.splitlines() if line.strip()]


def _call(stood: LeftOff) -> list[str]:
    call = stood.last_tool_call
    if call is None:
        return []
    said = " ".join(filter(None, (call.name, call.summary)))
    result = f" → {one_line(call.result, LONGEST_CALL)}" if call.result else ""
    return [f"Last tool call: {one_line(said, LONGEST_CALL)}{result}"]


def _cost(lines: Sequence[str], meter: Meter) -> int:
    return sum(map(meter.line, lines))


def _title(kind: str, shown: int, all_items: int) -> str:
    of = f" ({shown} of {all_items})" if shown < all_items else ""
    return f"{kind.capitalize()}{of}:"


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


def _floor(filling: Filling) -> int:
    """Returns the tokens that the section needs, within its cap."""
    stood = filling.inputs.checkpoint
    if stood is None:
        return 0
    cap = int(filling.allowance * filling.inputs.settings.holding_share)
    text = _shown(stood, cap, filling.meter).text
    return min(cap, filling.meter(text) + filling.meter(SEPARATOR)) if text else 0


CHECKPOINT = Slot("checkpoint", "checkpoint", fill, share="holding_share", floor=_floor)
