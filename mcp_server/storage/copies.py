"""Finds and removes forgotten text in the files of a workspace, and in values of rows.

Hidden files, logs, backups and leftovers are searched too. Git's folder, the search index, locks and the requests to
forget are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mcp_server.errors import Conflict, ContextManagerError
from mcp_server.forgetting.cleaning import Cleaned, Place, cleaned
from mcp_server.storage.files import Files
from mcp_server.storage.values import LOCAL
from mcp_server.text.forgotten import Forgotten, cut_short, values

PROSE = frozenset({"title", "text", "content", "summary", "shown"})
"""Columns with text of people; the others have names, and a name contains no brackets."""


KEPT = frozenset({"session", "turn_id", "sha"})
"""Columns of ids: clients know a conversation by them."""


def clean_value(column: str, value: object, request: Forgotten) -> object:
    """Returns the value of a column without a request's text."""
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

    def __init__(self, files: Files) -> None:
        self._files = files

    def walk(self) -> Iterator[str]:
        """Yields the paths of all files that may contain a copy."""
        return (path for path in self._files.everything() if not _LEFT_OUT.fullmatch(path))

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

    def stale_versions(self, request: Forgotten) -> list[tuple[str, int]]:
        """Returns path and number of earlier versions that contain a request's text in their content or name."""
        return [
            (path, number)
            for path, number, data in self._files.past_versions()
            if (found := self._cleaned(path, data, request)).places or found.stuck or request.path(path) != path
        ]

    def free_name(self, path: str, taken: set[str]) -> str:
        """Returns `path`, or `path` with `-2` and so on if that name is taken."""
        stem, dot, ending = path.rpartition(".")
        number, wanted = 2, path
        while wanted in taken or self._files.exists(wanted):
            wanted = f"{stem}-{number}{dot}{ending}" if dot and "/" not in ending else f"{path}-{number}"
            number += 1
        return wanted

    def new_name(self, path: str, request: Forgotten) -> str:
        """Returns a file's path without forgotten words."""
        data = self._bytes(path)
        return (self._cleaned(path, data, request).path if data is not None else None) or request.path(path)

    def _look(self, path: str, request: Forgotten) -> Copy | None:
        data = self._bytes(path)
        if data is None and (odd := self._files.unnamed(path, LARGEST)) is not None:
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

    def text(self, path: str) -> str:
        """Returns a file as text; an empty one if it is too large or gone."""
        return (self._bytes(path) or b"").decode("utf-8", "surrogateescape")

    def _size(self, path: str) -> int:
        try:
            return self._files.stat(path).size
        except ContextManagerError:
            return 0
