"""P3, scored knowledge: the hits of the search, best first.

If the gate is closed, only passages that are expected to be worth their tokens are shown (`push_policy`). Passages are
ordered by their worth:

    score      = relevance · decay · (1 + 0.1 · references)
    worth      = score − 0.02 · ln(10 + characters / 4)

    relevance  = the score of the search, with all its terms
    decay      = max(0.6, e^(−0.1 · days)) for knowledge files; 1 for transcripts, lines derived from them, and imports
    references = reads, recoveries and answers that used the passage's file; never compilations

`days` are whole days from the file's `updated` (else its last commit, else its mtime) to `now`, at least 0. The charge
for length puts the shorter one of two passages with similar scores first. (Measured: evidence within 512 to 4,096
tokens +.02 on long assistant chats, ±0 on short turns; a larger factor hurts those.) docs/design/retrieval.md says why.

Passages of one conversation and day, or of one file, are shown under one short header, one turn a line. Of a passage
that is longer than its share of the room, the sentences most relevant to the message are shown. Near-duplicates are
shown once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mcp_server.context.cut import relevant_part, without_code
from mcp_server.context.exclusions import SHOWN_ABOVE, repeated, said_above
from mcp_server.context.inputs import Candidate, CompileInputs
from mcp_server.context.sections import (
    SEPARATOR,
    Considered,
    Filling,
    Section,
    Slot,
    day_of_line,
    group_header,
    label,
    passage_line,
    passage_text,
)
from mcp_server.model import Hit, Passage
from mcp_server.search.query import plain_query
from mcp_server.text.destinations import MEMORY as MEMORY_FILE
from mcp_server.text.entries import is_derived, without_sources
from mcp_server.text.words import content_words, words
from mcp_server.tokens import MOST_CHARACTERS_PER_TOKEN, Room

DECAY_PER_DAY = 0.1
LEAST_DECAY = 0.6
PER_REFERENCE = 0.1
DIGITS = 6


def score(hit: Hit, references: int, now: datetime) -> tuple[float, Mapping[str, float]]:
    """Returns the score of a hit at `now`, and its factors by name: it is their product, rounded to six places.
    `references` counts how often its file was of use (0 or more)."""
    relevance, age = round(hit.score, DIGITS), round(decay(hit, now), DIGITS)
    used = round(1 + PER_REFERENCE * max(0, references), DIGITS)
    return round(relevance * age * used, DIGITS), {"relevance": relevance, "decay": age, "references": used}


def decay(hit: Hit, now: datetime) -> float:
    """Returns the share of its relevance that a passage keeps at its age: 0.6 to 1."""
    passage = hit.passage
    if hit.imported or passage.at is None or passage.category == "conversation" or is_derived(passage.text):
        return 1.0
    return max(LEAST_DECAY, math.exp(-DECAY_PER_DAY * max(0, (now - passage.at).days)))


_WORD = re.compile(r"\w+")
SAME = 0.8  # two passages with at least this share of common shingles count as one
SHINGLE = 3
Shingles = frozenset[int]  # hashes of the shingles: they compare several times faster than words


def shingles(text: str) -> Shingles:
    """Returns the hashes of each run of three words, or of the whole text if it is shorter."""
    said = _WORD.findall(text.lower())
    if len(said) <= SHINGLE:
        return frozenset([hash(tuple(said))]) if said else frozenset()
    return frozenset(map(hash, zip(said, said[1:], said[2:], strict=False)))


class Included:
    """The passages that are already included. Finds near-duplicates of them."""

    def __init__(self) -> None:
        self._passages: list[tuple[str, Shingles]] = []
        self._all: set[int] = set()

    def twin(self, wanted: Shingles) -> str | None:
        """Returns the id of the earliest passage that says nearly the same, or None."""
        if not wanted or len(wanted & self._all) < SAME * len(wanted):
            return None  # most passages share too little with all of them together
        for identity, known in self._passages:
            shared = len(wanted & known)
            if shared >= SAME * (len(wanted) + len(known) - shared):
                return identity
        return None

    def add(self, identity: str, known: Shingles) -> None:
        """Adds a passage that is included."""
        self._passages.append((identity, known))
        self._all |= known


HEADING = label("knowledge", "from past conversations and files; search and read give more")
SHORT_HEADING = "<!-- search gives more -->"

TOOL = re.compile(r"\[\w[\w.:-]*\] ")
"""The beginning of a line of a turn that a tool wrote, as `passages` gives it."""

LENGTH_CHARGE = 0.02
LENGTH_START = 10
CHARACTERS_PER_TOKEN = 4  # an estimate: counting each candidate's tokens would take longer than all the rest
LONGEST_SHARE = 1 / 8
"""Of a passage longer than this share of the room and than `passage_tokens`, only the relevant part is shown."""

LEAST_PART = 40  # tokens below which a part of a passage is not worth showing
LEAST_LINE = 6  # tokens of room below which no further passage is measured

_COURTESY = (
    "ok okay thanks thank thx cheers you very so much a lot again welcome noted great good nice cool perfect awesome "
    "hi hello hey morning evening night bye goodbye hvala dobro danke bitte"
)
COURTESY = frozenset(words(_COURTESY))
LONGEST_COURTESY = 40  # characters
NO_ROOM = "no room left"
Group = tuple[str, str]  # passages under one header: a conversation or file, and a day


@dataclass(frozen=True, slots=True)
class _Scored:
    """A candidate with its score and its factors, the charge for its length, its worth and its text as `passage_text`
    gives it."""

    candidate: Candidate
    passage: Passage
    score: float
    factors: Mapping[str, float]
    charge: float
    worth: float
    id: str
    group: Group
    text: str


@dataclass(frozen=True, slots=True)
class _Line:
    """A passage's line and its cost in tokens, including the header if it opens or extends a group."""

    scored: _Scored
    text: str
    whole: bool
    cost: int


class _Shelf:
    """The room of P3 and the lines in it so far."""

    def __init__(self, filling: Filling, room: Room) -> None:
        self._meter = filling.meter
        self._query = frozenset(content_words(plain_query(filling.inputs.message).text))
        self._short = filling.inputs.settings.short_headers
        self._heading = "" if filling.inputs.is_push else SHORT_HEADING if self._short else HEADING
        self._year = int(filling.inputs.local_date[:4]) if self._short else None
        self._most = max(filling.inputs.settings.passage_tokens, int(room.tokens * LONGEST_SHARE))
        self.left = room.tokens - (self._meter(self._heading + SEPARATOR) if self._heading else 0)
        self.lines: list[_Line] = []
        self.cut: dict[Group, bool] = {}
        self._headers: dict[tuple[Group, bool], int] = {}
        self._days: set[str] = set()

    def line(self, scored: _Scored) -> _Line:
        """Returns a passage's line: the whole passage if it is within its share and fits, else its relevant part.

        A derived line is short, and always whole: without its end it may say the opposite ("(amended: …)"). If it does
        not fit, it is left out.
        """
        text = self._to_the_point(scored.passage, scored.text)
        whole = self._line(scored, text, scored.candidate.hit.whole and text == scored.text)
        if is_derived(scored.passage.text):
            return whole
        is_short = self._meter.line(whole.text) <= self._most
        if is_short and (whole.cost <= self.left or self.left < LEAST_PART):
            return whole
        room = min(self._most, self.left - self._line(scored, "", False).cost)
        part = relevant_part(text, self._query, room, self._meter) if room >= LEAST_PART else ""
        return self._line(scored, part, False) if part else whole

    def _to_the_point(self, passage: Passage, text: str) -> str:
        """Returns the text without pasted code that is not relevant to the message; in a push also without such lines
        of tools."""
        if passage.category != "conversation":
            return text
        if self._short:
            said = [row for row in text.split("\n") if not TOOL.match(row) or self._query & set(content_words(row))]
            text = "\n".join(said) if any(row.strip() for row in said) else text
        if "```" not in text and "~~~" not in text:
            return text
        return without_code(text, self._query, begins_inside=passage.part > 0)

    def put(self, line: _Line) -> None:
        if self._short:
            self._days.add(group_header(line.scored.passage, cut=False, year=self._year))
        self.lines.append(line)
        self.left -= line.cost
        self.cut[line.scored.group] = self.cut.get(line.scored.group, False) or not line.whole

    def _line(self, scored: _Scored, text: str, whole: bool) -> _Line:
        shown = passage_line(scored.passage, text, cut=not (whole or self._short))
        before = self.cut.get(scored.group)
        now = self._header(scored, cut=bool(before) or not whole)
        paid = 0 if before is None else self._header(scored, cut=before)
        return _Line(scored, shown, whole, self._meter.line(shown) + now - paid)

    def _header(self, scored: _Scored, *, cut: bool) -> int:
        """Returns the tokens of the header of a passage's group; a short one, a day, is shown once for all of them."""
        known = self._headers.get((scored.group, cut))
        if known is None or self._short:
            header = group_header(scored.passage, cut=cut, year=self._year)
            if header in self._days:
                return 0
            known = self._headers[scored.group, cut] = self._meter.line(header)
        return known

    def rendered(self) -> str:
        """Returns the section's text: files by rank, then conversations by date, each under its header."""
        groups: dict[Group, list[_Line]] = {}
        for line in self.lines:
            groups.setdefault(line.scored.group, []).append(line)

        def place(group: Group) -> tuple[bool, str, str]:
            of_day = groups[group][0].scored.passage.category == "conversation" or (self._short and group[1] != "")
            return of_day, group[1] if of_day else "", group[0] if of_day else ""

        blocks, above = [self._heading] if self._heading else [], ""
        for group in sorted(groups, key=place):
            inside = sorted(groups[group], key=lambda line: (line.scored.passage.start, line.scored.passage.part))
            header = group_header(inside[0].scored.passage, cut=self.cut[group], year=self._year)
            blocks += [header] if header != above or not self._short else []
            blocks += [line.text for line in inside]
            above = header
        return "\n".join(blocks)


def fill(filling: Filling, room: Room, hidden: frozenset[int] = frozenset()) -> Section:
    """Returns the best passages that fit. `hidden` are turns of the session that the history already shows."""
    inputs, ranked, shelf = filling.inputs, _ranked(filling.inputs), _Shelf(filling, room)
    seen, lines = Included(), filling.shown_lines()
    of_files = ["" if one.passage.category == "conversation" else one.passage.text for one in ranked]
    again = set(repeated(of_files, said_above(filling)))
    templates = frozenset(source.path for source in inputs.files if source.untouched)
    account = []
    for place, scored in enumerate(ranked):
        reason = _ruled_out(inputs, scored, lines, hidden, templates) or (SHOWN_ABOVE if place in again else None)
        account.append(_account(scored, reason) if reason else _considered(scored, shelf, seen))
    if not shelf.lines:
        return Section(considered=tuple(account))
    own = frozenset(line.scored.passage.turn or 0 for line in shelf.lines if _own(inputs, line.scored.passage))
    return Section(shelf.rendered(), tuple(account), turns=own)


def _considered(scored: _Scored, shelf: _Shelf, seen: Included) -> Considered:
    """Adds a passage if it fits and says something new."""
    least = LEAST_PART if len(scored.text) > shelf.left * MOST_CHARACTERS_PER_TOKEN else LEAST_LINE
    if shelf.left < least:  # it certainly does not fit
        return _account(scored, NO_ROOM)
    said = shingles(f"{scored.passage.speaker}: {without_sources(scored.passage.text)}")
    twin = seen.twin(said)
    if twin is not None:
        return _account(scored, f"says nearly the same as {twin}")
    line = shelf.line(scored)
    if line.cost > shelf.left:
        return _account(scored, NO_ROOM, line.cost)
    shelf.put(line)
    seen.add(scored.id, said)
    reason = "relevant" if line.whole else "relevant, in part"
    return _account(scored, reason, line.cost, included=True, whole=line.whole)


def _ranked(inputs: CompileInputs) -> list[_Scored]:
    """Returns the candidates by worth, then by path and line."""
    passages = [one.hit.passage for one in inputs.hits]
    texts = list(map(passage_text, passages))
    scored = []
    for candidate, passage, text in zip(inputs.hits, passages, texts, strict=True):
        total, factors = score(candidate.hit, candidate.references, inputs.now)
        charge = round(LENGTH_CHARGE * math.log(LENGTH_START + len(text) / CHARACTERS_PER_TOKEN), DIGITS)
        dated = passage.category == "conversation" or not is_derived(passage.text)  # a line has its date
        day = passage.at.date().isoformat() if passage.at and dated else ""
        if inputs.settings.short_headers and (of_line := day_of_line(passage)):
            day, text = of_line, text.removeprefix(f"{of_line}: ")
        name, group = f"{passage.path}:{passage.start}-{passage.end}", (passage.path, day)
        worth = round(total - charge, DIGITS)
        scored.append(_Scored(candidate, passage, total, factors, charge, worth, name, group, text))
    return sorted(scored, key=lambda one: (-one.worth, one.passage.path, one.passage.start, one.passage.part))


def _own(inputs: CompileInputs, passage: Passage) -> bool:
    return bool(inputs.session) and passage.session == inputs.session


def _ruled_out(
    inputs: CompileInputs,
    scored: _Scored,
    shown: Mapping[str, frozenset[int]],
    hidden: frozenset[int],
    templates: frozenset[str],
) -> str | None:
    """Returns why a passage is excluded, or None. `shown` are the lines of files that earlier slots show, `templates`
    the paths of files that nobody has filled in."""
    passage = scored.passage
    if scored.candidate.out:
        return scored.candidate.out
    if inputs.gate is not None and not inputs.gate.open and not scored.candidate.worthwhile:
        return "gate closed: nothing here is about the message"
    rows = (row.strip() for row in passage.text.split("\n"))
    if all(not row or (passage.category != "conversation" and row.startswith("#")) for row in rows):
        return "empty"
    is_short = passage.category == "conversation" and len(passage.text) <= LONGEST_COURTESY
    if is_short and COURTESY.issuperset(words(passage.text)):  # a "yes" is an answer
        return "courtesy: it says nothing"
    if _own(inputs, passage):
        left_the_window = inputs.in_window is not None and (passage.turn or 0) < inputs.in_window
        if inputs.delivery == "add" and not left_the_window:
            return "the client has it: a turn of this session"
        if inputs.as_of is not None and (passage.turn or 0) > inputs.as_of:
            return "said after the turn that this context is for"
        if passage.turn in hidden:
            return "shown in the history"
    last = inputs.last_session
    if last is not None and passage.path == last.path and any(turn.number == passage.turn for turn in last.turns):
        return "shown as the last session's end"
    if passage.category == "topic":
        return "a topic: what brings it in are its triggers"
    if passage.path == MEMORY_FILE and inputs.kind != "main":
        return f"for main sessions only, this one is {inputs.kind}"
    if passage.path in templates:
        return "template, not filled in"
    lines = range(passage.start, passage.end + 1)
    if passage.category != "conversation" and shown.get(passage.path, frozenset()).issuperset(lines):
        return SHOWN_ABOVE
    return None


def _account(
    scored: _Scored, reason: str, tokens: int = 0, *, included: bool = False, whole: bool = True
) -> Considered:
    passage = scored.passage
    return Considered(
        id=scored.id,
        slot="knowledge",
        source=passage.path,
        included=included,
        reason=reason,
        tokens=tokens,
        score=scored.score,
        charge=scored.charge,
        terms=scored.factors,
        relevance=scored.candidate.hit.terms,
        unit=passage.unit,
        turn=passage.turn,
        whole=whole,
    )


def _floor(filling: Filling) -> int:
    """Returns the reserved share of the budget; 0 if every candidate is excluded."""
    inputs = filling.inputs
    opened = inputs.gate is None or inputs.gate.open
    if not any((opened or one.worthwhile) and not one.out for one in inputs.hits):
        return 0
    floors = inputs.settings
    return int(filling.allowance * (floors.knowledge_floor_add if inputs.delivery == "add" else floors.knowledge_floor))


KNOWLEDGE = Slot("knowledge", "knowledge", fill, needs="hits", floor=_floor)
