"""Edits the bodies of pages: merges derived lines into them, settles their items, and removes derived lines.

**Merging.** A line with the meaning of a hand-written line is left out. A line with the meaning of a derived line only
adds its source to that line, and the older of the two wordings is kept. The derived lines of a section are sorted by
day. All other lines keep their places and bytes. Merging the same lines again changes nothing.

**Settling.** Replaced decisions and closed items move into sections of their own:

    ## Key Decisions                       ## Replaced decisions
    - 2026-11-02: Use JWT [src: 86](/B)   - 2026-11-02: Use the AppRole (replaced 2026-11-04) [src: 2](/A) [src: 86](/B)

The second source names the turn that settled the item. A line whose second source is gone moves back. If a newer line
may change a part of an item, the item stays in its section, with the note "(perhaps changed 2026-11-04)" and the source
of the newer line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from mcp_server.knowledge.duplicates import SHORTEST_KEYWORD, is_duplicate, keywords, normalised
from mcp_server.text import entries
from mcp_server.text.destinations import (
    CLOSED,
    DECISIONS,
    ENDED,
    FACTS,
    OLD_FACTS,
    OLD_RULES,
    OPEN,
    PEOPLE_SECTIONS,
    REPLACED,
    RULES,
    Place,
)
from mcp_server.text.entries import Entry, Line, Source
from mcp_server.text.forgotten import MARK
from mcp_server.text.markdown import Section, sections, without_lines
from mcp_server.understanding.cues import stems_of_text
from mcp_server.understanding.settling import CHANGEABLE, CHANGED, Statement, settle, settled_in

# ---------------------------------------------------------------- merging

SETTLED_SECTIONS = frozenset(section.casefold() for section in ENDED)

ORDER = (
    *dict.fromkeys(section for kind, section in PEOPLE_SECTIONS.items() if kind != "lesson"),
    *("About the user", RULES, "Projects", DECISIONS, "Lessons", "Lessons Learned", FACTS, OPEN),
    *(REPLACED, OLD_RULES, OLD_FACTS, CLOSED),
)
"""The order of the sections of all pages. A new section goes before the first one that comes later in this order."""

_BULLET = re.compile(r"^[-*+] (?:\d{4}-\d{2}-\d{2}(?:\s*[:—–-]\s*|\s+))?")


@dataclass(slots=True)
class _Known:
    """A line of a body. `place` is the number of the line, None for a line that is to be added to `section`.
    `confirmed` are the sources in which the line was found now."""

    section: str
    day: str
    text: str
    sources: tuple[Source, ...]
    place: int | None
    links: str = ""
    changed: bool = False
    confirmed: set[Source] = field(default_factory=set)

    @property
    def order(self) -> tuple[str, str, int]:
        first = self.sources[0]
        return self.day or first.path.removeprefix("raw/conversations/")[:10].replace("/", "-"), *first.order

    @property
    def is_settled(self) -> bool:
        """True if its sources after the first one are the turns that settled or changed it."""
        return self.section in SETTLED_SECTIONS or (bool(self.sources) and is_changed(self.text))

    @property
    def written(self) -> str:
        return entries.entry(self.day, self.text, self.sources, self.links)


def _lines(body: str) -> Iterator[_Known]:
    for one in entries.entries(body):
        text = entries.without_sources(_BULLET.sub("", one.text)).strip()
        links = entries.apart(one.text)[1] if one.sources else ""
        yield _Known(one.section.casefold(), one.date, text, one.sources, one.start, links=links)


class _Body:
    """The lines of a body, indexed by their words."""

    def __init__(self, body: str) -> None:
        self.known: list[_Known] = []
        self._by_word: dict[str, list[_Known]] = {}
        for known in _lines(body):
            self._add(known)

    def has(self, line: Line) -> bool:
        """Returns whether the body has the line, from the same turn."""
        line = replace(line, text=entries.apart(line.text)[0])
        twin = self._twin(line)
        return twin is not None and (line.source in twin.sources or _is_full(twin, line))

    def merge(self, place: Place, line: Line, stale: frozenset[str]) -> None:
        """Adds a line. If the body has a line with the same meaning, adds only the source to that line."""
        text, links = entries.apart(line.text)
        line = replace(line, text=text)
        twin = self._twin(line, place.section)
        if twin is None or (line.path in stale and _moves(twin, place, line)):
            new = _Known(place.section, line.day, text, (line.source,), None, changed=True, links=links)
            new.confirmed.add(line.source)
            self._add(new)
            return
        # Of a turn's lines with the same meaning, the first wording is kept, or a later one that contains it.
        is_better = line.source not in twin.confirmed or entries.tells_no_more(twin.text, text)
        is_new = twin.place is None or line.path in stale
        twin.confirmed.add(line.source)
        if line.source in twin.sources:
            if is_new and len(twin.sources) == 1 and is_better:
                twin.text, twin.day, twin.links, twin.changed = text, line.day, links or twin.links, True
            return
        if not twin.sources or _is_full(twin, line):
            return
        sources = tuple(sorted({*twin.sources, line.source}, key=lambda one: one.order))
        if sources[0] == line.source:
            twin.text, twin.day, twin.links = text, line.day, links or twin.links
        twin.sources, twin.changed = sources[: entries.MOST_SOURCES], True

    def _twin(self, line: Line, section: str = "") -> _Known | None:
        candidates: dict[int, _Known] = {}
        for word in keywords(line.text) or {normalised(line.text)}:
            for known in self._by_word.get(word, ()):
                candidates[id(known)] = known
        twins = [
            known
            for known in candidates.values()
            if _same(known, line) and not (section and _is_beside(known, line, section))
        ]
        # Prefer the line that was merged from the same turn before, so that merging again finds it.
        return min(
            twins,
            key=lambda known: (
                line.source not in known.sources,
                known.section.casefold() != section.casefold(),
                bool(known.sources),
            ),
            default=None,
        )

    def _add(self, known: _Known) -> None:
        self.known.append(known)
        for word in keywords(known.text) or {normalised(known.text)}:
            self._by_word.setdefault(word, []).append(known)


def _is_beside(known: _Known, line: Line, section: str) -> bool:
    """Returns whether `line` is a rule or an open item, and `known` was found in the same turn and belongs to another
    section. Both lines are kept then, even if a decision or fact quotes the rule or open item."""
    homes = {ended.casefold(): home.casefold() for ended, home in HOMES.items()}
    own = homes.get(known.section.casefold(), known.section.casefold())
    return line.source in known.confirmed and own != section.casefold() and line.kind in ("rule", "open")


def _replaces(new: _Known, old: _Known, source: Source) -> bool:
    """Returns whether the line `new` was found again in the turn `source`, is in the section of `old`, and has at least
    half of its keywords."""
    if source not in new.confirmed or new.section.casefold() != old.section.casefold():
        return False
    words = keywords(old.text)
    return 2 * len(words & keywords(new.text)) >= len(words)


def _moves(twin: _Known, place: Place, line: Line) -> bool:
    """Returns whether a line that is read again now belongs to another section than `twin`, its earlier version.
    Settled items are not moved here: `reopened` moves them back, or a person moved them."""
    old = twin.sources == (line.source,) and line.source not in twin.confirmed
    return old and twin.section not in SETTLED_SECTIONS and twin.section.casefold() != place.section.casefold()


def standing(body: str, lines: Iterable[Line]) -> list[bool]:
    """Returns for each line whether a body has it already, from the same turn."""
    file = _Body(body)
    return [file.has(line) for line in lines]


def _is_full(twin: _Known, line: Line) -> bool:
    """Returns whether a line names MOST_SOURCES sources, all of them earlier than the line's."""
    return len(twin.sources) >= entries.MOST_SOURCES and line.source.order > twin.sources[-1].order


def _same(known: _Known, line: Line) -> bool:
    """Returns whether two lines have the same meaning. Events of different days are different. A replaced decision that
    is made again is a new decision, unless the turn that settled it only repeats it."""
    if known.is_settled and line.source not in known.sources:
        return False
    said = _without_note(known.text) if known.is_settled else known.text
    if normalised(said) == normalised(line.text):
        return known.day == line.day or line.kind not in ("event", "plan") or line.source in known.sources
    return (line.kind not in ("event", "plan") or known.day == line.day) and is_duplicate(said, line.text)


def merged(
    body: str,
    placed: Iterable[tuple[Place, Line]],
    stale: frozenset[str] = frozenset(),
    kept: tuple[str, ...] = (),
    replaced_only: frozenset[str] = frozenset(),
) -> str:
    """Returns the body of a file after merging these lines into it; the same text if it has all of them already.

    `stale` are transcripts that were read again: their lines that were not found again are removed. Lines that begin
    with one of `kept` stay, and so do lines of a turn that was partly forgotten, because they cannot be found again. A
    line of a transcript in `replaced_only` is removed only if a new line of the same turn and section replaces it.
    """
    file = _Body(body)
    cut = {source for known in file.known if MARK in known.text for source in known.sources}
    for place, line in placed:
        file.merge(place, line, stale)
    drop: set[int] = set()
    for known in file.known if stale else ():
        sources = tuple(
            one
            for one in known.sources
            if one.path not in stale
            or one in known.confirmed
            or one in cut
            or (one.path in replaced_only and not any(_replaces(new, known, one) for new in file.known))
        )
        if sources == known.sources or known.text.startswith(kept or ("\0",)):
            continue
        if known.is_settled and known.sources[0] not in sources:
            sources = ()  # the others only name the turns that settled it
        known.sources, known.changed = sources, True
        if not sources and known.place is not None:
            drop.add(known.place)
    if not any(known.changed for known in file.known):
        return body
    rows = body.split("\n")
    for known in file.known:
        if known.changed and known.place is not None:
            rows[known.place - 1] = known.written
    body = without_lines("\n".join(rows), drop)
    for known in file.known:
        if known.place is None:
            body = with_entry(body, known.section, known.written)
    return in_order(body)


def with_entry(body: str, section: str, text: str) -> str:
    """Returns the body with an entry as the last one of a section. A missing section gets its place by ORDER."""
    found = [one for one in sections(body, 1) if one.title]
    if section in ORDER and not any(one.title.casefold() == section.casefold() for one in found):
        later = ORDER[ORDER.index(section) + 1 :]
        following = next((one.start for one in found if one.level == 2 and one.title in later), None)
        if following is not None:
            rows = body.split("\n")
            body = "\n".join([*rows[: following - 1], f"## {section}", "", *rows[following - 1 :]])
    return entries.appended(body, section, text)


def in_order(body: str) -> str:
    """Returns the body with the derived lines of each section sorted by day: a line that is below a newer line moves to
    directly above the first newer line. All other lines keep their places."""
    sorted_lines: dict[str, list[_Known]] = {}
    early: list[_Known] = []
    for known in _lines(body):
        if known.sources:
            lines = sorted_lines.setdefault(known.section, [])
            (early if lines and known.order < lines[-1].order else lines).append(known)
    rows = body.split("\n")
    above: dict[int | None, list[str]] = {}
    for known in sorted(early, key=lambda one: one.order):
        later = next(one for one in sorted_lines[known.section] if known.order < one.order)
        above.setdefault(later.place, []).append(known.written)
    moved = {known.place for known in early}
    return "\n".join(
        row
        for number, own in enumerate(rows, 1)
        for row in (*above.get(number, ()), *([] if number in moved else [own]))
    )


# ---------------------------------------------------------------- settling

KINDS: Mapping[str, str] = {DECISIONS: "decision", OPEN: "open", RULES: "rule", FACTS: "fact"}
HOMES = {REPLACED: DECISIONS, OLD_RULES: RULES, OLD_FACTS: FACTS, CLOSED: OPEN}
SETTLED = {
    "decision": (REPLACED, "replaced"),
    "rule": (OLD_RULES, "replaced"),
    "fact": (OLD_FACTS, "replaced"),
    "open": (CLOSED, "done"),
}
"""By kind, the section that a settled item moves to, and the verb of its note."""

_NOTE = re.compile(r" \((?:replaced|done)(?: \d{4}-\d{2}-\d{2})?\)$")
_CHANGED_NOTE = re.compile(rf" \({CHANGED}(?: \d{{4}}-\d{{2}}-\d{{2}})?\)$")


def is_changed(said: str) -> bool:
    """Returns whether a line ends with the note that it was perhaps changed. `said` is the line without its sources."""
    return _CHANGED_NOTE.search(said) is not None


def without_changed_note(said: str) -> str:
    """Returns a line without the note that it was perhaps changed. `said` is the line without its sources."""
    return _CHANGED_NOTE.sub("", said)


def _without_note(said: str) -> str:
    return _NOTE.sub("", without_changed_note(said))


MOST_HOLDERS = 2
"""Two conversations without a project have the same subject if they share a word that at most this many conversations
have. In 14 conversations about 8 subjects, this rule reduced the items that were settled by another subject from 11 to
5, and those settled by their own subject from 12 to 11 (2026-11)."""


def settled(body: str, lines: Iterable[Line], corrected: Iterable[Line] = (), *, of_one_subject: bool = True) -> str:
    """Returns the body of a page with its items settled by new `lines` (decisions, rules, facts, reports), and by lines
    that the user `corrected`, which the page has in another section or in other words.

    Only pairs with a new line are judged: lines that were settled before keep their state. If the page is not
    `of_one_subject`, an item of another conversation is settled only if both share a word that at most MOST_HOLDERS
    conversations have.
    """
    corrected = list(corrected)
    lines = [*lines, *corrected]
    before, body = body, _as_reviewed(reopened(body), lines)
    said_in: dict[Source, list[Line]] = {}
    for line in lines:
        if line.kind in CHANGEABLE:
            said_in.setdefault(line.source, []).append(line)
    statements: list[Statement] = []
    for item in _items(body, KINDS):
        if is_changed(item.said):
            continue
        new = [line for source in item.sources for line in said_in.get(source, ())]
        first = item.sources[0]
        order = _order(first, item.date, item.said)
        changes = max((line.changes for line in new), default=0.0)
        heard = frozenset(stem for line in new for stem in line.heard)
        kind = KINDS[item.section]
        statements.append(Statement(kind, item.said, order, changes, heard, is_new=bool(new), key=item))
    statements += [
        Statement("report", line.text, _order(line.source, line.said), line.changes, key=line)
        for line in lines
        if line.kind == "report"
    ]
    statements += [
        Statement(
            line.kind,
            line.text,
            _order(line.source, line.said, line.text),
            line.changes,
            frozenset(line.heard),
            key=line,
        )
        for line in corrected
    ]
    settle(statements)
    holders = {} if of_one_subject else _holders(body)
    moved: list[tuple[Entry, str, str]] = []
    for one in statements:
        if one.by is None or not isinstance(one.key, Entry):
            continue
        if not of_one_subject and not _share_a_subject(one, one.by, holders):
            continue
        by = one.by.key
        settle_as = partial(_settled, one.key, one.kind, is_whole=one.state != "changed")
        if isinstance(by, Entry):
            moved.append(settle_as(by.date, by.sources[0]))
        elif isinstance(by, Line):
            moved.append(settle_as(by.said, by.source))
    return _in_place(before, _moved(body, moved))


def _in_place(before: str, after: str) -> str:
    """Returns the body `after` its items were settled, with every item that stayed in its section at the place that it
    has in `before`."""
    left: dict[tuple[str, Source, str], list[Entry]] = {}
    for one in entries.derived(after):
        left.setdefault(_identity(one), []).append(one)
    rows, gone = before.split("\n"), []
    for one in entries.derived(before):
        if here := left.get(_identity(one)):
            rows[one.start - 1] = here.pop(0).text
        else:
            gone.append(one)
    body = entries.without("\n".join(rows), gone)
    for one in (one for new in left.values() for one in new):
        body = with_entry(body, one.section, one.text)
    return in_order(body)


def _identity(item: Entry) -> tuple[str, Source, str]:
    """Returns a key of an item that does not change when the item is settled again."""
    return item.section, item.sources[0], _without_note(item.said)


def _settled(item: Entry, kind: str, day: str, source: Source, *, is_whole: bool = True) -> tuple[Entry, str, str]:
    """Returns an item of this kind, and its section and text after the turn `source` settled it. If not `is_whole`, the
    turn perhaps changed a part of the item, which stays in its section."""
    section, verb = SETTLED[kind] if is_whole else (item.section, CHANGED)
    note = f"({verb} {day})" if day else f"({verb})"
    links = "" if is_whole else entries.apart(item.text)[1]
    said = f"{without_changed_note(item.said)} {note}"
    return item, section, entries.entry(item.date, said, (item.sources[0], source), links)


def _conversation(transcript: str) -> str:
    """Returns the beginning of the session's id, from the part of a transcript's path that `Source.order` contains."""
    return transcript.rpartition("/")[2].partition("-")[2]


def _stems(text: str) -> set[str]:
    return {stem for stem in stems_of_text(text) if stem.isalpha() and len(stem) >= SHORTEST_KEYWORD}


def _holders(body: str) -> dict[str, set[str]]:
    """Returns for each content stem of a page's derived lines the conversations that have it."""
    found: dict[str, set[str]] = {}
    for one in entries.derived(body):
        for stem in _stems(one.said):
            found.setdefault(stem, set()).add(_conversation(one.sources[0].order[0]))
    return found


def _share_a_subject(old: Statement, new: Statement, holders: Mapping[str, Collection[str]]) -> bool:
    if _conversation(old.order[1]) == _conversation(new.order[1]):
        return True
    shared = _stems(old.text) & (_stems(new.text) | new.heard)
    return any(len(holders.get(stem, ())) <= MOST_HOLDERS for stem in shared)


def _as_reviewed(body: str, lines: Iterable[Line]) -> str:
    """Returns the body after settling the items for which a line names the turn that settled them (`settled_by`)."""
    moved: list[tuple[Entry, str, str]] = []
    for line in lines:
        if line.settled_by is None:
            continue
        turn, day = line.settled_by
        for one in _items(body, (OPEN if line.kind == "open" else DECISIONS,)):
            if one.sources[0] == line.source and is_duplicate(one.said, line.text):
                moved.append(_settled(one, line.kind, day, Source(line.path, turn)))
    return _moved(body, moved)


def reopened(body: str, is_gone: Callable[[Source], bool] = lambda source: False) -> str:
    """Returns the body after moving back the settled items that name no settling turn any more, or only turns that
    `is_gone` returns True for."""
    back = []
    for one in _items(body, {*HOMES, *KINDS}):
        first, *settling = one.sources
        is_settled = _NOTE.search(one.said) if one.section in HOMES else is_changed(one.said)
        if is_settled and not is_gone(first) and all(map(is_gone, settling)):
            links = "" if one.section in HOMES else entries.apart(one.text)[1]
            text = entries.entry(one.date, _without_note(one.said), (first,), links)
            back.append((one, HOMES.get(one.section, one.section), text))
    return _moved(body, back)


def superseded(body: str, old: Entry, day: str, source: Source | None = None) -> str:
    """Returns the body of a page with an item replaced, or an open item closed, on request. `source` is the turn of the
    request; a derived line names it. `reopened` never moves such an item back."""
    first, *rest = old.text.split("\n")
    sources = entries.sources_of(first)[:1]
    section, verb = settled_section(old)
    text = f"{without_changed_note(entries.without_sources(first).rstrip())} ({verb} {day} on request)"
    marks = [one.mark for one in (*sources, source) if one is not None] if sources else []
    moved = "\n".join([" ".join((text, *marks)), *rest])
    return _moved(body, [(old, section, moved)])


def settled_section(old: Entry) -> tuple[str, str]:
    """Returns the section that an entry moves to when it is settled, and the verb of its note."""
    return SETTLED[KINDS.get(old.section, "fact")]


def without_repeats(body: str, content: str) -> str:
    """Returns the body of a page without the derived items that say the same as the hand-written `content`."""
    repeats = [one for one in _items(body, KINDS) if is_duplicate(one.said, content)]
    return entries.without(body, repeats) if repeats else body


def current_entries(body: str) -> list[Entry]:
    """Returns the entries of a file that are not in a section of replaced or closed items."""
    return [one for one in entries.entries(body) if one.section not in HOMES]


ITEMS: Mapping[str, str] = {DECISIONS: "decision", RULES: "rule", FACTS: "fact", OPEN: "open item"}
"""The sections of current items, and a word for one of them."""


def current_items(bodies: Iterable[str]) -> dict[str, list[Entry]]:
    """Returns the items of pages by the words of `ITEMS`, the newest first."""
    found: dict[str, list[Entry]] = {name: [] for name in ITEMS.values()}
    for body in bodies:
        for one in entries.entries(body):
            if one.section in ITEMS:
                found[ITEMS[one.section]].append(one)
    return {name: sorted(items, key=lambda one: one.date, reverse=True) for name, items in found.items()}


def _items(body: str, inside: Container[str]) -> list[Entry]:
    """Returns the derived entries of these sections."""
    return [one for one in entries.derived(body) if one.section in inside]


def _moved(body: str, moved: Sequence[tuple[Entry, str, str]]) -> str:
    """Returns the body without these entries, each with its new text in another section."""
    if not moved:
        return body
    body = entries.without(body, [one for one, _, _ in moved])
    for _, section, text in moved:
        body = with_entry(body, section, text)
    return in_order(body)


def _order(source: Source, day: str, said: str = "") -> tuple[datetime, str, int]:
    """Returns a sort key for the time of a statement. A statement that quotes the answer of the next turn is as late as
    that turn."""
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC) if day else datetime.min.replace(tzinfo=UTC)
    return moment, *replace(source, turn=settled_in(source.turn, said)).order


# ---------------------------------------------------------------- removing derived lines


@dataclass(frozen=True, slots=True)
class Stripped:
    """A body without its derived lines. `emptied` are the headings under which no text is left."""

    body: str
    removed: int
    emptied: frozenset[str]


def stripped(body: str, kept: tuple[str, ...] = ()) -> Stripped:
    """Returns the body without its derived lines, except those that begin with one of `kept` after their date."""
    leaving = [one for one in entries.entries(body) if entries.is_derived(one.text) and not one.said.startswith(kept)]
    rest = without_state(entries.without(body, leaving))
    return Stripped(rest, len(leaving), frozenset({one.section for one in leaving} & _empty(sections(rest))))


def without_state(body: str) -> str:
    """Returns the body of a page without the block at its top (`is_state`), and without the blank line above the
    block."""
    rows = body.split("\n")
    state = {number for number, row in enumerate(rows, 1) if entries.is_state(row)}
    above = min(state, default=1) - 1
    return without_lines(body, state | {above} if above and not rows[above - 1].strip() else state)


def without_empty(body: str, headings: Collection[str]) -> str:
    """Returns the body without those headings of `headings` that have neither text nor further headings under them."""
    found = sections(body)
    empty = _empty(found).intersection(headings)
    leaving = [one for one in found if one.title in empty and _is_bare(one)]
    return entries.without(body, leaving).rstrip("\n") + "\n" if leaving else body


def without_emptied(before: str, after: str) -> str:
    """Returns the body `after` a change without the empty headings that the program made: the headings of items, and
    headings that had derived lines `before`. The title stays."""
    made = {*KINDS, *HOMES, *(one.section for one in entries.derived(before))}
    return without_empty(after, made - {one.title for one in sections(after) if one.level == 1})


def holds_nothing(body: str) -> bool:
    """Returns whether a body has no text except headings."""
    return all(map(_is_bare, sections(body)))


def _empty(found: Sequence[Section]) -> set[str]:
    """Returns the titles of the sections that have neither text nor further headings under them."""
    above = {title for one in found for title in one.trail}
    return {one.title for one in found if one.title and _is_bare(one)} - above


def _is_bare(section: Section) -> bool:
    return all(not line.strip() or line.lstrip().startswith("#") for line in section.text.split("\n"))
