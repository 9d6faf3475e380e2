"""The state of the conversation at its last checkpoint, which a model needs to continue after a compaction.

The first contexts after a compaction or a resume contain it: the first and last request, the last tool call, the next
step, all decisions in force, rules and open items, and the touched files. If the items do not fit, each is shortened;
if that is not enough, those that the recognizer doubts are left out, then the oldest.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from mcp_server.context.inputs import LeftOff
from mcp_server.context.receipt import Considered
from mcp_server.context.render import SEPARATOR, label, one_line
from mcp_server.context.slots import NOTHING, Filling, Section, Slot
from mcp_server.model import Turn
from mcp_server.text.budget import Meter, Room
from mcp_server.understanding.features import CUES
from mcp_server.understanding.sentences import split

EXCHANGES = 8
"""Exchanges after a compaction in which contexts contain the state. Later, the conversation has taken it up."""

LENGTHS = range(480, 30, -10)
"""Characters of a decision: the first length with which all items fit. If even the last one is too long, the oldest
items are left out."""

ENOUGH = 180
"""Characters of a decision. If the items do not fit at this length, those that the recognizer doubts are left out first
(`benchmarks continuity`: labeled decisions after a compaction .53, so .60)."""

TIMES = {"decisions": 1.0, "open items": 2.0, "rules": 2.5}
"""By kind of item: the factor by which its line may be longer. There are few rules and open items, and they are needed
in full. Also the order in which items are left out."""

LONGEST_LINE, LONGEST_CALL, LONGEST_FILE, LONGEST_ITEM = 140, 160, 100, 1_000
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

    ahead = [f"Next step: {one_line(stood.next_step, LONGEST_LINE)}"] if stood.next_step else []
    for kind, some in (("thread", _thread(stood)), ("last tool call", _call(stood)), ("next step", ahead)):
        if some:
            left -= show(kind, some if _cost(some, meter) <= left else (), True)
    all_lists = {"rules": stood.rules, "open items": stood.open_items, "decisions": stood.decisions}
    lists = {kind: entries for kind, entries in all_lists.items() if entries}
    kept = _kept(stood, lists, left, meter)

    def fits(longest: int) -> bool:
        return sum(_cost(_bulleted(kind, lists[kind], some, longest), meter) for kind, some in kept.items()) <= left

    longest = LENGTHS[min(bisect_left(LENGTHS, True, key=fits), len(LENGTHS) - 1)]
    for kind, some in kept.items():
        left -= show(kind, _bulleted(kind, lists[kind], some, longest), len(some) == len(lists[kind]))
    if row := _files(stood):
        show("files touched", row if _cost(row, meter) <= left else (), True)
    return Section("\n".join(lines) if len(lines) > 1 else "", tuple(considered))


def _kept(stood: LeftOff, lists: Mapping[str, Sequence[str]], tokens: int, meter: Meter) -> dict[str, list[str]]:
    """Returns the items of each kind that fit: at enough length if it suffices to leave out doubted ones, else at the
    shortest length. Oldest first."""
    items = [(kind, place) for kind in TIMES for place in range(len(lists.get(kind, ())))]
    doubts = {text: place for place, text in enumerate(stood.unsure)}
    doubted = sorted(
        (one for one in items if lists[one[0]][one[1]] in doubts), key=lambda one: doubts[lists[one[0]][one[1]]]
    )
    titles = sum(_cost([_title(kind, entries, entries[1:])], meter) for kind, entries in lists.items())
    gone: set[tuple[str, int]] = set()
    for longest, weakest in ((ENOUGH, doubted), (LENGTHS[-1], items)):
        costs = {
            (kind, place): _cost(_lines(kind, [lists[kind][place]], longest), meter)
            for kind, place in items
            if (kind, place) not in gone
        }
        needed = titles + sum(costs.values())
        for one in weakest:
            if needed > tokens and one in costs:
                gone.add(one)
                needed -= costs[one]
    return {kind: [text for at, text in enumerate(lists[kind]) if (kind, at) not in gone] for kind in lists}


def _thread(stood: LeftOff) -> list[str]:
    return [one_line(line, LONGEST_LINE) for line in stood.thread.splitlines() if line.strip()]


def _call(stood: LeftOff) -> list[str]:
    call = stood.last_tool_call
    if call is None:
        return []
    said = " ".join(filter(None, (call.name, call.summary)))
    result = f" → {one_line(call.result, LONGEST_CALL)}" if call.result else ""
    return [f"Last tool call: {one_line(said, LONGEST_CALL)}{result}"]


def _cost(lines: Sequence[str], meter: Meter) -> int:
    return sum(map(meter.line, lines))


def _bulleted(kind: str, entries: Sequence[str], some: Sequence[str], longest: int) -> list[str]:
    return [_title(kind, entries, some), *_lines(kind, some, longest)] if some else []


def _title(kind: str, entries: Sequence[str], some: Sequence[str]) -> str:
    of = f" ({len(some)} of {len(entries)})" if len(some) < len(entries) else ""
    return f"{kind.capitalize()}{of}:"


def _lines(kind: str, some: Sequence[str], longest: int) -> list[str]:
    most = min(LENGTHS[0], round(longest * TIMES[kind]))
    return [f"- {_shortened(text, most)}" for text in some]


_ANSWERED = re.compile(r"(.+?) (\((?:answer|amended): .+\))")
_REFUSED = re.compile(r"(.+?) \(refused: (.+)\)")
_CHOOSES = re.compile(f"{CUES['propose'].pattern}|{CUES['choice'].pattern}", re.IGNORECASE)


def _shortened(text: str, longest: int) -> str:
    """Returns an item in at most `longest` characters: the user's answer, and of what it answers the sentences that
    propose or choose something, then the first ones; rows of tables last."""
    text = one_line(text, LONGEST_ITEM)
    if len(text) <= longest:
        return text
    if (refused := _REFUSED.fullmatch(text)) and len(refused[1]) < longest // 2:
        return f"{refused[1]} (refused: {one_line(refused[2], longest - len(refused[1]) - 13)})"
    answered = _ANSWERED.fullmatch(text)
    answer = f" {one_line(answered[2], 3 * longest // 5)}" if answered else ""
    sentences = split(answered[1] if answered else text)
    order = sorted(range(len(sentences)), key=lambda at: (" | " in sentences[at], not _CHOOSES.search(sentences[at])))
    left = longest - len(answer)
    chosen: set[int] = set()
    for at in order:
        if len(sentences[at]) + 2 <= left:
            chosen.add(at)
            left -= len(sentences[at]) + 2
    if not chosen:
        return one_line(sentences[order[0]], left - 1) + answer
    shown = [f"{'' if at - 1 in chosen or not at else '… '}{sentences[at]}" for at in sorted(chosen)]
    return " ".join(shown) + ("" if len(sentences) - 1 in chosen else " …") + answer


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
