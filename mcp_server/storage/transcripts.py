"""Transcripts: the conversations in `raw/conversations/`. Only this module writes them.

Call every method that writes under the session's transcript lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from mcp_server.errors import Conflict, ContextManagerError, Refused
from mcp_server.model import COMPACTION, KnowledgeChange, TranscriptHead, Turn
from mcp_server.storage.files import Files
from mcp_server.text.markdown import split_front_matter, to_utc
from mcp_server.text.transcript import (
    Tail,
    Transcript,
    parse,
    parse_tail,
    render_head,
    render_memory,
    render_turn,
    replace_head,
)
from mcp_server.text.transcript_head import file_id, slug_in

FOLDER = "raw/conversations"
_HEAD_BYTES = 64 * 1024
MOST_CACHED, LARGEST_CACHED = 4, 500_000
"""Most parsed transcripts in the cache, and the greatest size (bytes) of a cached one."""

_FIRST_NUMBER = re.compile(rb'^<!-- \{"turn":(\d{1,15}),', re.MULTILINE)


class Transcripts:
    """The conversations of a workspace."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._read: dict[str, tuple[object, Transcript]] = {}  # by path, with its version; newest last

    def create(self, head: TranscriptHead, *turns: Turn, sealed: bool = False) -> tuple[str, int]:
        """Writes a new transcript with its first turns, atomically. Returns its path and its size in bytes.

        With `sealed`, the conversation has ended, and the file is read-only.
        """
        data = (render_head(head) + _rendered(turns, head.started)).encode()
        for path in _paths(head):
            try:
                self._files.write_bytes_atomic(path, data, new=True, sealed=sealed)
            except Conflict:
                continue
            return path, len(data)
        raise AssertionError("unreachable")

    def append(
        self,
        path: str,
        entry: Turn | Sequence[Turn] | KnowledgeChange,
        offset: int,
        last_at: datetime | None,
        turn_number: int = 0,
    ) -> int:
        """Appends one or several turns, or a memory operation after turn `turn_number`. Returns the new size in bytes.

        `offset` is the end of the intact file (`complete_bytes`, or the last append's result); the rest of a crashed
        append after it is removed. `last_at` is the time of the previous block. After a crash, only the first of
        several turns may be in the file. Raises Conflict if intact turns follow `offset`, Refused if the transcript is
        sealed.
        """
        found = self._files.stat(path)
        if found.sealed:
            raise Refused(f"{path} is sealed, because the conversation has ended; new turns start a new transcript")
        if found.size > offset:
            tail = self.tail(path, offset, 1, 0, last_at or datetime.fromtimestamp(0, UTC))
            if tail.complete_bytes:
                raise Conflict(f"{path} has grown since it was read; read it again and repeat")
        if isinstance(entry, KnowledgeChange):
            block = render_memory(entry, last_at, turn_number)
        else:
            block = _rendered([entry] if isinstance(entry, Turn) else entry, last_at)
        return self._files.append_durable(path, block.encode(), offset)

    def read(self, path: str) -> Transcript:
        """Returns the whole transcript. Raises NotFound, or Invalid with file and field.

        An unchanged file is not parsed again, because one call may read it several times.
        """
        version = self._files.version(path)
        known = self._read.pop(path, None)
        if known is None or version is None or known[0] != version:
            data = self._files.read_bytes(path)
            found = parse(_decode(data), path)
            known = version, replace(found, head=replace(found.head, slug=slug_in(path, found.head.session_id)))
            if version is None or len(data) > LARGEST_CACHED:
                return known[1]
        self._read[path] = known
        for oldest in list(self._read)[:-MOST_CACHED]:
            self._read.pop(oldest, None)
        return known[1]

    def tail(self, path: str, offset: int, first_line: int, last_number: int, last_at: datetime) -> Tail:
        """Returns the part after byte `offset`, where line `first_line` begins. Its sizes are relative to `offset`."""
        data = self._files.read_bytes(path, offset)
        return parse_tail(_decode(data), first_line, last_number, last_at)

    def last_compaction(self, path: str) -> int | None:
        """Returns the number of the last turn that marks a compaction, without parsing; None if there is none."""
        data = self._files.read_bytes(path)
        header = f" — system ({COMPACTION})\n".encode()
        at = data.rfind(header)
        while at >= 0:  # in messages, lines that look like a header are escaped with a backslash
            line = data.rfind(b"\n", 0, at) + 1
            number = _FIRST_NUMBER.match(data, at + len(header))
            if number and data.startswith(b"## ", line):
                return int(number.group(1))
            at = data.rfind(header, 0, at)
        return None

    def head(self, path: str) -> TranscriptHead:
        """Returns the front matter of a transcript without reading all of it."""
        return parse(_decode(self._beginning(path)), path).head

    def replace_head(self, path: str, head: TranscriptHead, *, sealed: bool = False) -> int:
        """Replaces the front matter of an open transcript without moving any line. Returns the new size in bytes.

        With `sealed`, the conversation has ended, and the file becomes read-only.
        """
        before = self._files.read_bytes(path)
        intact = before[: parse(_decode(before), path).complete_bytes]
        data = replace_head(_decode(intact), head).encode("utf-8", "surrogateescape")
        self._files.write_bytes_atomic(path, data, before, sealed=sealed)
        return len(data)

    def all(self) -> Iterator[str]:
        """Returns the paths of all transcripts, ordered by name."""
        return (found.path for found in self._files.walk(FOLDER) if found.path.endswith(".md"))

    def find(self, session_id: str) -> list[str]:
        """Returns the session's transcripts, ordered by the number of their first turn."""
        wanted = f"-{file_id(session_id)}-"
        found: list[tuple[int, datetime, str]] = []
        for path in self._files.names(FOLDER, wanted):
            try:
                start = self._beginning(path)
                head = parse(_decode(start), path).head
            except ContextManagerError:  # `doctor` reports broken files
                continue
            if head.session_id == session_id:
                number = _FIRST_NUMBER.search(start)
                found.append((int(number.group(1)) if number else 0, head.started, path))
        return [path for _, _, path in sorted(found)]

    def _beginning(self, path: str) -> bytes:
        """Returns the beginning of a transcript with the complete front matter, usually also with the first turn."""
        start = self._files.read_bytes(path, 0, _HEAD_BYTES)
        whole = len(start) < _HEAD_BYTES or split_front_matter(_decode(start)).body_line > 1
        return start if whole else self._files.read_bytes(path)


def _rendered(turns: Sequence[Turn], last_at: datetime | None) -> str:
    blocks: list[str] = []
    for turn in turns:
        blocks.append(render_turn(turn, last_at))
        last_at = turn.at
    return "".join(blocks)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _paths(head: TranscriptHead) -> Iterator[str]:
    """Yields the possible paths of a new transcript: by its start in UTC, then with `-2`, `-3` and so on."""
    started = to_utc(head.started)
    slug = re.sub(r"[^\w-]+", "-", head.slug).encode()[:100].decode(errors="ignore").strip("-_") or "conversation"
    day = started.date().isoformat().replace("-", "/")
    name = f"{FOLDER}/{day}/{started:%H%M}-{file_id(head.session_id)}-{slug}"
    yield f"{name}.md"
    for number in count(2):
        yield f"{name}-{number}.md"
