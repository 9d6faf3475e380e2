"""Transcripts on disk: where a conversation lies, and the only code that writes there.

Every method that writes is called under the session's transcript lock.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from mcp_server.errors import Conflict, ContextManagerError, Refused
from mcp_server.model import KnowledgeChange, TranscriptHead, Turn
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.text.markdown import split_front_matter
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
from mcp_server.text.yaml import load
from mcp_server.text.yaml_line import to_utc

SETTLED_NS = 2_000_000_000
"""A folder that was changed so shortly before it was listed may change again without a later time."""


@dataclass(frozen=True, slots=True)
class _Listed:
    mtime_ns: int
    folders: tuple[str, ...]
    names: tuple[str, ...]


class TranscriptNames:
    """The markdown files below `root`, as they are whenever it is asked."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listed: dict[str, _Listed] = {}

    def holding(self, part: str) -> list[str]:
        """The paths below the root, with slashes, of the files whose names hold `part`."""
        found: list[str] = []
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            listed = self._list(folder)
            if listed is not None:
                found += [folder + name for name in listed.names if part in name]
                waiting += [f"{folder}{name}/" for name in listed.folders]
        return found

    def _list(self, folder: str) -> _Listed | None:
        """What lies in one folder; None if it is gone. Hidden files and links are left out."""
        real = self._root / folder
        try:
            mtime_ns = real.stat().st_mtime_ns
            known = self._listed.get(folder)
            if known is not None and known.mtime_ns == mtime_ns:
                return known
            now = time.time_ns()
            with os.scandir(real) as entries:
                shown = [entry for entry in entries if not entry.name.startswith(".")]
                folders = tuple(entry.name for entry in shown if entry.is_dir(follow_symlinks=False))
                names = tuple(
                    entry.name for entry in shown if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False)
                )
        except OSError:
            self._listed.pop(folder, None)
            return None
        listed = _Listed(mtime_ns, folders, names)
        if 0 <= mtime_ns < now - SETTLED_NS:
            self._listed[folder] = listed
        return listed


FOLDER = "raw/conversations"
SEALED = 0o444
_HEAD_BYTES = 64 * 1024
_FIRST_NUMBER = re.compile(rb'^<!-- \{"turn":(\d{1,15}),', re.MULTILINE)


class Transcripts:
    """The conversations of a workspace."""

    def __init__(self, files: WorkspaceFiles) -> None:
        self._files = files
        self._names = TranscriptNames(files.root / FOLDER)

    def create(self, head: TranscriptHead, *turns: Turn) -> tuple[str, int]:
        """Writes a new transcript with its first turns; returns path and size. It appears whole or not at all."""
        return self._write_new(head, render_head(head) + _rendered(turns, head.started), None)

    def create_sealed(self, head: TranscriptHead, turns: Sequence[Turn]) -> str:
        """Writes a whole conversation that is over; returns its path."""
        return self._write_new(head, render_head(head) + _rendered(turns, head.started), SEALED)[0]

    def append(
        self,
        path: str,
        entry: Turn | Sequence[Turn] | KnowledgeChange,
        offset: int,
        last_at: datetime | None,
        turn_number: int = 0,
    ) -> int:
        """Adds a turn, several turns, or a memory operation after turn `turn_number`, at byte `offset`; durable when it
        returns the new size. Of several, a crash may leave the first ones.

        `offset` is where the intact file ends (`complete_bytes`, or what the last append returned), `last_at` the
        time of the block before. The rest of an append that crashed is cut off. Raises Conflict if intact turns
        stand behind `offset`, Refused if the transcript is sealed.
        """
        real = self._files.resolve(path)
        if real.exists() and not real.stat().st_mode & 0o222:
            raise Refused(f"{path} is sealed: the conversation is over; what is said now opens a new transcript")
        if self._files.stat(path).size > offset:
            tail = self.tail(path, offset, 1, 0, last_at or datetime.fromtimestamp(0, UTC))
            if tail.complete_bytes:
                raise Conflict(f"{path} has grown since it was read; read it again and repeat")
        if isinstance(entry, KnowledgeChange):
            block = render_memory(entry, last_at, turn_number)
        else:
            block = _rendered([entry] if isinstance(entry, Turn) else entry, last_at)
        return self._files.append_durable(path, block.encode(), offset)

    def read(self, path: str) -> Transcript:
        """The whole transcript. Raises NotFound, or Invalid naming file and field."""
        transcript = parse(_decode(self._files.read_bytes(path)), path, load)
        return replace(transcript, head=replace(transcript.head, slug=slug_in(path, transcript.head.session_id)))

    def tail(self, path: str, offset: int, first_line: int, last_number: int, last_at: datetime) -> Tail:
        """What was appended after byte `offset`, where line `first_line` begins; its sizes count from there."""
        data = self._files.read_bytes(path, offset)
        return parse_tail(_decode(data), first_line, last_number, last_at)

    def last_named(self, path: str, name: str) -> int | None:
        """The number of the last system turn of that name, found without parsing; None if there is none."""
        data = self._files.read_bytes(path)
        header = f" — system ({name})\n".encode()
        at = data.rfind(header)
        while at >= 0:  # a line of a message that looks like a header has a backslash before it
            line = data.rfind(b"\n", 0, at) + 1
            number = _FIRST_NUMBER.match(data, at + len(header))
            if number and data.startswith(b"## ", line):
                return int(number.group(1))
            at = data.rfind(header, 0, at)
        return None

    def continued(self, path: str) -> str | None:
        """The transcript that this one continues, read from its beginning alone."""
        return parse(_decode(self._beginning(path)), path, load).head.continues

    def replace_head(self, path: str, head: TranscriptHead) -> int:
        """Puts other front matter in an open transcript, atomically, and moves no line; returns the new size."""
        return self._rewrite(path, head, None)

    def seal(self, path: str, head: TranscriptHead) -> int:
        """As `replace_head`, and from now on the file is read-only."""
        return self._rewrite(path, head, SEALED)

    def all(self) -> Iterator[str]:
        """The paths of all transcripts, in the order of their names."""
        return (found.path for found in self._files.walk(FOLDER) if found.path.endswith(".md"))

    def find(self, session_id: str) -> list[str]:
        """The session's transcripts, oldest first: in the order of their first turn's number."""
        wanted = f"-{file_id(session_id)}-"
        found: list[tuple[int, datetime, str]] = []
        for name in self._names.holding(wanted):
            path = f"{FOLDER}/{name}"
            try:
                start = self._beginning(path)
                head = parse(_decode(start), path, load).head
            except ContextManagerError:  # one broken file does not hide the others; `doctor` names it
                continue
            if head.session_id == session_id:
                number = _FIRST_NUMBER.search(start)
                found.append((int(number.group(1)) if number else 0, head.started, path))
        return [path for _, _, path in sorted(found)]

    def session_of(self, path: str) -> str:
        """The session that a transcript belongs to."""
        return parse(_decode(self._beginning(path)), path, load).head.session_id

    def _beginning(self, path: str) -> bytes:
        """At least the front matter, and for most the first turn. One with very many changes in it is read whole."""
        start = self._files.read_bytes(path, 0, _HEAD_BYTES)
        whole = len(start) < _HEAD_BYTES or split_front_matter(_decode(start)).body_line > 1
        return start if whole else self._files.read_bytes(path)

    def _write_new(self, head: TranscriptHead, text: str, mode: int | None) -> tuple[str, int]:
        data = text.encode()
        for path in _paths(head):
            try:
                self._files.write_bytes_atomic(path, data, new=True, mode=mode)
            except Conflict:
                continue
            return path, len(data)
        raise AssertionError("unreachable")

    def _rewrite(self, path: str, head: TranscriptHead, mode: int | None) -> int:
        before = self._files.read_bytes(path)
        intact = before[: parse(_decode(before), path, load).complete_bytes]
        data = replace_head(_decode(intact), head).encode("utf-8", "surrogateescape")
        self._files.write_bytes_atomic(path, data, before, mode=mode)
        return len(data)


def _rendered(turns: Sequence[Turn], last_at: datetime | None) -> str:
    blocks: list[str] = []
    for turn in turns:
        blocks.append(render_turn(turn, last_at))
        last_at = turn.at
    return "".join(blocks)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _paths(head: TranscriptHead) -> Iterator[str]:
    """The paths that a new transcript may have: by its start in UTC, with `-2` and so on where a name is taken."""
    started = to_utc(head.started)
    slug = re.sub(r"[^\w-]+", "-", head.slug).encode()[:100].decode(errors="ignore").strip("-_") or "conversation"
    day = started.date().isoformat().replace("-", "/")
    name = f"{FOLDER}/{day}/{started:%H%M}-{file_id(head.session_id)}-{slug}"
    yield f"{name}.md"
    for number in count(2):
        yield f"{name}-{number}.md"
