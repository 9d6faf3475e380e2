"""Settles the items of a page: replaced decisions and closed items move into sections of their own.

    ## Key Decisions                       ## Replaced decisions
    - 2026-11-02: Use JWT [src: B#86]      - 2026-11-02: Use the AppRole (replaced 2026-11-04) [src: A#27] [src: B#86]

The second source names the turn that settled the item. A line whose second source is gone moves back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from mcp_server.knowledge.duplicates import is_duplicate
from mcp_server.knowledge.merging import in_order
from mcp_server.knowledge.places import CLOSED, DECISIONS, FACTS, OLD_FACTS, OPEN, REPLACED, RULES
from mcp_server.text import entries
from mcp_server.text.derived_lines import Line, Source, entry, sources_of, without_sources
from mcp_server.text.entries import Entry
from mcp_server.understanding.features import content_stems, word_list
from mcp_server.understanding.settling import CHANGEABLE, Statement, settle

KINDS: Mapping[str, str] = {DECISIONS: "decision", OPEN: "open", RULES: "rule", FACTS: "fact"}
HOMES = {REPLACED: DECISIONS, OLD_FACTS: FACTS, CLOSED: OPEN}
SETTLED = {"decision": (REPLACED, "replaced"), "fact": (OLD_FACTS, "replaced"), "open": (CLOSED, "done")}
"""By its kind, the section that an item moves to when it is settled, and what its note says."""

LEAST_WORDS = 2
"""Words of a text that may stand for a longer one that contains it."""

_DATED = re.compile(r"^[-*+] (?:(\d{4}-\d{2}-\d{2}):? )?")
_NOTE = re.compile(r" \((?:replaced|done)(?: \d{4}-\d{2}-\d{2})?\)$")


def settled(body: str, lines: Iterable[Line]) -> str:
    """Returns the body of a page with its items settled by new `lines` (decisions, facts and reports).

    Only a pair with a new line in it is weighed: lines that were settled before keep their state.
    """
    lines = list(lines)
    body = _as_reviewed(reopened(body), lines)
    decided: dict[Source, tuple[float, frozenset[str]]] = {}
    reports: list[Line] = []
    for line in lines:
        if line.kind in CHANGEABLE:
            changes, heard = decided.get(line.source, (0.0, frozenset[str]()))
            decided[line.source] = (max(line.changes, changes), heard.union(line.heard))
        elif line.kind == "report":
            reports.append(line)
    statements: list[Statement] = []
    for item in _items(body, KINDS):
        sources = sources_of(item.text)
        new = [decided[source] for source in sources if source in decided]
        order = _order(sources[0], _day(item))
        changes = max((share for share, _ in new), default=0.0)
        heard = frozenset[str]().union(*(stems for _, stems in new))
        one = Statement(KINDS[item.section], _text(item), order, changes, heard, key=item)
        one.is_new = bool(new)
        statements.append(one)
    statements += [Statement("report", line.text, _order(line.source, line.said), key=line) for line in reports]
    settle(statements)
    moved: list[tuple[Entry, str, str]] = []
    for one in statements:
        if one.by is None or not isinstance(one.key, Entry):
            continue
        section, verb = SETTLED[one.kind]
        by = one.by.key
        if isinstance(by, Entry):
            day, source = _day(by), sources_of(by.text)[0]
        else:
            assert isinstance(by, Line)
            day, source = by.said, by.source
        first = sources_of(one.key.text)[0]
        note = f" ({verb} {day})" if day else f" ({verb})"
        moved.append((one.key, section, entry(_day(one.key), f"{_text(one.key)}{note}", (first, source))))
    return _moved(body, moved)


def _as_reviewed(body: str, lines: Iterable[Line]) -> str:
    """Returns the body with those items settled of which their lines say which turn settled them."""
    moved: list[tuple[Entry, str, str]] = []
    for line in lines:
        if line.settled_by is None:
            continue
        turn, day = line.settled_by
        section, verb = SETTLED[line.kind]
        for one in _items(body, (OPEN if line.kind == "open" else DECISIONS,)):
            if sources_of(one.text)[0] == line.source and is_duplicate(_text(one), line.text):
                text = entry(_day(one), f"{_text(one)} ({verb} {day})", (line.source, Source(line.path, turn)))
                moved.append((one, section, text))
    return _moved(body, moved)


def reopened(body: str, is_gone: Callable[[Source], bool] = lambda source: False) -> str:
    """Returns the body with those items moved back whose settling turn is no longer named, or `is_gone`."""
    back = []
    for one in _items(body, HOMES):
        first, *settling = sources_of(one.text)
        if _NOTE.search(_text(one)) and not is_gone(first) and all(map(is_gone, settling)):
            back.append((one, HOMES[one.section], entry(_day(one), _NOTE.sub("", _text(one)), (first,))))
    return _moved(body, back)


def superseded(body: str, old: Entry, day: str, source: Source | None = None) -> str:
    """Returns the body of a page with an item replaced because somebody asked for it. `source` is the turn that did:
    a derived line names it. Such an item never moves back by itself."""
    first, *rest = old.text.split("\n")
    sources = sources_of(first)[:1]
    text = f"{without_sources(first).rstrip()} (replaced {day} on request)"
    marks = [one.mark for one in (*sources, source) if one is not None] if sources else []
    moved = "\n".join([" ".join((text, *marks)), *rest])
    return _moved(body, [(old, REPLACED, moved)])


def without_repeats(body: str, content: str) -> str:
    """Returns the body of a page without the derived items that say what somebody wrote by hand in `content`."""
    gone = {one.start for one in _items(body, KINDS) if is_duplicate(_text(one), content)}
    return "\n".join(row for number, row in enumerate(body.split("\n"), 1) if number not in gone) if gone else body


def current_entries(body: str) -> list[Entry]:
    """Returns the entries of a file that are not in a section of replaced or closed items."""
    return [one for one in entries.entries(body) if one.section not in HOMES]


def said(one: Entry) -> str:
    """Returns what an entry says, without its date and sources."""
    return without_sources(entries.statement(one.text)).strip()


def matching(known: Sequence[Entry], wanted: str) -> list[Entry]:
    """Returns the entries that `wanted` means: those that say exactly that, else those that contain it or that it
    contains, else those that say it in other words."""
    text = entries.normalised(wanted)
    exact = [one for one in known if entries.normalised(said(one)) == text]
    if exact or not text:
        return exact
    inside = [one for one in known if _contains(text, entries.normalised(said(one)))]
    return inside or [one for one in known if is_duplicate(said(one), wanted)]


def closest(known: Sequence[Entry], wanted: str, most: int) -> list[Entry]:
    """Returns up to `most` entries that share words with `wanted`, the ones with the most words first."""
    stems = content_stems(word_list(wanted))
    shared = [(len(stems & content_stems(word_list(said(one)))), one) for one in known]
    return [one for count, one in sorted(shared, key=lambda pair: -pair[0])[:most] if count]


def _contains(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short.split()) >= LEAST_WORDS and f" {short} " in f" {long} "


def _items(body: str, inside: Container[str]) -> list[Entry]:
    """The derived bullets of these sections; one that a person continued on further lines is the person's own."""
    return [
        one for one in entries.entries(body) if one.section in inside and one.start == one.end and sources_of(one.text)
    ]


def _moved(body: str, moved: Sequence[tuple[Entry, str, str]]) -> str:
    if not moved:
        return body
    gone = {number for one, _, _ in moved for number in range(one.start, one.end + 1)}
    body = "\n".join(line for number, line in enumerate(body.split("\n"), 1) if number not in gone)
    for _, section, text in moved:
        body = entries.appended(body, section, text)
    return in_order(body)


def _text(one: Entry) -> str:
    return without_sources(_DATED.sub("", one.text.split("\n", 1)[0])).strip()


def _day(one: Entry) -> str:
    found = _DATED.match(one.text)
    return (found[1] or "") if found else ""


def _order(source: Source, day: str) -> tuple[datetime, str, int]:
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC) if day else datetime.min.replace(tzinfo=UTC)
    return moment, source.path, source.turn
