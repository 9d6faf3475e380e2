"""Checkpoint files: `checkpoints/{session}/{id}.md` is a page for people. A checkpoint exists if its page does.

All of it, for restoring, is in `.local/checkpoints/{id}.xz`, which is written before the page. A checkpoint of the
previous format has everything in its page.
"""

from __future__ import annotations

import difflib
import lzma
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from mcp_server.checkpoints.document import SCHEMA, Checkpoint, page, parse, render
from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.storage.ports import Files
from mcp_server.text.markdown import split_front_matter
from mcp_server.text.transcript_head import file_id, own_fields
from mcp_server.text.yaml_line import read_moment

FOLDER = "checkpoints"
PREFIX = "ckp_"
_WHOLE = ".local/checkpoints"
_HEAD = 8_192  # bytes in which a front matter of ours always ends


@dataclass(frozen=True, slots=True)
class Head:
    """The front matter of a checkpoint; see `Checkpoint`."""

    id: str
    session: str
    at: datetime
    reason: str
    turn: int
    note: str
    path: str


def new_id() -> str:
    """Returns a random id."""
    return PREFIX + secrets.token_hex(8)


class CheckpointFiles:
    """The files of one workspace. Methods are synchronous."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def write(self, checkpoint: Checkpoint, before: Checkpoint | None = None) -> str:
        """Writes a checkpoint durably and returns its path. Raises Conflict if the page is not that of `before`, or
        exists without it."""
        path = f"{folder_of(checkpoint.session)}/{checkpoint.id}.md"
        expected = None if before is None else page(before)
        if before is None:
            self._put(path, render(checkpoint))
        self._files.write_atomic(path, page(checkpoint), expected, new=before is None)
        if before is not None:
            self._put(path, render(checkpoint))
        return path

    def replace(self, path: str, checkpoint: Checkpoint) -> None:
        """Replaces the content of a checkpoint. Call it under `locks.files()`."""
        self._put(path, render(checkpoint))
        self._files.write_atomic(path, page(checkpoint))

    def read(self, path: str) -> Checkpoint:
        """Returns a checkpoint; without its state if only its page is on this machine. Raises NotFound, or Invalid with
        file and field."""
        shown = self._files.read_text(path)
        whole = self._whole(path)
        return parse(shown if whole is None else whole, path)

    def clean(self, path: str, clean: Callable[[str, bytes], bytes | None]) -> None:
        """Replaces the part for programs by `clean(path, bytes)`; None removes it."""
        if (before := self._whole(path)) is not None:
            after = clean(path, before.encode("utf-8"))
            if after is None:
                self._files.remove(_whole_of(path))
            elif after != before.encode("utf-8"):
                self._put(path, after.decode("utf-8", "replace"))

    def sweep(self) -> None:
        """Deletes the parts for programs that have no page. Only for a process that is alone with the checkpoints."""
        known = {_whole_of(path) for path in self._paths(FOLDER)}
        for stat in list(self._files.walk(f"{_WHOLE}/")):
            if stat.path.endswith(".xz") and stat.path not in known:
                self._files.remove(stat.path)

    def _put(self, path: str, text: str) -> None:
        self._files.write_bytes_atomic(_whole_of(path), lzma.compress(text.encode("utf-8"), preset=1))

    def _whole(self, path: str) -> str | None:
        try:
            return lzma.decompress(self._files.read_bytes(_whole_of(path))).decode("utf-8")
        except (NotFound, lzma.LZMAError, UnicodeDecodeError):
            return None

    def find(self, number: str) -> str:
        """Returns the path of a checkpoint. Raises NotFound with the nearest id."""
        known = {path.rsplit("/", 1)[-1].removesuffix(".md"): path for path in self._paths(FOLDER)}
        if number in known:
            return known[number]
        close = difflib.get_close_matches(number[:100], list(known), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise NotFound(f"no checkpoint {number!r}{hint} (recover without an id lists them)")

    def heads(self, session: str | None = None) -> list[Head]:
        """Returns the checkpoints of a session, or of all, newest first. Skips other files."""
        found: list[tuple[tuple[datetime, int, int], Head]] = []
        for path in self._paths(FOLDER if session is None else folder_of(session)):
            try:
                head = self._head(path)
                if head is not None and session in (None, head.session):
                    found.append(((head.at, head.turn, self._files.stat(path).mtime_ns), head))
            except ContextManagerError:
                continue
        return [head for _, head in sorted(found, key=lambda one: one[0], reverse=True)]

    def remove(self, path: str) -> None:
        """Deletes a checkpoint."""
        self._files.remove(path)
        if self._files.exists(_whole_of(path)):
            self._files.remove(_whole_of(path))

    def _head(self, path: str) -> Head | None:
        start = self._files.read_bytes(path, 0, _HEAD).decode("utf-8", "replace").replace("\r\n", "\n")
        fields = own_fields(split_front_matter(start).raw)
        at = read_moment(fields.get("at")) if fields else None
        if not fields or fields.get("schema") != SCHEMA or at is None:
            return None
        turn = fields.get("turn")
        texts = (str(fields.get(name) or "") for name in ("id", "session", "reason", "note"))
        number, session, reason, note = texts
        return Head(number, session, at, reason, turn if isinstance(turn, int) else 0, note, path)

    def _paths(self, folder: str) -> Iterator[str]:
        for stat in self._files.walk(f"{folder}/"):
            if stat.path.endswith(".md") and stat.path.rsplit("/", 1)[-1].startswith(PREFIX):
                yield stat.path


def _whole_of(path: str) -> str:
    return f"{_WHOLE}/{path.rsplit('/', 1)[-1].removesuffix('.md')}.xz"


def folder_of(session: str) -> str:
    """Returns the folder of a session's checkpoints."""
    return f"{FOLDER}/{file_id(session)}"
