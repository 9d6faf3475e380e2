"""Cuts a text that does not fit at the end of a section, line or sentence, with a note on how to read the rest.

Every function receives neutralized text and returns text that fits into the given room.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from mcp_server.text.words import words
from mcp_server.tokens import MOST_CHARACTERS_PER_TOKEN, Meter, Room

LEFT_OUT = "[…]"  # marks where a passage or a turn was cut
_SENTENCE_END = re.compile(r"(?<![.!?…。！？])[.!?…。！？]++[\"'”’)\]]*+(?=\s)|(?=\n)")
# Possessive, and from the first dot only: a message of nothing but dots took seconds.
_SECTION_START = re.compile(r"^#{1,6} ", re.MULTILINE)
_CODE_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ANSWER = re.compile(r"\[…\] \((?:agreed|answer|amended): ([^()]+)\)")
LEAST_CODE = 6  # fenced code with fewer lines is kept: removing it would save little
_SPACE = re.compile(r"\s+")
_MOST_SENTENCES = 400  # most sentences of a passage that are compared


@dataclass(frozen=True, slots=True)
class Cut:
    """The shown part of a text: its first `end` characters; `whole` if that is all of it."""

    text: str
    end: int
    whole: bool


def beginning(text: str, room: Room, meter: Meter, mark: Callable[[int], str]) -> Cut:
    """Returns the beginning of `text` that fits, up to the end of a section if that keeps most of it, else of a line,
    sentence or word. `mark(end)` is the last line for a cut after `end` characters, included in the room. The result is
    empty if not even the mark fits."""
    if room.holds(text, meter):
        return Cut(text, len(text), True)
    rest = room.less("\n" + mark(len(text)), meter)  # marks differ by digits only: the longest first, a token to spare
    reach = text[: min(len(text), (rest.tokens + 1) * MOST_CHARACTERS_PER_TOKEN)]

    def longest(ends: Sequence[int]) -> int:
        position = bisect_left(ends, True, key=lambda end: not rest.holds(text[:end].rstrip(), meter))
        return ends[position - 1] if position else 0

    end = longest([match.end() for match in _SENTENCE_END.finditer(reach) if match.end()])
    section = longest([match.start() for match in _SECTION_START.finditer(reach) if match.start()])
    if section >= 0.6 * end:
        end = section
    end = end or longest([match.start() for match in _SPACE.finditer(reach) if match.start()])
    shown = text[:end].rstrip()
    if not shown:
        return Cut("", 0, False)
    shown = f"{shown}\n{mark(end)}"
    return Cut(shown, end, False) if room.holds(shown, meter) else Cut("", 0, False)


def head_and_tail(text: str, tokens: int, meter: Meter) -> str:
    """Returns the beginning (three fifths) and the end of a message that is too long."""
    if Room(tokens).holds(text, meter):
        return text
    room = tokens - meter.line(f" {LEFT_OUT} ")
    head = _words_within(text, 3 * room // 5, meter, from_end=False)
    tail = _words_within(text[len(head) :], room - meter(head), meter, from_end=True)
    shown = f"{head.rstrip()} {LEFT_OUT} {tail.lstrip()}".strip()
    return shown if meter.line(shown) <= tokens else head.rstrip() if meter.line(head.rstrip()) <= tokens else ""


_ERROR = re.compile(
    r"\b(?:errors?|exception|traceback|fatal|panic|fail(?:ed|ure|s)?|assert\w*|undefined|denied|refused|time[ds]?.?out)\b"
    r"|\w(?:Error|Exception)\b",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(
    r"\s*(?:(?:export|default|public|private|protected|static|async|pub|abstract|final|override)\s+)*"
    r"(?:def|class|func|function|fn|struct|enum|trait|impl|interface|type|module|namespace|CREATE TABLE|[+-]{3} |@@)\b"
    r"|@@ |[+-]{3} \S|\s*(?:[\w<>\[\]*&:]+\s+)+\w+\([^;]*\)\s*\{\s*$"
)
_VARYING = re.compile(r"[0-9a-f]*\d[0-9a-f]*", re.IGNORECASE)
FEWEST_LINES = 8  # a text with fewer lines is prose: its beginning and end say most
MAX_EXCERPTED = 400_000  # characters of a text that an excerpt is taken from: half of them at each end
ERROR_WORTH, SIGNATURE_WORTH, ASKED_WORTH = 2.0, 1.5, 3.0


def excerpt(text: str, query: frozenset[str], tokens: int, meter: Meter) -> str:
    """Returns the lines of a log or of code that matter most, in at most `tokens` tokens: errors, signatures, and lines
    with rare words of `query` (folded words), then its beginning and end. Of prose, its beginning and end. Lines that
    differ only in numbers count less each time they recur."""
    if len(text) > MAX_EXCERPTED:
        text = f"{text[: MAX_EXCERPTED // 2]}\n{LEFT_OUT}\n{text[-MAX_EXCERPTED // 2 :]}"
    lines = text.split("\n")
    if Room(tokens).holds(text, meter) or len(lines) < FEWEST_LINES:
        return head_and_tail(text, tokens, meter)
    said = [query.intersection(words(line)) for line in lines]
    spread = Counter(word for some in said for word in some)
    seen: Counter[str] = Counter()
    worth = []
    for place, line in enumerate(lines):
        value = ASKED_WORTH * fsum(1 / spread[word] for word in said[place])
        value += ERROR_WORTH * bool(_ERROR.search(line)) + SIGNATURE_WORTH * bool(_SIGNATURE.match(line))
        shape = _VARYING.sub("0", line.strip())
        seen[shape] += 1
        edge = 1 / (1 + min(place, len(lines) - 1 - place))
        worth.append(value / seen[shape] ** 2 + edge)
    mark = meter.line(LEFT_OUT)
    left = tokens - mark
    chosen: set[int] = set()
    for place in sorted(range(len(lines)), key=lambda place: (-worth[place], place)):
        cost = meter.line(lines[place]) + mark
        if cost <= left and lines[place].strip():
            chosen.add(place)
            left -= cost
            left += mark * ((place - 1 in chosen) + (place + 1 in chosen))
        if left <= mark:
            break
    shown: list[str] = []
    before = -1
    for place in sorted(chosen):
        shown += [LEFT_OUT] if place != before + 1 else []
        shown.append(lines[place])
        before = place
    found = "\n".join([*shown, *([LEFT_OUT] if before != len(lines) - 1 else [])])
    return found if chosen and Room(tokens).holds(found, meter) else head_and_tail(text, tokens, meter)


def without_code(text: str, query: frozenset[str], *, begins_inside: bool = False) -> str:
    """Returns a message without the fenced blocks that contain no word of `query` (folded words), such as pasted logs.
    If it is not clear whether the message begins inside a block, it is returned unchanged."""
    shown: list[str] = []
    block: list[str] = []
    fence = ""

    def put() -> None:
        useless = len(block) >= LEAST_CODE and query.isdisjoint(words("\n".join(block)))
        shown.extend([LEFT_OUT] if useless else block)
        block.clear()

    for line in text.split("\n"):
        found = _CODE_FENCE.fullmatch(line)
        if begins_inside and found:
            if not found[2].strip():
                return text
            begins_inside = False
        if not fence and not found:
            shown.append(line)
            continue
        block.append(line)
        if not fence and found:
            fence = found[1]
        elif found and found[1].startswith(fence) and not found[2].strip():
            put()
            fence = ""
    put()
    return "\n".join(shown)


def relevant_part(text: str, query: frozenset[str], tokens: int, meter: Meter) -> str:
    """Returns the run of whole sentences of a passage that is most relevant to `query` (folded words) and fits. The
    worth of a run is the sum over its query words, each once, of 1 / the number of sentences with that word. Of equal
    runs the last one is taken, with what follows the words: what was settled is said after what it is about. Without a
    query word, the longest one is taken, then the first one. The user's answer in a line is shown alone if the run is
    no more than that. The result is empty if not even a cut sentence fits."""
    if Room(tokens).holds(text, meter):
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if match.end()][:_MOST_SENTENCES]
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    starts = [0, *ends[:-1]]
    room = tokens - 2 * meter.line(f" {LEFT_OUT}")
    certain = max(0, room) * MOST_CHARACTERS_PER_TOKEN  # a longer sentence is too long: it need not be counted
    sentences = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    costs = [meter.line(sentence) if len(sentence) <= certain else room + 1 for sentence in sentences]
    said = [query.intersection(words(sentence)) for sentence in sentences]
    weight = {word: 1 / sum(word in sentence for sentence in said) for word in set().union(*said)}
    best: tuple[float, int, int, int] = (-1.0, 0, 0, 0)  # worth, order of equal runs, -start, end
    last = 0
    for first in range(len(starts)):
        last = max(last, first)
        while last < len(starts) and sum(costs[first : last + 1]) <= room:
            last += 1
        if last > first:
            worth = fsum(weight[word] for word in set().union(*said[first:last]))
            start, end = starts[first], ends[last - 1]
            best = max(best, (worth, start if worth else end - start, -start, end))
    if best[0] < 0:  # each sentence alone is too long
        head = _words_within(text, room, meter, from_end=False).rstrip()
        return f"{head} {LEFT_OUT}" if head else ""
    start, end = -best[2], best[3]
    before = f"{LEFT_OUT} " if start > 0 else ""
    after = f" {LEFT_OUT}" if text[end:].strip() else ""
    shown = before + text[start:end].strip() + after
    if answer := _ANSWER.fullmatch(shown):
        shown = answer[1]
    return shown if meter.line(shown) <= tokens else ""


def _words_within(text: str, tokens: int, meter: Meter, *, from_end: bool) -> str:
    """Returns as many whole words from one end as fit."""
    reach = max(0, tokens) * MOST_CHARACTERS_PER_TOKEN
    if from_end:
        spaces = reversed(list(_SPACE.finditer(text, max(0, len(text) - reach))))
        parts = [slice(len(text), None), *(slice(space.end(), None) for space in spaces)]
    else:
        parts = [slice(0), *(slice(space.start()) for space in _SPACE.finditer(text[:reach]))]
    position = bisect_left(parts, True, key=lambda part: meter(text[part]) > tokens)
    return text[parts[position - 1]] if position else ""
