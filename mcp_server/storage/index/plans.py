"""The changes of the search index for a file: passages to write, and units to delete."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import groupby

from mcp_server.model import Passage
from mcp_server.search.ranking import ends_with_question, first_person, tells_time
from mcp_server.storage.index.file_reader import FileContent
from mcp_server.text.passages import indexed_text, own_text
from mcp_server.text.words import words


@dataclass(frozen=True, slots=True)
class Row:
    """A passage to write. Its words are computed just before writing, because they take ten times its memory."""

    passage: Passage
    mark: int
    digest: bytes
    chars: int
    ends_with_question: bool


@dataclass(frozen=True, slots=True)
class Signals:
    """The values that are computed from a passage's text."""

    text: str
    words: tuple[str, ...]
    tells_time: bool
    first_person: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes for a file: rows to add, and units (by mark) to delete first."""

    look: FileContent
    rows: tuple[Row, ...] = ()
    drop: tuple[int, ...] = ()


def transcripts_last(path: str) -> tuple[bool, str]:
    """Sort key: files of persons and agents before transcripts, which may have many megabytes."""
    return path.startswith("raw/"), path


def mark_of(passage: Passage) -> int:
    """Returns the number at the end of a passage's unit."""
    return int(passage.unit.rpartition("#")[2])


def digest_of(unit: tuple[Passage, ...]) -> bytes:
    """Returns an 8-byte digest of a unit's `repr`, computed part by part because a message may have many megabytes."""
    digest = hashlib.blake2b(b"(", digest_size=8)
    for number, part in enumerate(unit):
        digest.update(f"{', ' if number else ''}{part!r}".encode("utf-8", "replace"))
    digest.update(b",)" if len(unit) == 1 else b")")
    return digest.digest()


def plan(look: FileContent, before: dict[int, bytes]) -> Plan:
    """Compares a file's passages with its indexed units."""
    rows: list[Row] = []
    seen: set[int] = set()
    for _, group in groupby(look.passages, key=lambda passage: passage.unit):
        unit = tuple(group)
        mark, digest = mark_of(unit[0]), digest_of(unit)
        if mark in seen:  # a transcript edited by hand may repeat a turn number; the first one counts
            continue
        seen.add(mark)
        if before.get(mark) == digest:
            continue
        chars = sum(len(own_text(part)) for part in unit)
        asks = ends_with_question(own_text(unit[-1])[-2000:])
        for part in unit:
            rows.append(Row(part, mark, digest, chars, asks))
    changed = {row.mark for row in rows}
    if look.grown or look.same:
        drop = [mark for mark in before if mark in changed]
    else:
        drop = [mark for mark in before if mark in changed or mark not in seen]
    return Plan(look, tuple(rows), tuple(drop))


def signals_of(row: Row) -> Signals:
    """Computes a passage's words and signals. This is most of the work of indexing; it runs outside the database's
    thread."""
    text = indexed_text(row.passage)
    own = own_text(row.passage)
    spoken, head = words(own), text[: len(text) - len(own)]
    return Signals(text, (*words(head), *spoken), tells_time(own, spoken), first_person(own))
