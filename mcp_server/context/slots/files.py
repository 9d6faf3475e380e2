"""P0 identity and P1 memory, journal, projects: the workspace files in every context, and the items in force.

Files of one slot share its room so that small ones stay whole. Lines that an earlier slot shows are not repeated. A
file that does not fit loses its oldest dated entries first, and its last line says how to read them.

Rules, decisions in force, facts and open items of the project's page need no match with the message: a prompt rarely
shares a word with the rule it needs ("set up the CI job" and "stay on Python 3.11"). If they do not all fit, rules get
half of the room, and the others are chosen by how likely a later prompt needs them and by their tokens. With a message,
the lines come in the order of the search.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from mcp_server.context.cut import beginning
from mcp_server.context.exclusions import (
    CACHED_PAGES,
    NO_LONGER_SO,
    SHOWN_ABOVE,
    overtaken_lines,
    repeated,
    said_above,
    without,
)
from mcp_server.context.inputs import CompileInputs
from mcp_server.context.sections import (
    NO_ROOM_IN_SHARE,
    NOTHING,
    SEPARATOR,
    Considered,
    Filling,
    Section,
    Slot,
    file_text,
    heading_of,
    label,
    one_line,
    tight,
)
from mcp_server.knowledge.anchors import anchored_entries
from mcp_server.model import SourceFile, Withheld
from mcp_server.text.destinations import (
    DECISIONS,
    ENDED,
    FACTS,
    GENERAL_PAGE,
    JOURNALS,
    OPEN,
    OWN,
    PEOPLE_SECTIONS,
    PROJECT_INDEX,
    PROJECTS,
    REPLACED,
    RULES,
    USER_FILE,
    is_page,
)
from mcp_server.text.destinations import MEMORY as MEMORY_FILE
from mcp_server.text.entries import Source, entries, is_state, sources_of, without_sources
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import as_shown, sections, without_comments
from mcp_server.text.prose import sentences
from mcp_server.text.words import words
from mcp_server.tokens import MOST_CHARACTERS_PER_TOKEN, Meter, Room, shared_out
from mcp_server.understanding.cues import subject_stems
from mcp_server.understanding.model import recognizer

KINDS = {RULES: "Rules", DECISIONS: "Decided", OPEN: "Open", FACTS: "Facts"}
"""Sections of the page, and their headings in the context."""

RULES_SHARE = 0.5
"""Share of the room that rules may take if not everything fits, because search rarely finds a rule for the prompt that
it applies to. What they leave is for the other lines."""

ORDER = "oldest first, a later line overrides an earlier one"
"""Shown above the lines in force, which have no dates: a replaced line may still be there beside the newer one."""

NEEDED: Mapping[str, float] = {RULES: 0.064, DECISIONS: 0.049, OPEN: 0.034, FACTS: 0.032}
OLDEST, LIKELY, COST = 0.027, 0.003, 15
"""The order without a message: the highest worth for its tokens first.

    worth = (NEEDED[section] − OLDEST × share of the section's lines that are newer + LIKELY × logit) / (tokens + COST)

The first part is the share of a project's later prompts that need a line; `logit` is that of the probability with which
its words state an item of the section (`Model.states`), and the highest one for a line that a person or an agent wrote.
Fitted on 125 labeled conversations, measured on 38 others (`benchmarks/README.md`)."""

LEAST_LIKELY, MOST_LIKELY = 0.01, 0.999
"""Lower and higher probabilities of a line count as these."""

_ITEMS = {RULES: "rule", DECISIONS: "decision", OPEN: "open", FACTS: "fact"}

SECTIONS = ENDED.union(KINDS)
_DONE = re.compile(r"\[[xX]\] ")  # a task with a checked box, which is not open


@dataclass(frozen=True, slots=True, eq=False)
class PageLine:
    """A line of the page: its section, its text without date and sources, the folded words of each sentence of that
    (`said`, with a space on both sides), the text as a neutralized bullet (`shown`), its line number in the file, its
    day, and the first turn that it comes from, if it is derived."""

    section: str
    text: str
    said: tuple[str, ...]
    shown: str
    path: str
    line: int
    day: str
    source: Source | None


@lru_cache(maxsize=CACHED_PAGES)
def page_lines(source: SourceFile) -> tuple[PageLine, ...]:
    """Returns the lines of a page's item sections, in the order of the file: derived ones and those that a person or an
    agent wrote, except tasks with a checked box. A line that a newer one supersedes ("no Redis: Postgres instead")
    counts as replaced."""
    gone = overtaken_lines(source.text)
    return tuple(
        PageLine(
            REPLACED if one.start - 1 in gone else one.section,
            one.said,
            _sentences(one.said),
            f"- {neutralise(one.said)}",
            source.path,
            source.first_line + one.start - 1,
            one.date,
            one.sources[0] if one.sources else None,
        )
        for one in entries(source.text)
        if one.section in SECTIONS and one.start == one.end and not _DONE.match(one.said)
    )


def _sentences(text: str) -> tuple[str, ...]:
    """Returns the folded words of each sentence of a text, with a space on both sides."""
    return tuple(f" {' '.join(words(one))} " for one in sentences(text))


def _repeats(said: Iterable[str], other: Iterable[str]) -> bool:
    """Returns whether each sentence of a line (`said`) is contained, word for word, in a sentence of another line."""
    return all(any(one in told for told in other) for one in said)


def fill(filling: Filling, room: Room) -> Section:
    """Returns the lines in force, as many as fit."""
    inputs, meter = filling.inputs, filling.meter
    pages = [source for source in inputs.files if is_page(source.path) and not source.untouched]
    kept = [one for page in pages for one in page_lines(page) if one.section in KINDS and _applies(inputs, one)]
    if left_off := inputs.checkpoint:  # the page has a shorter form of long items that its section shows
        texts = (*left_off.decisions, *left_off.rules, *left_off.open_items, left_off.next_step)
        texts += tuple(one.short for one in left_off.recognized if one.text in texts)
        told = list(map(_sentences, texts))
        kept = [one for one in kept if not any(_repeats(one.said, text) for text in told)]
    if not kept:
        return NOTHING
    heading = label("what holds", f"{', '.join(dict.fromkeys(one.path for one in kept))}; {ORDER}")
    of_section = Counter(one.section for one in kept)
    headings = sum(meter.line(heading_of(KINDS[section], count - 1, count)) for section, count in of_section.items())
    left = max(0, room.tokens - meter.line(heading) - meter(SEPARATOR) - headings)
    tokens = {one: meter.line(one.shown) for one in kept}
    pools = _pools(inputs, kept, tokens)
    protected = {
        (page.path, page.first_line + start - 1)
        for page in (pages if inputs.anchors else ())
        for start in anchored_entries(inputs.anchors, page.path, entries(page.text), page.first_line - 1)
    }
    for pool, _ in pools:
        pool.sort(key=lambda one: (one.path, one.line) not in protected)
    needs = [sum(tokens[one] for one in pool) for pool, _ in pools]
    given = [min(need, int(left * share)) for need, (_, share) in zip(needs, pools, strict=True)]
    for place, need in enumerate(needs):  # the rest of one share goes to the others, the first ones first
        given[place] += min(need - given[place], left - sum(given))
    inside: set[PageLine] = set()
    repeated: set[PageLine] = set()
    spare = 0
    for (pool, _), pool_room in zip(pools, given, strict=True):
        spare = _take(pool, spare + pool_room, tokens, inside, repeated)
    _take([one for pool, _ in pools for one in pool], spare, tokens, inside, repeated)  # the rest of the shares
    shown: list[str] = []
    for section, title in KINDS.items():
        here = [one for one in kept if one.section == section and one in inside]
        here.sort(key=lambda one: (one.path != GENERAL_PAGE, one.line))
        left_out = sum(one.section == section and one not in inside and one not in repeated for one in kept)
        shown += [heading_of(title, len(here), len(here) + left_out), *(one.shown for one in here)] if here else []
    considered = []
    for one in (one for pool, _ in pools for one in pool):
        place_of, is_in = f"{one.path}:{one.line}-{one.line}", one in inside
        reason = "in force" if is_in else "another line says it" if one in repeated else NO_ROOM_IN_SHARE
        considered.append(
            Considered(place_of, "what holds", one.path, is_in, reason, tokens=tokens[one] if is_in else 0)
        )
    return Section("\n".join([heading, *shown]) if shown else "", tuple(considered))


def _take(
    pool: Sequence[PageLine], room: int, tokens: Mapping[PageLine, int], inside: set[PageLine], repeated: set[PageLine]
) -> int:
    """Adds lines of the pool that fit to `inside`, and returns the room that is left. A line is repeated if another one
    has all its sentences: one may be a rule and a part of a decision."""
    for one in pool:
        if one in inside or one in repeated or tokens[one] > room:
            continue
        if any(_repeats(one.said, other.said) for other in inside):
            repeated.add(one)
            continue
        inside.add(one)
        room -= tokens[one]
    return room


def _pools(
    inputs: CompileInputs, kept: Sequence[PageLine], tokens: Mapping[PageLine, int]
) -> list[tuple[list[PageLine], float]]:
    """Returns the lines that compete for the same share of the room, best first, each pool with its share: the rules,
    and the others. With a message, the order is that of the search."""
    newest = sorted(kept, key=lambda one: (one.day, one.line), reverse=True)
    if inputs.page_order:
        rank = {line: place for place, line in enumerate(inputs.page_order)}
        written = [one for one in newest if one.source is None]  # the search ranks derived lines only
        rank |= {f"{one.path}:{one.line}": 2 * place for place, one in enumerate(written)}
        ranked = sorted(newest, key=lambda one: rank.get(f"{one.path}:{one.line}", len(rank)))
    else:
        of_section = {section: [one for one in newest if one.section == section] for section in KINDS}
        worth = {
            one: (NEEDED[section] - OLDEST * place / len(lines) + LIKELY * _logit(one)) / (tokens[one] + COST)
            for section, lines in of_section.items()
            for place, one in enumerate(lines)
        }
        ranked = sorted(newest, key=lambda one: -worth[one])
    rules = [one for one in ranked if one.section == RULES]
    return [(rules, RULES_SHARE), ([one for one in ranked if one.section != RULES], 1 - RULES_SHARE)]


def _logit(one: PageLine) -> float:
    """Returns the logit of the probability that a line states an item of its section."""
    stated = recognizer().states(_ITEMS[one.section], one.text) if one.source else MOST_LIKELY
    probability = min(MOST_LIKELY, max(LEAST_LIKELY, stated))
    return math.log(probability / (1 - probability))


def _applies(inputs: CompileInputs, one: PageLine) -> bool:
    """Returns whether a line applies. Within a project, only the rules of the general page apply. Outside, its facts
    apply only without a message: they are about everything that the user ever talked about, so with a message search
    finds the relevant ones."""
    if one.path != GENERAL_PAGE or one.section == RULES:
        return True
    return not inputs.project and not (one.section == FACTS and inputs.message.strip())


IN_FORCE = Slot("what holds", "what holds", fill, needs="files", share="holding_share")
_IDENTITY_ORDER = ("SOUL.md", "USER.md", "AGENTS.md", "TOOLS.md")
NOT_ALWAYS = "not always shown: comes in where a message is about it"
NOT_A_RULE = "not a rule in force: only these come from the user's own memory"
_LONGEST_SORTED = 1_000_000
"""Characters. A larger file is cut at its end instead of by the age of its entries."""
_NEWEST_SHARE = 4  # the newest entries keep a quarter of a file's room, even if the file has much undated text
_DAY_IN_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\.md$")
_LEAST_TOKENS = 24  # tokens below which a file's block would be little more than its label


def journal_files(local_date: str) -> tuple[str, str]:
    """Returns the journals of today and yesterday in the user's time zone."""
    today = date.fromisoformat(local_date)
    return tuple(f"{JOURNALS}{day.isoformat()}.md" for day in (today, today - timedelta(days=1)))  # type: ignore[return-value]


def of_the_user(source: SourceFile) -> SourceFile:
    """Returns the part of the user's file for every context: the sections about them and their preferences. The part
    ends at the first other section, and is empty if the file has neither section."""
    lasting = (PEOPLE_SECTIONS["about"], PEOPLE_SECTIONS["preference"])
    titled = [one for one in sections(source.text) if one.level == 2]
    end = next((one.start for one in titled if one.title not in lasting), None)
    end = end if any(one.title in lasting for one in titled) else 1
    if end is None or not source.text.strip():
        return source
    rest = Withheld(NOT_ALWAYS, source.first_line + end - 1, source.first_line + source.text.rstrip().count("\n"))
    return replace(source, text="\n".join(source.text.split("\n")[: end - 1]), withheld=(rest,))


def rules_in_force(source: SourceFile) -> SourceFile:
    """Returns a page with only its rules in force."""
    kept: set[int] = set()
    for section in sections(source.text):
        kept.update(range(section.start - 1, section.end) if section.title == RULES else ())
    kept -= overtaken_lines(source.text)
    rows = source.text.split("\n")
    return without(source, {place: NOT_A_RULE for place, row in enumerate(rows) if row.strip() and place not in kept})


def _of_slot(inputs: CompileInputs, belongs: Callable[[CompileInputs, str], bool]) -> list[SourceFile]:
    """Returns the files of a slot by path, the known files of the identity first."""
    order = {name: place for place, name in enumerate(_IDENTITY_ORDER)}
    files = [source for source in inputs.files if belongs(inputs, source.path)]
    return sorted(files, key=lambda one: (order.get(one.path.rsplit("/", 1)[-1], len(order)), one.path))


def _ruled_out(inputs: CompileInputs, source: SourceFile) -> str | None:
    """Returns why a file is left out as a whole, or None."""
    if source.untouched:
        return "template, not filled in"
    if not source.text.strip():
        return "empty"
    if source.path == MEMORY_FILE and inputs.kind != "main":
        return f"for main sessions only, this one is {inputs.kind}"
    return None


def _out(inputs: CompileInputs, source: SourceFile, said: AbstractSet[str]) -> Mapping[int, str]:
    """Returns the lines of a file that are left out (from 0), each with the reason: outdated, or shown above."""
    rows = source.text.split("\n")
    if source.path.startswith(JOURNALS) or source.path == MEMORY_FILE:
        return dict.fromkeys(repeated(rows, said), SHOWN_ABOVE) | _copies(inputs, rows)
    gone = overtaken_lines(source.text) if source.path.startswith(PROJECTS) else frozenset()
    lines = page_lines(source) if is_page(source.path) else ()
    items = {one.line - source.first_line: NO_LONGER_SO if one.section in ENDED else SHOWN_ABOVE for one in lines}
    again = repeated(["" if place in items else row for place, row in enumerate(rows)], said)
    return dict.fromkeys(again, SHOWN_ABOVE) | dict.fromkeys(gone, NO_LONGER_SO) | items


def _copies(inputs: CompileInputs, rows: Sequence[str]) -> dict[int, str]:
    """Returns the lines of a journal or of MEMORY.md (from 0) that repeat lines of this context's pages, or are short
    forms of them: they have the same source and no other words. The reason is that of the page's line."""
    first = {place: turns[0] for place, row in enumerate(rows) if (turns := sources_of(row))}
    of_turn: dict[Source, list[tuple[frozenset[str], str]]] = {source: [] for source in first.values()}
    for page in filter(lambda one: of_turn and is_page(one.path), inputs.files):
        for one in page_lines(page):
            if one.source is not None and one.source in of_turn:
                reason = NO_LONGER_SO if one.section in ENDED else SHOWN_ABOVE
                of_turn[one.source].append((frozenset(" ".join(one.said).split()), reason))
    found: dict[int, str] = {}
    for place, source in first.items():
        text = without_sources(rows[place])
        said = frozenset(words(text.partition(": ")[2] or text))  # a fact has no "Decided: "
        reasons = [reason for known, reason in of_turn[source] if said <= known]
        found |= {place: reasons[0]} if reasons else {}
    return found


def _says_something(text: str) -> bool:
    """Returns whether a text has anything besides headings and the state on top of a page, which repeats its lines."""
    lines = without_comments(text).split("\n")
    return any(line.strip() and not line.startswith("#") and not is_state(line) for line in lines)


def _filler(name: str, belongs: Callable[[CompileInputs, str], bool]) -> Callable[[Filling, Room], Section]:
    """Returns the `fill` function for the files that `belongs` selects."""

    def fill(filling: Filling, room: Room) -> Section:
        sources = _of_slot(filling.inputs, belongs)
        if not sources:
            return NOTHING
        considered: list[Considered] = []
        wanted: list[Prepared] = []
        reasons = [_ruled_out(filling.inputs, source) for source in sources]
        said = frozenset() if all(reasons) else said_above(filling)
        asked = subject_stems(filling.inputs.message)
        for source, reason in zip(sources, reasons, strict=True):
            rest = source if reason else without(source, _out(filling.inputs, source, said))
            if rest.withheld and not reason and not _says_something(rest.text):
                reason = SHOWN_ABOVE if rest is not source else rest.withheld[0].reason
            for one in rest.withheld:
                if one.reason != reason:  # else the line for the whole file says it
                    place = f"{rest.path}:{one.start}-{one.end}" if one.end else rest.path
                    considered.append(Considered(place, name, rest.path, False, one.reason))
            file = None if reason else prepared(name, rest, filling.inputs.anchors, asked)
            if file is not None:
                wanted.append(file)
            elif source.text.strip() or not source.withheld:
                considered.append(account(name, source, included=False, reason=reason or "empty"))
        if not wanted:
            return Section(considered=tuple(considered))
        blocks: list[str] = []
        lines: dict[str, frozenset[int]] = {}
        meter = filling.meter
        needs = [file.need(room, meter) for file in wanted]
        for file, tokens in zip(wanted, shared_out(needs, room.tokens), strict=True):
            spent = sum(len(block.encode("utf-8", "replace")) + len(SEPARATOR) for block in blocks)
            shown = file.within(Room(tokens, room.bytes - spent), meter)
            if shown is None:
                considered.append(account(name, file.source, included=False, reason=NO_ROOM_IN_SHARE))
                continue
            blocks.append(shown.text)
            lines[file.source.path] = shown.lines
            reason = "always shown" if shown.whole else "always shown, cut to its share"
            of_text = {"tokens": meter(shown.text), "whole": shown.whole}
            considered.append(account(name, file.source, included=True, reason=reason, **of_text))
        return Section(SEPARATOR.join(blocks), tuple(considered), lines)

    return fill


@dataclass(frozen=True, slots=True)
class Shown:
    """A file's block: its label and as much of its text as fits. `lines` are the shown line numbers."""

    text: str
    lines: frozenset[int]
    whole: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """A file ready to be shown: its label and neutralized text, from line `source.first_line` of the file on. `anchors`
    are the anchored texts, which protect entries from being cut, `asked` the subject's stems of the message."""

    source: SourceFile
    head: str
    text: str
    anchors: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()

    def need(self, room: Room, meter: Meter) -> int:
        """Returns the tokens of the whole block, or all tokens of `room` if the block cannot fit."""
        if len(self.text) > room.tokens * MOST_CHARACTERS_PER_TOKEN:
            return room.tokens
        return sum(map(meter, (f"{self.head}\n", f"{self.text}\n", SEPARATOR)))

    def within(self, room: Room, meter: Meter) -> Shown | None:
        """Returns the block within this room, without its oldest entries if necessary; None if too little fits."""
        inside = room.less(self.head, meter)
        if not inside.holds(self.text, meter):
            newest = self._newest(inside, meter)
            if newest is not None:
                return newest if inside.tokens >= _LEAST_TOKENS else None
        shown = beginning(self.text, inside, meter, self._mark)
        if not shown.whole and (inside.tokens < _LEAST_TOKENS or not _says_something(self.text[: shown.end])):
            return None
        text = min(f"{self.head}\n{tight(shown.text)}", f"{self.head}\n{shown.text}", key=meter)
        return Shown(text, frozenset(range(self._first_left_out(shown.end))), shown.whole)

    def _first_left_out(self, end: int) -> int:
        """Returns the number of the first line that is not shown whole, if `end` characters of the text are shown."""
        rest = self.text[end:]
        line = self.source.first_line + self.text.count("\n", 0, len(self.text) - len(rest.lstrip()))
        return line + (0 if rest.strip() else 1)

    def _mark(self, end: int) -> str:
        last = self.source.first_line + self.text.count("\n")
        first = min(last, self._first_left_out(end))
        return f"[cut: lines {first}-{last} are left out; read {one_line(self.source.path, 300)}]"

    def _newest(self, inside: Room, meter: Meter) -> Shown | None:
        """Returns the block with as many lines as fit; None if the file has no dated entries, or if nothing fits."""
        order = self._leaving(inside, meter) if len(self.text) <= _LONGEST_SORTED else []
        if not order:
            return None
        lines = self.text.split("\n")
        path = one_line(self.source.path, 300)

        def left(count: int) -> frozenset[int]:
            return frozenset(number for block in order[:count] for number in block)

        def text(count: int) -> str:
            gone = left(count)
            kept = tight("\n".join("" if number in gone else line for number, line in enumerate(lines, 1)))
            which = (
                "the oldest entries without a word of the message first" if self.asked else "the oldest entries first"
            )
            return f"{kept}\n[cut: {len(gone)} lines are left out, {which}; read {path}]"

        count = bisect_left(range(len(order)), True, lo=1, key=lambda number: inside.holds(text(number), meter))
        if count == len(order):
            return None
        above = self.source.first_line - 1
        shown = frozenset(range(above + len(lines) + 1)) - {above + number for number in left(count)}
        return Shown(f"{self.head}\n{text(count)}", shown, False)

    def _leaving(self, inside: Room, meter: Meter) -> list[range]:
        """Returns blocks of lines (from 1) in the order of cutting: the oldest dated entries without a word of the
        message, those with few, other lines from the end, the newest entries, then anchored ones. Empty if no entry is
        dated."""
        found = entries(self.text)
        in_name = _DAY_IN_NAME.search(self.source.path)
        day = in_name[1] if in_name else ""
        kept = anchored_entries(self.anchors, self.source.path, found, self.source.first_line - 1)
        dated = sorted(
            (one for one in found if one.date or day),
            key=lambda one: (len(self.asked & subject_stems(one.said)), one.date or day, one.start),
        )
        blocks = [range(one.start, one.end + 1) for one in dated if one.start not in kept]
        share = Room(inside.tokens // _NEWEST_SHARE, inside.bytes // _NEWEST_SHARE)
        lines = self.text.split("\n")
        newest: list[range] = []
        for block in reversed(blocks):
            text = "\n".join(lines[block.start - 1 : block.stop - 1])
            if not share.holds(text, meter):
                break
            share = share.less(text, meter)
            newest.insert(0, block)
        of_dated = {number for block in blocks for number in block}
        of_dated |= {number for one in found if one.start in kept for number in range(one.start, one.end + 1)}
        others = [
            range(number, number + 1)
            for number, line in reversed(list(enumerate(lines, 1)))
            if number not in of_dated and line.strip() and not line.startswith("#")
        ]
        anchored = [range(one.start, one.end + 1) for one in found if one.start in kept]
        return [*blocks[: len(blocks) - len(newest)], *others, *newest, *anchored] if blocks else []


def prepared(
    name: str, source: SourceFile, anchors: tuple[str, ...] = (), asked: frozenset[str] = frozenset()
) -> Prepared | None:
    """Returns a file ready to be shown under the label `name`, with the labels of its wiki links instead of them; None
    if it has no text."""
    text = as_shown(file_text(source.text))
    blank = len(text) - len(text.lstrip("\n"))
    if blank == len(text):
        return None
    shown = replace(source, text=source.text.split("\n", blank)[-1], first_line=source.first_line + blank)
    return Prepared(shown, label(name, source.path), text[blank:], anchors, asked)


def account(slot: str, source: SourceFile, *, included: bool, reason: str, **more: Any) -> Considered:
    """Returns a file's line in the receipt; `more` are further fields of it."""
    last = source.first_line + source.text.count("\n")
    return Considered(f"{source.path}:{source.first_line}-{last}", slot, source.path, included, reason, **more)


def _floor(belongs: Callable[[CompileInputs, str], bool], part: float) -> Callable[[Filling], int]:
    """Returns a function that gives the part of P1's share which earlier slots keep free for these files, if they hold
    more than what other slots show."""

    def floor(filling: Filling) -> int:
        there = (
            _ruled_out(filling.inputs, source) is None
            and _says_something(without(source, _out(filling.inputs, source, frozenset())).text)
            for source in _of_slot(filling.inputs, belongs)
        )
        return int(int(filling.allowance * filling.inputs.settings.memory_share) * part) if any(there) else 0

    return floor


def _slot(
    name: str,
    belongs: Callable[[CompileInputs, str], bool],
    most_kb: str = "",
    share: str = "memory_share",
    least: float = 0.0,
) -> Slot:
    """Returns the slot of the files whose paths `belongs` selects. `least` is the part of P1's share that is kept free
    for them."""
    group = "P1" if share == "memory_share" else name
    floor, fill = _floor(belongs, least) if least else None, _filler(name, belongs)
    return Slot(name, group, fill, needs="files", share=share, floor=floor, most_kb=most_kb, grows=True)


IDENTITY = _slot(
    "identity",
    lambda inputs, path: path.startswith((OWN, "knowledge/identity/")) or path == USER_FILE,
    "identity_kb",
    "identity_share",
)
MEMORY = _slot("memory", lambda inputs, path: path == MEMORY_FILE, "memory_kb")
JOURNAL = _slot("journal", lambda inputs, path: path in journal_files(inputs.local_date), "journal_kb", least=0.2)
ACTIVE_PROJECTS = _slot("active projects", lambda inputs, path: path == PROJECT_INDEX, "active_projects_kb", least=0.1)
PROJECT = _slot(
    "project",
    lambda inputs, path: path == GENERAL_PAGE or (path.startswith(PROJECTS) and path.count("/") > 2),
    least=0.3,
)
