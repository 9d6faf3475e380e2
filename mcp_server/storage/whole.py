"""The content of a whole workspace, as it moves between storage engines: rows of the state, git's history, and files.

engine.dump(sink)        calls `sink.row` for all rows, `sink.history`, then `sink.file` for all files, in order
engine.load(source)      stores the same in an empty workspace
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mcp_server.storage.values import CHUNK_COLUMNS, LOCAL

TABLES: Mapping[str, tuple[str, ...]] = {
    "session": (
        *("session", "path", "status", "project", "kind", "delivery", "title", "opened", "last_arrival", "turns"),
        *("last_at", "size"),
    ),
    "turn_key": ("session", "number", "role", "sha", "nth", "turn_id"),
    "access": ("path", "at", "kind"),
    "directory": ("folder", "id"),
    "entry": ("namespace", "key", "value"),
    "live_chunk": ("session", *CHUNK_COLUMNS),
}
"""The columns of each table of the state."""

ORDERS: Mapping[str, str] = {
    "session": "session",
    "turn_key": "session, number",
    "access": "path, at, kind",
    "directory": "folder",
    "entry": "namespace, key",
    "live_chunk": "session, id",
}
"""The order in which the rows of each table move, so that two exports of the same state have the same bytes."""

OF_AN_ENGINE = ("state", "git", "in git")
"""Namespaces of entries about the storage itself. They do not move."""

MOVED_LOCAL = tuple(f"{LOCAL}/{name}" for name in ("checkpoints", "cold-storage", "logs", "pending", "recovered"))
"""Folders in `.local/` that move. The others are made again (index, briefs) or belong to one machine (its settings,
the records of installed clients, tokens)."""

BUNDLE = f"{LOCAL}/history.bundle"
"""The git history of a workspace before it moved to PostgreSQL, in git's own format."""

EXPORT = ".memory"
"""The folder of an export that has state, history and the list of files."""

PART_BYTES = 1 << 20
"""Bytes of a file that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A file of a workspace: its path, the time of its last change, and whether it is read-only."""

    path: str
    mtime_ns: int
    sealed: bool


@dataclass(frozen=True, slots=True)
class MovedHistory:
    """A file in git's bundle format with all branches and tags, and the branch that is checked out."""

    bundle: Path
    branch: str


class Sink(Protocol):
    """Receives a whole workspace: first the rows, then the history, then the files ordered by path."""

    def row(self, table: str, values: tuple[Any, ...]) -> None: ...
    def history(self, branch: str, parts: Iterable[bytes]) -> None: ...
    def file(self, found: MovedFile, parts: Iterable[bytes]) -> None: ...


class Source(Protocol):
    """A whole workspace that is stored somewhere else. `history` unpacks into a folder of the caller."""

    def rows(self) -> Iterator[tuple[str, tuple[Any, ...]]]: ...
    def history(self, folder: Path) -> MovedHistory | None: ...
    def files(self) -> Iterator[tuple[MovedFile, Iterator[bytes]]]: ...


def moves(path: str) -> bool:
    """Returns whether a file of a workspace moves with it."""
    first = path.partition("/")[0]
    if first == LOCAL:
        return path.startswith(tuple(f"{folder}/" for folder in MOVED_LOCAL))
    return first not in (".git", EXPORT)
