"""Reads files for the index: from bytes to passages, or to a sentence about the problem. Knows no database.

Of a transcript that only grew, only the new part is parsed. Other files are parsed as a whole.
"""

from __future__ import annotations

import hashlib
import json
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from mcp_server.errors import ContextManagerError
from mcp_server.model import Passage, TranscriptHead
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.text import transcript, yaml
from mcp_server.text.markdown import marked_line, split_front_matter
from mcp_server.text.passages import of_knowledge, of_turns

RACY_NS = 2_000_000_000
"""A file that changed less than this before it was read may change again without a new time: its bytes are compared."""

NOTHING = b""


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
    """A file as the index knows it."""

    id: int
    size: int
    mtime_ns: int
    looked_ns: int
    sha256: bytes
    so_far: TranscriptPosition | None


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file as it was read. `gone`: it does not exist. `same`: its bytes are those that were indexed.

    `grown`: `passages` are only the new ones. `problem` is a sentence for `status`; there may be passages nevertheless.
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


def read_file(files: WorkspaceFiles, path: str, known: IndexedFile | None) -> FileContent:
    """Reads a file and splits it into passages. Never raises.

    A symbolic link, and anything but a plain file, counts as gone: a link in somebody's commit may lead to `.local/`,
    and reading a pipe never ends.
    """
    looked_ns = time.time_ns()
    try:
        place = files.resolve(path)
        about = place.stat()
        if not stat.S_ISREG(about.st_mode) or files.relative(path) != path:
            return FileContent(path, gone=True)
        data = place.read_bytes()
    except FileNotFoundError:
        return FileContent(path, gone=True)
    except (OSError, ContextManagerError) as error:
        return FileContent(path, looked_ns=looked_ns, problem=f"{path}: cannot be read ({error})", size=-1)
    digest = hashlib.sha256(data).digest()
    seen = FileContent(path, about.st_size, about.st_mtime_ns, looked_ns, digest)
    if known is not None and known.sha256 == digest:
        return _with(seen, same=True, so_far=known.so_far)
    if b"\0" in data[:8192]:
        return _with(seen, problem=f"{path}: binary, or text with NUL bytes; it is not searched")
    if path.startswith("raw/"):
        return _read_transcript(seen, data, known.so_far if known else None)
    try:
        text, problem = data.decode("utf-8"), None
    except UnicodeDecodeError as error:
        text = data.decode("utf-8", "replace")
        problem = f"{path}: byte {error.start} is not UTF-8; it is searched with � in its place. Save the file as UTF-8"
    if (line := marked_line(text)) is not None:
        return _with(
            seen, problem=f"{path}: line {line} begins an unresolved conflict; it is left out until that is mended"
        )
    return _read_document(seen, text.replace("\r\n", "\n"), problem)


def _read_document(seen: FileContent, text: str, problem: str | None) -> FileContent:
    found = split_front_matter(text)
    body, line = found.body, found.body_line
    fields: Mapping[str, Any] = {}
    try:
        fields = yaml.load(found.raw, seen.path, 2) if found.raw else {}
    except ContextManagerError as error:
        problem = f"{error}. Its text is searched all the same"
        body, line = text, 1  # what was meant as front matter stays findable
    return _with(seen, passages=of_knowledge(seen.path, body, line, fields), problem=problem)


def _read_transcript(seen: FileContent, data: bytes, so_far: TranscriptPosition | None) -> FileContent:
    grown = _read_appended(seen, data, so_far) if so_far is not None else None
    if grown is not None:
        return grown
    try:
        whole = transcript.parse(data.decode("utf-8", "surrogateescape"), seen.path, yaml.load)
    except ContextManagerError as error:
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        problem = f"{error}. Its text is searched all the same"
        return _with(seen, passages=of_knowledge(seen.path, text, 1, {}), problem=problem)
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
    return _with(seen, passages=of_turns(seen.path, head, whole.turns), so_far=so_far)


def _read_appended(seen: FileContent, data: bytes, so_far: TranscriptPosition) -> FileContent | None:
    """Returns the appended part; None if the file changed in any other way and must be parsed whole."""
    if not 0 < so_far.end < len(data) or _prefix(data, so_far.end) != so_far.prefix_sha256:
        return None
    if data.find(b"\r", so_far.end) >= 0:
        return None
    text = str(memoryview(data)[so_far.end :], "utf-8", "surrogateescape")
    tail = transcript.parse_tail(text, so_far.next_line, so_far.last_number, so_far.last_at)
    first = min([*(t.start for t in tail.turns), *(c.start for c in tail.placed_changes)], default=0)
    if first != so_far.next_line + 1:  # text between the blocks belongs to the turn before
        return None
    head = TranscriptHead(so_far.session, so_far.started, so_far.title, "", so_far.project)
    end = so_far.end + tail.complete_bytes
    read = replace(
        so_far,
        end=end,
        prefix_sha256=_prefix(data, end),
        turns=so_far.turns + len(tail.turns),
        next_line=tail.next_line,
        last_number=tail.turns[-1].turn.number if tail.turns else so_far.last_number,
        last_at=tail.last_at or so_far.last_at,
    )
    return _with(seen, passages=of_turns(seen.path, head, tail.turns, so_far.turns), grown=True, so_far=read)


def _prefix(data: bytes, end: int) -> bytes:
    return hashlib.sha256(memoryview(data)[:end]).digest()


def _with(seen: FileContent, **changes: Any) -> FileContent:
    return replace(seen, **changes)
