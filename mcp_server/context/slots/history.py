"""P4, the session's own history, only for `replace`: the newest turns that fit, shown oldest first.

Older turns are included in whole groups of eight exchanges, counted from the session's start, so that the beginning of
the history moves only every eight exchanges and stays in a provider's prompt cache. If fewer than eight exchanges fit
that way, single turns are included instead. The last user turn is required: its room is reserved, and it is cut only if
necessary. Turns are those of the live context: cold ones are missing, summarized ones are short. P3 may show the
original of a shortened turn if search finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from mcp_server.context.cut import head_and_tail
from mcp_server.context.inputs import CompileInputs
from mcp_server.context.receipt import Considered
from mcp_server.context.render import SEPARATOR, label, said, speaker, turn_text
from mcp_server.context.slots import NOTHING, Filling, Section, Slot
from mcp_server.model import Turn
from mcp_server.tokens import MOST_CHARACTERS_PER_TOKEN, Meter, Room

GROUP = 8
"""Exchanges that are included together."""

LONGEST_SHARE = 1 / 8
"""A turn longer than this share of the budget is shown by its head and tail."""

OLDER = "older than what fits"


def exchanges(turns: Sequence[Turn], first: int = 0) -> list[int]:
    """Returns the number of each turn's exchange: a user turn and its answers. `first` is the first number."""
    numbers: list[int] = []
    current = first - 1
    for turn in turns:
        current += turn.role == "user"
        numbers.append(max(current, first))
    return numbers


def newest(turns: Sequence[Turn], budget: int) -> tuple[tuple[Turn, ...], int]:
    """Returns the newest turns that a context of `budget` tokens could show, from the start of a group on, and the
    number of exchanges before them."""
    numbers = exchanges(turns)
    characters = 0
    start = len(turns)
    for position in range(len(turns) - 1, -1, -1):
        characters += len(turns[position].content)
        if position == 0 or numbers[position] // GROUP != numbers[position - 1] // GROUP:
            start = position
            if characters > budget * MOST_CHARACTERS_PER_TOKEN:
                break
    return tuple(turns[start:]), (numbers[start] if start < len(turns) else 0)


def fill(filling: Filling, room: Room) -> Section:
    """Returns the newest turns that fit."""
    inputs, meter = filling.inputs, filling.meter
    turns = _visible(inputs)
    if not turns:
        return NOTHING
    heading = label("history", f"this conversation ({inputs.session or 'unnamed'}), oldest first") + "\n"
    left = room.tokens - meter(heading + SEPARATOR)
    last_user = _last_user(turns)
    lines: dict[int, tuple[str, bool]] = {}

    def add(some: Sequence[Turn], *, all_or_none: bool) -> bool:
        nonlocal left
        rendered = [(turn.number, *_line(turn, filling, left if turn is last_user else None)) for turn in some]
        if all_or_none and sum(meter.line(line) for _, line, _ in rendered) > left:
            return False
        for number, line, whole in reversed(rendered):
            cost = meter.line(line)
            if not line or cost > left:
                return False
            lines[number] = (line, whole)
            left -= cost
        return True

    position = turns.index(last_user) if last_user else 0
    required = turns[position : position + 1]
    add(required, all_or_none=False)
    for group in _groups(inputs, turns):
        rest = [turn for turn in group if turn.number not in lines]
        if add(rest, all_or_none=True):
            continue
        shown = len({_exchange_of(inputs, turns)[number] for number in lines})
        if shown < GROUP:
            add(rest, all_or_none=False)
        break
    considered = (*(_account(inputs, turn, lines, meter) for turn in reversed(turns)), *_before(inputs))
    if not lines:
        return Section(considered=considered)
    text = heading + "\n".join(lines[number][0] for number in sorted(lines))
    whole = frozenset(lines) - {shortened.turn for shortened in inputs.live_set}
    return Section(text, considered, turns=whole)


def _visible(inputs: CompileInputs) -> tuple[Turn, ...]:
    if inputs.delivery != "replace":
        return ()
    return tuple(turn for turn in inputs.turns if inputs.as_of is None or turn.number <= inputs.as_of)


def _last_user(turns: Sequence[Turn]) -> Turn | None:
    return next((turn for turn in reversed(turns) if turn.role == "user"), None)


def _exchange_of(inputs: CompileInputs, turns: Sequence[Turn]) -> dict[int, int]:
    return {turn.number: number for turn, number in zip(turns, exchanges(turns, inputs.first_exchange), strict=True)}


def _groups(inputs: CompileInputs, turns: Sequence[Turn]) -> list[list[Turn]]:
    """Returns the turns in groups of eight exchanges, the newest group first."""
    exchange = _exchange_of(inputs, turns)
    return [list(group) for _, group in groupby(turns, key=lambda turn: exchange[turn.number] // GROUP)][::-1]


def _line(turn: Turn, filling: Filling, required: int | None) -> tuple[str, bool]:
    """Returns a turn as a line, and whether it is whole. `required` is the room of the last user turn."""
    meter = filling.meter
    who = speaker(turn.role, turn.name)
    text = turn_text(turn)
    most = filling.share(LONGEST_SHARE) if required is None else required
    if len(text) <= most * MOST_CHARACTERS_PER_TOKEN:
        line = said(who, text)
        if meter.line(line) <= most:
            return line, True
    for room in (most - meter.line(f"{who}: "), most // 2):  # neutralizing may add tokens
        line = said(who, head_and_tail(text, room, meter))
        if meter.line(line) <= most:
            return line, False
    return "", False


def _account(inputs: CompileInputs, turn: Turn, lines: dict[int, tuple[str, bool]], meter: Meter) -> Considered:
    shown = turn.number in lines
    line, whole = lines.get(turn.number, ("", True))
    missing = next((one.ids for one in inputs.live_set if one.turn == turn.number), ())
    recent = f"recent, shortened: recover {', '.join(missing)}" if missing else "recent"
    return Considered(
        id=f"{inputs.session}#{turn.number}",
        slot="history",
        source=f"turn {turn.number}",
        included=shown,
        reason=(recent if whole else f"{recent}, cut: too long") if shown else OLDER,
        tokens=meter.line(line) if shown else 0,
        turn=turn.number,
        whole=whole and not missing,
    )


def _before(inputs: CompileInputs) -> Iterator[Considered]:
    """Yields one candidate for all turns before those in the inputs."""
    last = inputs.turns[0].number - 1
    if inputs.first_exchange and last:
        source = f"turns 1-{last}"
        yield Considered(f"{inputs.session}#1-{last}", "history", source, False, OLDER)


def _floor(filling: Filling) -> int:
    """Returns a quarter of the budget, or what the last user turn needs if P3's floor and the safety line leave it."""
    turns = _visible(filling.inputs)
    if not turns:
        return 0
    settings = filling.inputs.settings
    least = filling.share(settings.history_floor)
    last = _last_user(turns)
    if last is None:
        return least
    text = turn_text(last)
    most = int(filling.allowance * (1 - settings.knowledge_floor)) - filling.meter(
        filling.before["safety"].text + SEPARATOR
    )
    if len(text) > most * MOST_CHARACTERS_PER_TOKEN:
        return max(least, most)
    needed = filling.meter.line(said(speaker(last.role, last.name), text))
    heading = label("history", f"this conversation ({filling.inputs.session or 'unnamed'}), oldest first")
    return max(least, min(most, needed + filling.meter.line(heading) + 2))


HISTORY = Slot("history", "history", fill, floor=_floor)
