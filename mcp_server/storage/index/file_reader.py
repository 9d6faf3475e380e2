"""Reads files for the index, from bytes to passages.

If a transcript only grew, only its new part is parsed. All other changed files are parsed as a whole. If a file cannot
be read, `FileContent.problem` says why.

`plan` compares the passages of a file with the indexed ones, and returns which to write and which to delete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from mcp_server.errors import ContextManagerError
from mcp_server.model import Passage, TranscriptHead
from mcp_server.search.ranking import ends_with_question, first_person, tells_time
from mcp_server.storage.index.scoring import packed_about
from mcp_server.text import markdown, transcript
from mcp_server.text.entries import sources_of
from mcp_server.text.markdown import marked_line, split_front_matter
from mcp_server.text.passages import indexed_text, of_knowledge, of_turns, own_text
from mcp_server.text.words import words

RACY_NS = 2_000_000_000
"""In nanoseconds. A file that changed less than this before it was read may change again without a new modification
time, so its bytes are compared."""

NOTHING = b""

READ_AT_ONCE = 16
"""Most new texts that the recognizer's network reads during indexing. This takes up to half a second."""

COPIES = ("journal", "memory")
"""Categories of files whose derived lines repeat lines of other pages. The network reads them last."""

NEWEST = 10_000
"""Of the passages that wait for the network, this many of the newest are sorted so that copies come last."""


@dataclass(frozen=True, slots=True)
class TranscriptPosition:
    """The end of the parsed part of a transcript, `end` in bytes: enough to continue there when it has grown."""

    end: int
    prefix_sha256: bytes
    turns: int
    next_line: int
    last_number: int
    last_at: datetime
    session: str
    project: str
    title: str
    started: datetime

    def to_json(self) -> str:
        """Returns the value for the `files` table."""
        kept = {name: getattr(self, name) for name in self.__slots__}
        kept |= {"prefix_sha256": self.prefix_sha256.hex(), "last_at": self.last_at.isoformat()}
        return json.dumps(kept | {"started": self.started.isoformat()})

    @classmethod
    def from_json(cls, text: str) -> TranscriptPosition:
        """Returns the position that `to_json` was called on."""
        kept: dict[str, Any] = json.loads(text)
        kept["prefix_sha256"] = bytes.fromhex(kept["prefix_sha256"])
        kept["last_at"], kept["started"] = (datetime.fromisoformat(kept[name]) for name in ("last_at", "started"))
        return cls(**kept)


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """The index's record of a file."""

    id: int
    """The row's number in SQLite; the file's version in PostgreSQL."""
    size: int
    mtime_ns: int
    looked_ns: int
    sha256: bytes
    so_far: TranscriptPosition | None


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file as it was read. `gone`: it does not exist. `same`: its bytes are the indexed ones.

    `grown`: `passages` has only the new ones. `problem` is a sentence for `status`; a file with a problem may still
    have passages.
    """

    path: str
    size: int = 0
    mtime_ns: int = 0
    looked_ns: int = 0
    sha256: bytes = NOTHING
    passages: tuple[Passage, ...] = ()
    gone: bool = False
    same: bool = False
    grown: bool = False
    so_far: TranscriptPosition | None = None
    problem: str | None = None


def read_content(
    path: str, data: bytes, size: int, mtime_ns: int, looked_ns: int, known: IndexedFile | None
) -> FileContent:
    """Splits the bytes of a file into passages. Never raises. `looked_ns` is the time at which they were read."""
    digest = hashlib.sha256(data).digest()
    seen = FileContent(path, size, mtime_ns, looked_ns, digest)
    if known is not None and known.sha256 == digest:
        return replace(seen, same=True, so_far=known.so_far)
    if b"\0" in data[:8192]:
        return replace(seen, problem=f"{path}: binary, or text with NUL bytes; it is not searched")
    if path.startswith("raw/"):
        return _read_transcript(seen, data, known.so_far if known else None)
    try:
        text, problem = data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        text = data.decode("utf-8", "replace")
        problem = f"{path}: byte {error.start} is not UTF-8; it is searched with � in its place. Save the file as UTF-8"
    if (line := marked_line(text)) is not None:
        return replace(
            seen,
            problem=f"{path}: line {line} begins an unresolved conflict; it is not searched until you resolve it",
        )
    return _read_document(seen, text.replace("\r\n", "\n"), problem)


def _read_document(seen: FileContent, text: str, problem: str | None) -> FileContent:
    found = split_front_matter(text)
    body, line = found.body, found.body_line
    fields: Mapping[str, Any] = {}
    try:
        fields = markdown.load(found.raw, seen.path, 2) if found.raw else {}
    except ContextManagerError as error:
        problem = f"{error}. Its text is searched nevertheless"
        body, line = text, 1  # the broken front matter is also searched
    return replace(seen, passages=of_knowledge(seen.path, body, line, fields), problem=problem)


def _read_transcript(seen: FileContent, data: bytes, so_far: TranscriptPosition | None) -> FileContent:
    grown = _read_appended(seen, data, so_far) if so_far is not None else None
    if grown is not None:
        return grown
    try:
        whole = transcript.parse(data.decode("utf-8", "surrogateescape"), seen.path)
    except ContextManagerError as error:
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        problem = f"{error}. Its text is searched nevertheless"
        return replace(seen, passages=of_knowledge(seen.path, text, 1, {}), problem=problem)
    head = whole.head
    so_far = TranscriptPosition(
        end=whole.complete_bytes,
        prefix_sha256=_prefix(data, whole.complete_bytes),
        turns=len(whole.turns),
        next_line=whole.next_line,
        last_number=whole.turns[-1].turn.number if whole.turns else 0,
        last_at=whole.last_at or head.started,
        session=head.session_id,
        project=head.project,
        title=head.title,
        started=head.started,
    )
    return replace(seen, passages=of_turns(seen.path, head, whole.turns), so_far=so_far)


def read_tail(
    path: str, tail: bytes, size: int, mtime_ns: int, looked_ns: int, known: IndexedFile, so_far: TranscriptPosition
) -> FileContent | None:
    """Returns the passages of the bytes after `so_far` of a transcript that has only been appended to; None if it must
    be parsed whole."""
    digest = hashlib.sha256(known.sha256 + tail).digest() if tail else known.sha256
    seen = FileContent(path, size, mtime_ns, looked_ns, digest)
    return _parsed_tail(seen, tail, so_far) if tail else replace(seen, same=True, so_far=so_far)


def _read_appended(seen: FileContent, data: bytes, so_far: TranscriptPosition) -> FileContent | None:
    """Returns the appended part; None if the file changed in any other way and must be parsed whole."""
    if not 0 < so_far.end < len(data) or _prefix(data, so_far.end) != so_far.prefix_sha256:
        return None
    found = _parsed_tail(seen, data[so_far.end :], so_far)
    if found is None or found.so_far is None:
        return None
    return replace(found, so_far=replace(found.so_far, prefix_sha256=_prefix(data, found.so_far.end)))


def _parsed_tail(seen: FileContent, data: bytes, so_far: TranscriptPosition) -> FileContent | None:
    if b"\r" in data:
        return None
    text = data.decode("utf-8", "surrogateescape")
    tail = transcript.parse_tail(text, so_far.next_line, so_far.last_number, so_far.last_at)
    first = min([*(t.start for t in tail.turns), *(c.start for c in tail.placed_changes)], default=0)
    if first != so_far.next_line + 1:  # text between the blocks belongs to the turn before
        return None
    head = TranscriptHead(so_far.session, so_far.started, so_far.title, "", so_far.project)
    read = replace(
        so_far,
        end=so_far.end + tail.complete_bytes,
        turns=so_far.turns + len(tail.turns),
        next_line=tail.next_line,
        last_number=tail.turns[-1].turn.number if tail.turns else so_far.last_number,
        last_at=tail.last_at or so_far.last_at,
    )
    return replace(seen, passages=of_turns(seen.path, head, tail.turns, so_far.turns), grown=True, so_far=read)


def _prefix(data: bytes, end: int) -> bytes:
    return hashlib.sha256(memoryview(data)[:end]).digest()


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
    """The values that are computed from a passage's text. `about` is None if the network has not read it yet."""

    text: str
    words: tuple[str, ...]
    tells_time: bool
    first_person: int
    about: bytes | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes for a file: rows to add, and units (by mark) to delete first."""

    look: FileContent
    rows: tuple[Row, ...] = ()
    drop: tuple[int, ...] = ()


def transcripts_last(path: str) -> tuple[bool, str]:
    """Returns a sort key that puts transcripts, which may have many megabytes, after files of users and agents."""
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


def signals_of_all(rows: Sequence[Row], reads: bool, read_before: Mapping[str, bytes]) -> list[Signals]:
    """Returns the signals of these rows.

    `read_before` maps texts to the vectors that the network computed for these files before, so that a moved line is
    not read again. If `reads` is set and at most READ_AT_ONCE texts are new, such as those of a turn, the network reads
    them now. Otherwise, and for copies, `Index.read_ahead` does so later.
    """
    about = dict(read_before)
    new = {row.passage.text: is_derived_line(row.passage) for row in rows if row.passage.category not in COPIES}
    new = {text: derived for text, derived in new.items() if text not in about}
    if reads and len(new) <= READ_AT_ONCE:
        about |= zip(new, packed_about(new.items()), strict=True)
    return [replace(signals_of(row), about=about.get(row.passage.text)) for row in rows]


def is_derived_line(passage: Passage) -> bool:
    """Returns whether a passage is a line that an extractor wrote."""
    return passage.turn is None and bool(sources_of(passage.text))


def signals_of(row: Row) -> Signals:
    """Computes a passage's words and signals. This is most of the work of indexing; it runs outside the database's
    thread."""
    text = indexed_text(row.passage)
    own = own_text(row.passage)
    spoken, head = words(own), text[: len(text) - len(own)]
    return Signals(text, (*words(head), *spoken), tells_time(spoken), first_person(own))
