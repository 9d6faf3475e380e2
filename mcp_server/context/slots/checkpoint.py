"""The state of the conversation at its last checkpoint, which a model needs to continue after a compaction.

The first contexts after a compaction or a resume contain it. If its items do not fit, they are cut into clauses: a
small logistic model tells how likely a clause holds what was decided, and the clauses with the most worth per token are
kept, of all items together. Words that say little are left out: articles, pronouns, auxiliary verbs, fillers, some
prepositions. Negations, conditions, numbers and names stay, in their order.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from mcp_server.context.inputs import LeftOff, Recognized
from mcp_server.context.sections import (
    NO_ROOM_IN_SHARE,
    NOTHING,
    SEPARATOR,
    Considered,
    Filling,
    Section,
    Slot,
    heading_of,
    label,
    one_line,
)
from mcp_server.model import Turn
from mcp_server.tokens import Meter, Room
from mcp_server.understanding.cues import content_stems, word_list
from mcp_server.understanding.sentences import split
from mcp_server.understanding.settling import CHANGED

EXCHANGES = 8
"""Exchanges after a compaction in which contexts contain the state. Later, the conversation has taken it up."""

WEIGHTS = {"rules": 2.5, "open items": 2.0, "decisions": 1.0, "perhaps": 0.6}
"""By kind of item: its worth. There are few rules and open items, and they are needed in full. Also the order in which
the kinds are shown."""

NEWEST, LAST_SUBJECT = 1.2, 1.25
"""Factors of the worth of the newest item, and of one about the subject of the last request or of the next step."""

SHARED = 2  # least words that an item about that subject shares with it
LONGEST_THREAD, LONGEST_STEP, LONGEST_CALL, LONGEST_FILE, LONGEST_ITEM = 100, 140, 100, 100, 480  # characters
MOST_FILES = 10


def is_news(turns: Sequence[Turn], emptied: int) -> bool:
    """Returns whether a window that begins with turn number `emptied` has at most `EXCHANGES` user turns."""
    return sum(turn.role == "user" and turn.number >= emptied for turn in turns) <= EXCHANGES


def fill(filling: Filling, room: Room) -> Section:
    """Returns the label, and as much of each kind as fits."""
    left = filling.inputs.checkpoint
    return _shown(left, room.tokens, filling.meter) if left is not None else NOTHING


def _shown(left_off: LeftOff, tokens: int, meter: Meter) -> Section:
    source = f"where this conversation stood at {left_off.at} UTC, after turn {left_off.turn}"
    first = label("checkpoint", f"{source} · read {one_line(left_off.path, 200)}" if left_off.path else source)
    left = tokens - meter.line(first) - meter(SEPARATOR)
    lines, considered = [first], []

    def show(kind: str, some: Sequence[str], whole: bool) -> int:
        name, source = f"{left_off.id or 'now'}:{kind.replace(' ', '-')}", left_off.path or f"turn {left_off.turn}"
        reason, cost = "the conversation stood here" if some else NO_ROOM_IN_SHARE, _cost(some, meter)
        considered.append(Considered(name, "checkpoint", source, bool(some), reason, cost, whole=whole))
        lines.extend(some)
        return cost

    thread = [one_line(line, LONGEST_THREAD) for line in left_off.thread.splitlines() if line.strip()]
    ahead = [f"Next step: {one_line(left_off.next_step, LONGEST_STEP)}"] if left_off.next_step else []
    for kind, some in (("thread", thread), ("last tool call", _call(left_off)), ("next step", ahead)):
        if some:
            left -= show(kind, some if _cost(some, meter) <= left else (), True)
    for kind, entries in _lists(left_off, left, meter).items():
        some = [line for line in entries if line]
        heading = heading_of(kind.capitalize(), len(some), len(entries))
        left -= show(kind, [heading, *some] if some else (), len(some) == len(entries))
    if files := ", ".join(one_line(one, LONGEST_FILE) for one in left_off.files[-MOST_FILES:]):
        row = [f"Files touched: {files}"]
        show("files touched", row if _cost(row, meter) <= left else (), True)
    return Section("\n".join(lines) if len(lines) > 1 else "", tuple(considered))


def _lists(left_off: LeftOff, tokens: int, meter: Meter) -> dict[str, list[str]]:
    """Returns the line of each item by kind, oldest first; empty for those that do not fit."""
    texts = {"rules": left_off.rules, "open items": left_off.open_items}
    texts |= {"decisions": left_off.decisions, "perhaps": left_off.possible}
    items = [(kind, place, text) for kind, some in texts.items() for place, text in enumerate(some)]
    counts = {kind.capitalize(): len(some) for kind, some in texts.items() if some}
    tokens -= sum(meter.line(heading_of(kind, count - 1, count)) for kind, count in counts.items())
    lines = [f"- {one_line(text, LONGEST_ITEM)}" for _, _, text in items]
    if _cost(lines, meter) > tokens:
        known = {one.text: one for one in left_off.recognized}
        subject = content_stems(word_list(f"{left_off.thread.rpartition(chr(10))[2]} {left_off.next_step}"))
        entries = []
        for kind, place, text in items:
            weight = WEIGHTS[kind] * NEWEST ** ((place + 1) / len(texts[kind]))
            weight *= LAST_SUBJECT if len(subject & content_stems(word_list(text))) >= SHARED else 1
            text = text.removesuffix(f" ({CHANGED})")  # the item that changed it is listed too
            entries.append(Entry(known.get(text, Recognized(text)), weight, all_words=kind == "rules"))
        lines = condensed(entries, tokens, meter)
    shown: dict[str, list[str]] = {}
    for (kind, _, _), line in zip(items, lines, strict=True):
        shown.setdefault(kind, []).append(line)
    return shown


def _call(left_off: LeftOff) -> list[str]:
    call = left_off.last_tool_call
    if call is None:
        return []
    said = " ".join(filter(None, (call.name, call.summary)))
    result = f" → {one_line(call.result, LONGEST_CALL)}" if call.result else ""
    return [f"Last tool call: {one_line(said, LONGEST_CALL)}{result}"]


def _cost(lines: Sequence[str], meter: Meter) -> int:
    return sum(map(meter.line, lines))


def _floor(filling: Filling) -> int:
    """Returns the tokens that the section needs, within its cap."""
    left_off = filling.inputs.checkpoint
    if left_off is None:
        return 0
    cap = int(filling.allowance * filling.inputs.settings.holding_share)
    text = _shown(left_off, cap, filling.meter).text
    return min(cap, filling.meter(text) + filling.meter(SEPARATOR)) if text else 0


CHECKPOINT = Slot("checkpoint", "checkpoint", fill, needs="checkpoint", share="holding_share", floor=_floor)


LONGEST_READ = 1_000  # characters of an item that are read
SHORTEST_CLAUSE, LEAST_STEMS = 10, 2
"""Characters and content words. A shorter clause is joined with the one before."""

SURENESS = 3
"""Power of an item's probability in its worth: a doubtful item gets a clause when the sure ones have most of theirs.

Labeled decisions in a compaction's tokens, with 200 further turns, of eight and of fourteen conversations: with 1, .72
and .52; with 2, .78 and .56; with 3, .79 and .56."""

FURTHER = 6  # clauses of an item after which the worth of a further one is half
Part = Literal["own", "answer", "agreed", "amended", "refused"]
_QUOTED = re.compile(r"(.+?) \((answer|agreed|amended|refused): (.+)\)")
_CLAUSE = re.compile(
    r"(?<=[,;:—–])\s+|\s+(?=[(|—–])|(?<=\))\s+"
    r"|\s+(?=(?:and|but|so|because|since|which|while|where|when|if|unless|until|instead|then)\s)",
    re.IGNORECASE,
)
_FILLERS = re.compile(
    r"(?<![\w`'’/.-])(?:the|an?|this|that|these|those|which|its?|(?:it|that|there|let)['’]s|is|are|was|were|be|been|being|am"
    r"|I(?! (?:and|or|nor) )|I['’](?:m|ve|d|ll)|(?:we|you|they)(?:['’](?:re|ve|d|ll))?|he|she|me|us|my|our|your|their"
    r"|his|her|them|who|what"
    r"|how|where|there|here|will|would|could|can|has|have|had|do|does|did|and|as|at|in|on|of|about|because|since|so|then"
    r"|just|really|also|very|quite|already|actually|basically|simply|well|some|like|think|ok|okay)"
    r"(?![\w'’`/-]),? (?=[^\s.,;:!?)])",
    re.IGNORECASE,
)
_CODE = re.compile(r"`|\w[._/]\w|[a-z][A-Z]|_")
_NAME = re.compile(r"(?<=\S )[A-ZÀ-Ž][\w-]+")
CLAUSE_BIAS = -2.45
CLAUSE_WEIGHTS: Mapping[str, float] = {
    "digit": 0.51, "code": 0.58, "names": 0.44, "row": -0.41, "place": -0.48, "stems": 0.16, "shared": 0.8,
    "unanswered": 0.97, "answer": 1.34, "core": 1.27, "explains": -0.87,
}  # fmt: skip
"""Fitted on 10,965 clauses of recognized items of 133 labeled conversations of `train/`: does a clause hold a keyword
of the item's label? AUC .77 on 60 other conversations."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An item to shorten: `weight` is its worth compared with others. Of an item with `all_words` only clauses are left
    out."""

    recognized: Recognized
    weight: float = 1.0
    all_words: bool = False


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause of an item, and its place in its sentence. `is_core`: it belongs to the sentence that states the item;
    `explains`: the item is complete without it."""

    text: str
    part: Part
    sentence: int
    place: int
    is_core: bool
    explains: bool


def condensed(entries: Sequence[Entry], tokens: int, meter: Meter) -> list[str]:
    """Returns a line for each entry, empty if there is no room for it. Together the lines have at most `tokens`."""
    clauses = [_clauses(entry.recognized) for entry in entries]
    worths = [
        [share * entry.weight * entry.recognized.probability**SURENESS for share in _shares(some)]
        for entry, some in zip(entries, clauses, strict=True)
    ]
    chosen: list[frozenset[int]] = [frozenset() for _ in entries]
    lines = [""] * len(entries)
    queue: list[tuple[float, int, frozenset[int], str, int]] = []

    def offer(item: int) -> None:
        """Puts the clause with the most worth per token into the queue."""
        before = meter.line(lines[item]) if lines[item] else 0
        best = None
        for place in _allowed(clauses[item], chosen[item]):
            wanted = chosen[item] | {place}
            line = "- " + _joined(clauses[item], wanted, entries[item].all_words)
            cost = max(1, meter.line(line) - before)
            found = (-worths[item][place] / (1 + len(chosen[item]) / FURTHER) / cost, item, wanted, line, cost)
            best = min(best, found, key=lambda one: one[0]) if best else found
        if best:
            heapq.heappush(queue, best)

    for item in range(len(entries)):
        offer(item)
    while queue:
        _, item, wanted, line, cost = heapq.heappop(queue)
        if cost <= tokens:
            tokens -= cost
            chosen[item], lines[item] = wanted, line
            offer(item)
    for item, wanted in enumerate(chosen):  # if room is left, put the left-out words back
        line = "- " + _joined(clauses[item], wanted, all_words=True)
        if wanted and (cost := meter.line(line) - meter.line(lines[item])) <= tokens:
            tokens -= cost
            lines[item] = line
    return lines


def _allowed(clauses: Sequence[_Clause], chosen: Collection[int]) -> list[int]:
    """Returns the clauses that may be added. The first one comes from the user's words that change or refuse a
    proposal, else from the sentence that states the item, else from the first sentence: a clause that explains a
    decision may alone sound like its opposite."""
    answer = [place for place, one in enumerate(clauses) if one.part in ("answer", "amended")]
    refusal = [place for place, one in enumerate(clauses) if one.part == "own" and clauses[-1].part == "refused"]
    core = [place for place, one in enumerate(clauses) if one.part == "own" and one.is_core]
    first = core or [place for place, one in enumerate(clauses) if one.sentence == clauses[0].sentence]
    places = range(len(clauses)) if chosen else answer or refusal or first
    return [place for place in places if place not in chosen]


def _clauses(recognized: Recognized) -> list[_Clause]:
    text, core, short = (one_line(some, LONGEST_READ) for some in (recognized.text, recognized.core, recognized.short))
    parts: list[tuple[Part, str]] = [("own", text)]
    if answered := _QUOTED.fullmatch(text):
        parts = [("own", answered[1]), (cast(Part, answered[2]), answered[3])]
    found: list[_Clause] = []
    for part, said in parts:
        for number, sentence in enumerate(split(said)):
            texts: list[str] = []
            for clause in filter(None, _CLAUSE.split(sentence)):
                if texts and (len(texts[-1]) < SHORTEST_CLAUSE or _is_fragment(texts[-1]) or _is_fragment(clause)):
                    texts[-1] += " " + clause
                else:
                    texts.append(clause)
            known = {one.text for one in found}
            for place, clause in enumerate(texts):
                if clause not in known:
                    inner = clause.rstrip(" ,;")
                    explains = part == "own" and bool(short) and inner not in short
                    found.append(_Clause(clause, part, number, place, inner in core, explains))
    return found


def _is_fragment(clause: str) -> bool:
    return len(content_stems(word_list(clause))) < LEAST_STEMS


def _shares(clauses: Sequence[_Clause]) -> list[float]:
    """Returns for each clause the probability that it holds what was decided."""
    stems = [content_stems(word_list(one.text)) for one in clauses]
    unanswered = all(one.part == "own" for one in clauses)
    refused = bool(clauses) and clauses[-1].part == "refused"
    answers = ("answer", "agreed", "amended", *(("own",) if refused else ()))
    shares = []
    for one, own in zip(clauses, stems, strict=True):
        features: Mapping[str, float] = {
            "digit": any(map(str.isdigit, one.text)),
            "code": _CODE.search(one.text) is not None,
            "names": min(3, len(_NAME.findall(one.text))),
            "row": " | " in one.text,
            "place": min(one.place, 5),
            "stems": min(len(own), 12),
            "shared": max((len(own & other) for other in stems if other is not own), default=0),
            "unanswered": unanswered,
            "answer": one.part in answers,
            "core": one.is_core,
            "explains": one.explains,
        }
        total = CLAUSE_BIAS + sum(CLAUSE_WEIGHTS[name] * value for name, value in features.items())
        shares.append(1 / (1 + math.exp(-total)))
    return shares


def _joined(clauses: Sequence[_Clause], chosen: Collection[int], all_words: bool) -> str:
    """Returns the chosen clauses in their order; an ellipsis stands for those between them."""
    text = ""
    part: Part = "own"
    for place in sorted(chosen):
        one = clauses[place]
        if one.part != part:
            text += f"{' ' if text else ''}({one.part}: "
            part = one.part
        elif text:
            text += " " if place - 1 in chosen else " … "
        text += one.text
    return (text if all_words else telegraphic(text)) + (")" if part != "own" else "")


def telegraphic(text: str) -> str:
    """Returns a text without the words that say little; the text itself if nothing is left."""
    return " ".join(_FILLERS.sub("", text).split()) or text
