"""Cuts files and transcripts into passages, the pieces of text that the search index stores.

A unit is a section of a file, a turn of a transcript, or a derived line, which has a date of its own. A long
unit is cut into parts of about 800 characters, at the end of a paragraph, else of a line, a sentence or a word. Every
part is a passage, and a unit is ranked by its best passage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from mcp_server.model import GLOBAL, Category, Passage, TranscriptHead
from mcp_server.text.dates import written
from mcp_server.text.entries import DERIVED, STATE, is_derived, is_state, without_sources
from mcp_server.text.markdown import Section, as_shown, moment_of_field, sections, without_comments
from mcp_server.text.transcript import PlacedTurn

PART = 800
"""Characters of a part: parts of about 800 rank long messages well and leave short ones whole."""

STRETCH = 1.5
"""A paragraph that is more than this many times as long as a part is cut."""

FOLDERS: tuple[tuple[str, Category], ...] = (
    ("raw/", "conversation"),
    ("knowledge/identity/", "identity"),
    ("knowledge/memory/", "memory"),
    ("knowledge/journal/", "journal"),
    ("knowledge/projects/", "project"),
    ("knowledge/people/", "person"),
    ("knowledge/procedures/", "procedure"),
    ("knowledge/", "reference"),
    ("topics/", "topic"),
    ("archive/", "archive"),
)

_PARAGRAPH_END = re.compile(r"\n[ \t]*\n\s*")
IMPORTED = re.compile(r"knowledge/reference/[^/]*/")
"""Begins the path of a file that was imported as a document; such files do not age."""

_PROJECT_FOLDER = re.compile(r"(?:^|/)projects/([^/]+)/")


def category_of(path: str) -> Category:
    """Returns the category of a workspace path; files in unknown folders are reference."""
    return next((category for folder, category in FOLDERS if path.startswith(folder)), "reference")


def project_of(path: str) -> str:
    """Returns `slug:NAME` for files in a project's folder (also in the archive), else GLOBAL."""
    found = _PROJECT_FOLDER.search(path) if path.startswith(("knowledge/", "archive/")) else None
    return f"slug:{found[1]}" if found else GLOBAL


def indexed_text(passage: Passage) -> str:
    """Returns the text that the index reads of a passage: speaker and date, or the headings above it, and its words."""
    if passage.turn is not None:
        when = written(passage.at) if passage.at else ""
        head = ", ".join(part for part in (passage.speaker, when) if part)
    else:
        head = "" if is_derived(passage.text) else passage.title  # a derived line itself names its person and subject
    text = own_text(passage)
    return f"{head}: {text}" if head else text


def own_text(passage: Passage) -> str:
    """Returns the words of a passage, without the sources of derived lines."""
    return passage.text if passage.turn is not None else without_sources(passage.text)


def of_knowledge(path: str, body: str, body_line: int, fields: Mapping[str, Any]) -> tuple[Passage, ...]:
    """Returns the passages of a knowledge, topic or archive file; `fields` is its front matter, `body` the rest."""
    at = moment_of_field(fields.get("updated") or fields.get("date") or _date_in_name(path))
    name = str(fields.get("title") or fields.get("name") or "")
    description = " ".join(str(fields[key]) for key in ("description", "summary") if isinstance(fields.get(key), str))
    passages: list[Passage] = []
    ordinal = 0
    # Comments of this project's files explain the file to its owner, so they are not indexed.
    shown = body if IMPORTED.match(path) else without_comments(body)
    commented = {
        body_line + place
        for place, (one, other) in enumerate(zip(body.split("\n"), shown.split("\n"), strict=True))
        if one != other
    }
    if STATE in shown:
        shown = "\n".join("" if is_state(row) else row for row in shown.split("\n"))
    found = sections(shown, body_line)
    for section, following in zip_longest(found, found[1:]):
        asks = not commented.isdisjoint(range(section.start, section.end + 1))
        if not _says_something(section, following, asks):
            continue
        own, own_line, derived = _apart(section)
        trail = [as_shown(part) for part in (*section.trail, section.title) if part]
        title = " › ".join(trail if not name or name in trail[:1] else [name, *trail])
        whole = partial(Passage, path=path, title=title, category=category_of(path), project=project_of(path))
        for line, text in derived:
            dated = DERIVED.match(text)
            day = moment_of_field(dated[1] if dated else None) or moment_of_field(_date_in_name(path)) or at
            unit = f"{path}#{line}"
            passages.append(whole(unit=unit, part=0, ordinal=ordinal, start=line, end=line, text=text, at=day))
            ordinal += 1
        for part, (start, end, text) in enumerate(split(own, section.start)):
            unit = f"{path}#{own_line}"
            text = text if ordinal or part or not description else f"{description}\n\n{text}"
            passages.append(whole(unit=unit, part=part, ordinal=ordinal, start=start, end=end, text=text, at=at))
        ordinal += 1
    return tuple(passages)


def _apart(section: Section) -> tuple[str, int, Sequence[tuple[int, str]]]:
    """Returns the text of a section with its derived lines blanked, the line that names its unit, and the derived lines
    with their numbers. The text is empty if only the heading is left."""
    if "[src: " not in section.text:
        return section.text, section.start, ()
    rows = section.text.split("\n")
    derived = [(section.start + place, row.strip()) for place, row in enumerate(rows) if DERIVED.match(row)]
    taken = {number - section.start for number, _ in derived}
    own = ["" if place in taken else row for place, row in enumerate(rows)]
    says_more = any(row.strip() for row in own[1 if section.level else 0 :])
    first = next((section.start + place for place, row in enumerate(own) if row.strip()), section.start)
    return "\n".join(own) if says_more else "", first, derived


def of_turns(
    path: str, head: TranscriptHead, turns: Iterable[PlacedTurn], first_ordinal: int = 0
) -> tuple[Passage, ...]:
    """Returns the passages of turns of a transcript; `first_ordinal` is the number of turns before them."""
    return tuple(
        passage
        for ordinal, placed in enumerate(turns, first_ordinal)
        for passage in _of_turn(path, head, placed, ordinal)
    )


def _of_turn(path: str, head: TranscriptHead, placed: PlacedTurn, ordinal: int) -> Iterator[Passage]:
    turn = placed.turn
    parts = list(split(turn.content, placed.content_line))
    calls = [f"[{call.name}] {call.summary}" + (f" → {call.result}" if call.result else "") for call in turn.tool_calls]
    beside = "\n".join(calls + [f"[attachment] {path}" for path in turn.attachments])
    if parts and len(parts[-1][2]) + len(beside) < PART * STRETCH:
        start, end, text = parts[-1]
        parts[-1] = (start, end, f"{text}\n{beside}" if beside else text)
    else:  # tool calls are between header and content
        parts += [(placed.start, placed.content_line, text) for _, _, text in split(beside)]
    for part, (start, end, text) in enumerate(parts):
        yield Passage(
            path=path,
            unit=f"{path}#{turn.number}",
            part=part,
            ordinal=ordinal,
            start=start if part else placed.start,
            end=placed.end if len(parts) == 1 else max(start, min(end, placed.end)),
            text=text,
            title=head.title,
            category="conversation",
            project=head.project,
            session=head.session_id,
            turn=turn.number,
            turn_id=turn.turn_id,
            role=turn.role,
            speaker=turn.name or "",
            at=turn.at,
        )


def split(text: str, first_line: int = 1, size: int = PART) -> Iterator[tuple[int, int, str]]:
    """Yields the parts of a text in order, each with its first and last line; none for a blank text. Takes linear
    time."""
    line, counted = first_line, 0
    for start, end in _spans(text, size):
        piece = text[start:end]
        lead, tail = len(piece) - len(piece.lstrip("\n")), len(piece.rstrip())
        if not piece.strip():
            continue
        start, piece = start + lead, piece[lead:tail]
        line += text.count("\n", counted, start)
        counted = start
        yield line, line + piece.count("\n"), piece


def _spans(text: str, size: int) -> Iterator[tuple[int, int]]:
    if len(text) <= size:
        yield 0, len(text)
        return
    start = end = 0  # the part being filled
    for first, last in _paragraphs(text):
        while last - first > size * STRETCH:
            if end > start:
                yield start, end
            cut = _cut(text, first, size)
            yield first, cut
            first = start = end = cut
        if end > start and last - start > size:
            yield start, end
            start = first
        end = last
    if end > start:
        yield start, end


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    first = 0
    for gap in _PARAGRAPH_END.finditer(text):
        yield first, gap.end()
        first = gap.end()
    if first < len(text):
        yield first, len(text)


def _cut(text: str, first: int, size: int) -> int:
    """Returns the end of a part that starts at `first`: after a line, else a sentence, else a word, else within a
    word."""
    last, least = first + size, first + size // 3
    best = max(text.rfind("\n", first, last), text.rfind(". ", first, last)) + 1
    if best <= least:
        best = text.rfind(" ", first, last) + 1
    return best if best > least else last


def _date_in_name(path: str) -> str | None:
    found = re.search(r"(?:^|/)(\d{4}-\d{2}-\d{2})\.md$", path)
    return found[1] if found else None


def _says_something(section: Section, following: Section | None, asks: bool) -> bool:
    """Returns whether a section has text of its own. A heading alone does not count if it is above other sections, is
    the title of an empty file, or is followed by a comment that `asks` for text."""
    over_others = following is not None and following.level > section.level
    if section.level and (asks or over_others or (section.level == 1 and following is None)):
        return bool(section.text.partition("\n")[2].strip())
    return bool(section.text.strip())
