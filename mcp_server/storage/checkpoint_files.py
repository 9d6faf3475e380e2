"""Checkpoint files: `checkpoints/{session}/{id}.md`. A checkpoint exists if its file does."""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from mcp_server.checkpoints.document import SCHEMA, Checkpoint, parse, render
from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.storage.ports import Files
from mcp_server.text.markdown import split_front_matter
from mcp_server.text.transcript_head import file_id, own_fields
from mcp_server.text.yaml_line import read_moment

FOLDER = "checkpoints"
PREFIX = "ckp_"
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
        """Writes a checkpoint durably and returns its path. Raises Conflict if the file is not equal to `before`, or
        exists without it."""
        path = f"{folder_of(checkpoint.session)}/{checkpoint.id}.md"
        expected = None if before is None else render(before)
        self._files.write_atomic(path, render(checkpoint), expected, new=before is None)
        return path

    def replace(self, path: str, checkpoint: Checkpoint) -> None:
        """Replaces the content of a checkpoint file. Call it under `locks.files()`."""
        self._files.write_atomic(path, render(checkpoint))

    def read(self, path: str) -> Checkpoint:
        """Returns the checkpoint of a file. Raises NotFound, or Invalid with file and field."""
        return parse(self._files.read_text(path), path)

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
        """Deletes a checkpoint's file."""
        self._files.remove(path)

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


def folder_of(session: str) -> str:
    """Returns the folder of a session's checkpoints."""
    return f"{FOLDER}/{file_id(session)}"
