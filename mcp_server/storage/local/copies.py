"""Finds and removes forgotten text in the files of a workspace, and in the rows of a SQLite file.

Hidden files, logs, backups and leftovers are searched too. Git's folder, the search index, locks and the requests to
forget are left out.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_server.errors import Conflict, ContextManagerError
from mcp_server.forgetting.cleaning import Cleaned, Place, cleaned
from mcp_server.storage.local import durable
from mcp_server.storage.local.files import WorkspaceFiles, is_usable
from mcp_server.storage.ports import Folder
from mcp_server.storage.values import LOCAL
from mcp_server.text.forgotten import Forgotten, cut_short, joined, values

PROSE = frozenset({"title", "text", "content", "summary", "shown"})
"""Columns with text of people; the others have names, and a name contains no brackets."""


KEPT = frozenset({"session", "turn_id", "sha"})
"""Columns of ids: clients know a conversation by them."""


def scrub(connection: sqlite3.Connection, request: Forgotten) -> dict[str, int]:
    """Cleans all texts of all tables in the caller's transaction. Returns the number of changed rows of each table."""
    changed: dict[str, int] = {}
    for table, columns, stale in _stale(connection, request):
        changed[table] = len(stale)
        same = " AND ".join(f'"{name}" IS ?' for name in columns)
        marks = ", ".join("?" * len(columns))
        for row, fresh in stale:
            connection.execute(f'DELETE FROM "{table}" WHERE {same}', row)
            connection.execute(f'INSERT OR REPLACE INTO "{table}" VALUES ({marks})', fresh)
    return changed


def held(connection: sqlite3.Connection, request: Forgotten) -> dict[str, int]:
    """Returns the number of rows of each table that `scrub` would change. Takes no write lock."""
    return {table: len(stale) for table, _, stale in _stale(connection, request)}


_Row = tuple[object, ...]


def _stale(connection: sqlite3.Connection, request: Forgotten) -> list[tuple[str, list[str], list[tuple[_Row, _Row]]]]:
    """Returns the tables with forgotten text: name, columns, and each row before and after cleaning."""
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE 'CREATE V%'"
    ).fetchall()
    found: list[tuple[str, list[str], list[tuple[_Row, _Row]]]] = []
    for (table,) in tables:
        cursor = connection.execute(f'SELECT * FROM "{table}"')
        columns = [column[0] for column in cursor.description]
        stale = [
            (row, fresh)
            for row in cursor
            if (fresh := tuple(_clean(name, value, request) for name, value in zip(columns, row, strict=True))) != row
        ]
        if stale:
            found.append((table, columns, stale))
    return found


def wipe(connection: sqlite3.Connection) -> bool:
    """Writes the file anew without its free pages and empties the write-ahead log. Outside a transaction.

    False if a reader of another process still needs the log; then call it again.
    """
    connection.execute("PRAGMA secure_delete = ON").fetchone()
    connection.execute("VACUUM")
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _clean(column: str, value: object, request: Forgotten) -> object:
    if not isinstance(value, str) or column in KEPT:
        return value
    clean: Callable[[str], str] = request.clean if column in PROSE else request.name
    if value[:1] in ('"', "{", "["):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return clean(value)
        fresh = values(parsed, request.clean, request.name)
        return value if fresh == parsed else json.dumps(fresh)
    return clean(value)


_LEFT_OUT = re.compile(
    rf"(?:{re.escape(LOCAL)}/(?:index|locks|forget)/.*|{re.escape(LOCAL)}/state\.db(?:-wal|-shm|-journal)?|forgotten\.jsonl)"
)
_TEMPORARY = re.compile(r"(?:.*/)?\.cm-[0-9a-f]{16}\.tmp")
_DAMAGED = re.compile(rf"{re.escape(LOCAL)}/.*\.damaged-\d+")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
LARGEST = 512 * 1024 * 1024
"""Bytes. Larger files are named, but not searched."""
TRIES = 20


@dataclass(frozen=True, slots=True)
class Copy:
    """A file with copies: their places, its new path if its name contains one, and why a copy cannot be removed."""

    path: str
    places: tuple[Place, ...]
    new_path: str | None = None
    stuck: str = ""


UNNAMED = "files with such a name are not written here: delete it, or rename it and repeat"


class Copies:
    """The files of one workspace. Methods are synchronous: call them in a worker thread."""

    def __init__(self, disk: Folder) -> None:
        self._files = WorkspaceFiles(disk.root, disk.local)

    def walk(self) -> Iterator[str]:
        """Yields the paths of all files that may contain a copy."""
        for base, prefix in ((self._files.root, ""), (self._files.local, f"{LOCAL}/")):
            for folder, names, found in os.walk(base):
                here = Path(folder)
                names[:] = sorted(name for name in names if name != ".git" and here / name != self._files.local)
                for name in sorted(found):
                    path = prefix + (here / name).relative_to(base).as_posix()
                    if not _LEFT_OUT.fullmatch(path) and _is_file(here / name):
                        yield path

    def find(self, request: Forgotten) -> Iterator[Copy]:
        """Yields every file that contains a request's text in its content or name."""
        for path in self.walk():
            found = self._look(path, request)
            if found is not None:
                yield found

    def cuts(self, runs: Sequence[str]) -> set[str]:
        """Returns beginnings of these texts that occur where a text or a file name was cut off."""
        found: set[str] = set()
        for path in self.walk():
            for run in runs:
                found |= cut_short(path.rsplit("/", 1)[-1], run, names=True)
                text = self.text(path)
                if "…" in text or "..." in text:
                    found |= cut_short(text, run)
        return found

    def inside_words(self, request: Forgotten, run: str) -> list[str]:
        """Returns `path:line` of places where a text occurs only within longer words. They are not changed."""
        found: list[str] = []
        for path in self.walk():
            text = self.text(path)
            if run not in joined(text):
                continue
            for number, line in enumerate(request.clean(text).split("\n"), 1):
                if run in joined(line):
                    found.append(f"{path}:{number}")
        return found

    def clean(self, path: str, request: Forgotten) -> bool:
        """Rewrites a file without a request's text. Returns False if the file did not contain it.

        Call it under the file's lock. For files without a lock (logs) it retries if the file changes meanwhile.
        """
        for attempt in range(TRIES):
            data = self._bytes(path)
            if data is None:
                return False
            fresh = self._cleaned(path, data, request)
            if fresh.data == data:
                return False
            if fresh.data is None:
                self._files.remove(path)
                return True
            try:
                self._files.write_bytes_atomic(path, fresh.data, data)
                return True
            except Conflict:
                if attempt == TRIES - 1:
                    raise
        return False

    def free_name(self, path: str, taken: set[str]) -> str:
        """Returns `path`, or `path` with `-2` and so on if that name is taken."""
        stem, dot, ending = path.rpartition(".")
        number, wanted = 2, path
        while wanted in taken or self._files.exists(wanted):
            wanted = f"{stem}-{number}{dot}{ending}" if dot and "/" not in ending else f"{path}-{number}"
            number += 1
        return wanted

    def remove_empty(self, folder: str) -> None:
        """Deletes a folder and its parents as far as they are empty."""
        real = self._files.resolve(folder)
        while real != self._files.root and self._files.root in real.parents:
            try:
                real.rmdir()
            except OSError:
                return
            real = real.parent

    def new_name(self, path: str, request: Forgotten) -> str:
        """Returns a file's path without forgotten words."""
        data = self._bytes(path)
        return (self._cleaned(path, data, request).path if data is not None else None) or request.path(path)

    def _look(self, path: str, request: Forgotten) -> Copy | None:
        data = self._bytes(path)
        if data is None and (odd := self._unnamed(path)) is not None:
            found = cleaned(path, odd, request)
            return Copy(path, found.places, None, UNNAMED) if found.places or found.stuck else None
        if data is None:
            new = request.path(path)
            too_large = self._size(path) > LARGEST
            new_path = new if new != path else None
            return Copy(path, (), new_path, "it is too large to be searched") if too_large or new_path else None
        found = self._cleaned(path, data, request)
        if found.places or found.stuck or found.path:
            return Copy(path, found.places, None if found.data is None else found.path, found.stuck)
        return None

    def _cleaned(self, path: str, data: bytes, request: Forgotten) -> Cleaned:
        found = cleaned(path, data, request)
        if _TEMPORARY.fullmatch(path) or _DAMAGED.fullmatch(path):
            # Leftovers of a crash are not needed, and a damaged database cannot be cleaned.
            holds = found.stuck or found.places
            return Cleaned(None, (Place(None, "deleted"),)) if holds else Cleaned(data)
        if path.endswith(_COMPRESSED) and path.startswith(f"{LOCAL}/logs/"):
            return Cleaned(None, (Place(None, "deleted: a compressed log cannot be cleaned"),))
        return found

    def _bytes(self, path: str) -> bytes | None:
        try:
            return None if self._size(path) > LARGEST else self._files.read_bytes(path)
        except ContextManagerError:  # deleted since it was listed, or a link that leads out
            return None

    def _unnamed(self, path: str) -> bytes | None:
        """Returns the bytes of a file whose name is not allowed in a path; None for all others."""
        if all(map(is_usable, path.split("/"))) or path.startswith(f"{LOCAL}/"):
            return None
        try:
            with durable.opened(self._files.root / path) as stream:
                return stream.read(LARGEST)
        except OSError:
            return None

    def text(self, path: str) -> str:
        """Returns a file as text; an empty one if it is too large or gone."""
        return (self._bytes(path) or b"").decode("utf-8", "surrogateescape")

    def _size(self, path: str) -> int:
        try:
            return self._files.stat(path).size
        except ContextManagerError:
            return 0


def _is_file(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        return False
