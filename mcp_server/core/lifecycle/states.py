"""Settles the items of a page: replaced decisions and closed items move into sections of their own.

    ## Key Decisions                       ## Replaced decisions
    - 2026-11-02: Use JWT [src: B#86]      - 2026-11-02: Use the AppRole (replaced 2026-11-04) [src: A#27] [src: B#86]

The second source names the turn that settled the item. A line whose second source is gone moves back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from mcp_server.core.lifecycle.lines import Line, Source, entry, sources_of, without_sources
from mcp_server.core.lifecycle.places import CLOSED, DECISIONS, FACTS, OPEN, REPLACED, RULES
from mcp_server.core.text import entries
from mcp_server.core.text.entries import Entry
from mcp_server.core.understanding.settling import Statement, settle

KINDS: Mapping[str, str] = {DECISIONS: "decision", OPEN: "open", RULES: "rule", FACTS: "fact"}
HOMES = {REPLACED: DECISIONS, CLOSED: OPEN}
SETTLED = {"replaced": (REPLACED, "replaced"), "closed": (CLOSED, "done")}

_DATED = re.compile(r"^[-*+] (?:(\d{4}-\d{2}-\d{2}):? )?")
_NOTE = re.compile(r" \((?:replaced|done) \d{4}-\d{2}-\d{2}\)$")


def settled(body: str, lines: Iterable[Line]) -> str:
    """Returns the body of a page after new `lines` (decisions and reports, with their turns) were weighed against it."""
    body = _restored(body)
    new = {(line.path, line.turn, line.text): line for line in lines if line.kind in ("decision", "report")}
    if not new:
        return body
    found = [one for one in entries.entries(body) if one.section in KINDS and sources_of(one.text)]
    statements: list[Statement] = []
    for item in found:
        source = sources_of(item.text)[0]
        text = _text(item)
        line = new.get((source.path, source.turn, text))
        changes = line.changes if line else 0.0
        statements.append(Statement(KINDS[item.section], text, _order(source, _day(item)), changes, key=item))
    statements += [
        Statement("report", line.text, _order(line.source, line.said), line.changes, key=line)
        for line in new.values()
        if line.kind == "report"
    ]
    settle(statements)
    moved: list[tuple[Entry, str, str]] = []
    for one in statements:
        if one.by is None or not isinstance(one.key, Entry):
            continue
        section, verb = SETTLED[one.state]
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


def _restored(body: str) -> str:
    """Moves items back whose settling turn is no longer named."""
    back = []
    for one in entries.entries(body):
        if one.section in HOMES and len(sources_of(one.text)) == 1 and _NOTE.search(_text(one)):
            source = sources_of(one.text)
            back.append((one, HOMES[one.section], entry(_day(one), _NOTE.sub("", _text(one)), source)))
    return _moved(body, back)


def _moved(body: str, moved: Sequence[tuple[Entry, str, str]]) -> str:
    if not moved:
        return body
    gone = {number for one, _, _ in moved for number in range(one.start, one.end + 1)}
    body = "\n".join(line for number, line in enumerate(body.split("\n"), 1) if number not in gone)
    for _, section, text in moved:
        body = entries.appended(body, section, text)
    return body


def _text(one: Entry) -> str:
    return without_sources(_DATED.sub("", one.text.split("\n", 1)[0])).strip()


def _day(one: Entry) -> str:
    found = _DATED.match(one.text)
    return (found[1] or "") if found else ""


def _order(source: Source, day: str) -> tuple[datetime, str, int]:
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC) if day else datetime.min.replace(tzinfo=UTC)
    return moment, source.path, source.turn
