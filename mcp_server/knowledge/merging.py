"""Merging: derived lines into a file, so that nothing stands there twice and doing it again changes nothing.

A line that says what a hand-written one says is left out. One that says what a derived line says lends it its source;
of the two wordings the one that was said first stays. Derived lines of a section stand in the order of their days, in
the places that derived lines have; every other line of the file keeps its place and its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mcp_server.knowledge.duplicates import is_duplicate, keywords, normalised
from mcp_server.knowledge.places import ENDED, PEOPLE_SECTIONS
from mcp_server.text import entries
from mcp_server.text.derived_lines import MOST_SOURCES, Line, Source, entry, sources_of, without_sources
from mcp_server.text.destinations import Place
from mcp_server.text.markdown import sections

SETTLED_SECTIONS = frozenset(section.casefold() for section in ENDED)

ORDER = tuple(dict.fromkeys(PEOPLE_SECTIONS.values()))

_DATED = re.compile(r"^[-*+] (?:(\d{4}-\d{2}-\d{2})(?:\s*[:—–-]\s*|\s+))?")


@dataclass(slots=True)
class _Known:
    """A line of the file: `place` is its number in the body, None for one that is to be added to `section`."""

    section: str
    day: str
    text: str
    sources: tuple[Source, ...]
    place: int | None
    level: int = 2
    changed: bool = False
    confirmed: set[Source] = field(default_factory=set)

    @property
    def order(self) -> tuple[str, str, int]:
        first = self.sources[0]
        return self.day or first.path.removeprefix("raw/conversations/")[:10].replace("/", "-"), first.path, first.turn

    @property
    def written(self) -> str:
        return entry(self.day, self.text, self.sources)


class _Body:
    """A file's body with its lines looked up by their words."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.known: list[_Known] = []
        self._by_word: dict[str, list[_Known]] = {}
        for found in entries.entries(body):
            first = found.text.split("\n", 1)[0]
            sources = sources_of(found.text) if found.start == found.end else ()
            dated = _DATED.match(first)
            text = without_sources(found.text[dated.end() :] if dated else found.text).strip()
            self._add(_Known(found.section.casefold(), (dated[1] or "") if dated else "", text, sources, found.start))

    def has(self, line: Line) -> bool:
        """Whether the line stands there, from the same turn."""
        twin = self._twin(line)
        return twin is not None and (line.source in twin.sources or _is_full(twin, line))

    def merge(self, place: Place, line: Line, stale: frozenset[str]) -> None:
        twin = self._twin(line, place.section)
        if twin is None or (line.path in stale and _moves(twin, place, line)):
            new = _Known(place.section, line.day, line.text, (line.source,), None, place.level, changed=True)
            new.confirmed.add(line.source)
            self._add(new)
            return
        twin.confirmed.add(line.source)
        if line.source in twin.sources:
            if line.path in stale and len(twin.sources) == 1:
                twin.text, twin.day, twin.changed = line.text, line.day, True
            return
        if not twin.sources or _is_full(twin, line):
            return
        sources = tuple(sorted({*twin.sources, line.source}, key=lambda one: (one.path, one.turn)))
        if sources[0] == line.source:
            twin.text, twin.day = line.text, line.day
        twin.sources, twin.changed = sources[:MOST_SOURCES], True

    def _twin(self, line: Line, section: str = "") -> _Known | None:
        candidates: dict[int, _Known] = {}
        for word in keywords(line.text) or {normalised(line.text)}:
            for known in self._by_word.get(word, ()):
                candidates[id(known)] = known
        twins = [known for known in candidates.values() if _same(known, line) and _can_be_twin(known, line)]
        # its own line first, so that what is there already is found there
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


def _replaces(new: _Known, old: _Known, source: Source) -> bool:
    """Whether a line that was found again in the turn `source` has half of the key words of an older line of it."""
    if source not in new.confirmed or new.section.casefold() != old.section.casefold():
        return False
    words = keywords(old.text)
    return 2 * len(words & keywords(new.text)) >= len(words)


def _can_be_twin(known: _Known, line: Line) -> bool:
    """Returns whether a line that says the same joins a known one: a replaced decision that is made again is new."""
    return known.section not in SETTLED_SECTIONS or line.source in known.sources[:1]


def _moves(twin: _Known, place: Place, line: Line) -> bool:
    """Returns whether a line that is read anew belongs into another section than that in which its old self stands.

    A settled item stays where it is: it is moved back elsewhere, or a person moved it.
    """
    if twin.section in SETTLED_SECTIONS:
        return False
    old = twin.sources == (line.source,) and line.source not in twin.confirmed
    return old and twin.section.casefold() != place.section.casefold()


def standing(body: str, lines: Iterable[Line]) -> list[bool]:
    """For each of these lines, whether it stands in a file's body already, from the same turn."""
    file = _Body(body)
    return [file.has(line) for line in lines]


def _is_full(twin: _Known, line: Line) -> bool:
    """Whether a line names as many sources as it may, all of them earlier than this one."""
    return len(twin.sources) >= MOST_SOURCES and (line.path, line.turn) > (twin.sources[-1].path, twin.sources[-1].turn)


def _same(known: _Known, line: Line) -> bool:
    """Whether two lines say the same. What happened on two days happened twice."""
    if normalised(known.text) == normalised(line.text):
        return known.day == line.day or line.kind not in ("event", "plan") or line.source in known.sources
    if line.kind in ("event", "plan") and known.day != line.day:
        return False
    return is_duplicate(known.text, line.text)


def merged(
    body: str,
    placed: Iterable[tuple[Place, Line]],
    stale: frozenset[str] = frozenset(),
    kept: tuple[str, ...] = (),
    replaced_only: frozenset[str] = frozenset(),
) -> str:
    """Returns the body of a file with these lines in it; the same text if it has all of them already.

    `stale` are transcripts that were read again: lines that only an earlier reading found are removed, but for those
    that begin with one of `kept`. A line of one of the transcripts `replaced_only` is removed only if a new line of the
    same turn and section replaces it.
    """
    file = _Body(body)
    for place, line in placed:
        file.merge(place, line, stale)
    drop: set[int] = set()
    for known in file.known if stale else ():
        sources = tuple(
            one
            for one in known.sources
            if one.path not in stale
            or one in known.confirmed
            or (one.path in replaced_only and not any(_replaces(new, known, one) for new in file.known))
        )
        if sources == known.sources or known.text.startswith(kept or ("\0",)):
            continue
        if known.section in SETTLED_SECTIONS and known.sources[0] not in sources:
            sources = ()  # the others only say what settled it
        known.sources, known.changed = sources, True
        if not sources and known.place is not None:
            drop.add(known.place)
    if not any(known.changed for known in file.known):
        return body
    rows = body.split("\n")
    for known in file.known:
        if known.changed and known.place is not None:
            rows[known.place - 1] = known.written
    body = "\n".join(row for number, row in enumerate(rows, 1) if number not in drop)
    for known in file.known:
        if known.place is None:
            body = entries.appended(_with_section(body, known), known.section, known.written, level=known.level)
    return in_order(body)


def _with_section(body: str, known: _Known) -> str:
    """The body with the section of a line, if it is one of a person's file, in the order of those sections."""
    if known.section not in ORDER:
        return body
    found = [section for section in sections(body, 1) if section.level == known.level]
    later = ORDER[ORDER.index(known.section) + 1 :]
    following = next((section.start for section in found if section.title in later), None)
    if following is None or any(section.title == known.section for section in found):
        return body
    rows = body.split("\n")
    return "\n".join([*rows[: following - 1], f"{'#' * known.level} {known.section}", "", *rows[following - 1 :]])


def in_order(body: str) -> str:
    """Returns the body with the derived lines of each section sorted by day, in the places that derived lines have."""
    sections: dict[str, list[_Known]] = {}
    for known in _Body(body).known:
        if known.sources:
            sections.setdefault(known.section, []).append(known)
    rows = body.split("\n")
    for lines in sections.values():
        for target, known in zip(lines, sorted(lines, key=lambda one: one.order), strict=True):
            assert target.place is not None
            rows[target.place - 1] = known.written
    return "\n".join(rows)
