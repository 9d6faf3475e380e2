"""Forgotten text: the requests in `forgotten.jsonl`, as hashes, and the copies of a text in files and rows.

All code that writes text into the workspace cleans it first:

    memory.forgotten.clean(text)             a text before it is written
    memory.forgotten.turn(turn, session)     a turn
    memory.forgotten.document(path, text)    a whole file, which may be forgotten itself

The file of requests is read again when it changes: another process, or git, may add a line.

The search for copies includes hidden files, logs, backups and leftovers of crashes. It leaves out git's folder, the
search index, locks and the requests themselves.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mcp_server.errors import Conflict, ContextManagerError, Invalid
from mcp_server.forgetting.cleaning import Cleaned, Place, cleaned
from mcp_server.model import Turn
from mcp_server.storage.files import Files
from mcp_server.storage.values import LOCAL
from mcp_server.text import forgotten
from mcp_server.text.forgotten import Forgotten, cut_short

PATH = "forgotten.jsonl"
SALT = 16


class ForgottenTexts:
    """The requests of one workspace, oldest first. Without any, cleaning costs nothing."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._seen: object | None = None
        self._requests: tuple[Forgotten, ...] = ()
        self._together: tuple[Forgotten, ...] = ()
        self.problems: tuple[str, ...] = ()
        """The problems in the file of requests, for `status`. Broken lines are ignored."""

    def clean(self, text: str) -> str:
        self._read()
        if not any(request.find(text) for request in self._together):
            return text
        return forgotten.clean(self._requests, text)

    def turn(self, turn: Turn, session: str) -> Turn:
        self._read()
        if all(request.turn(turn, session) == turn for request in self._together):
            return turn
        return forgotten.clean_turn(self._requests, turn, session)

    def path(self, path: str) -> str:
        self._read()
        for request in self._requests:
            path = request.path(path)
        return path

    def document(self, path: str, text: str) -> str | None:
        """Returns the text of a file without forgotten parts; None if the whole file was forgotten."""
        self._read()
        for request in self._requests:
            data = cleaned(path, text.encode("utf-8", "surrogateescape"), request).data
            if data is None:
                return None
            text = data.decode("utf-8", "surrogateescape")
        return text

    def requests(self) -> Sequence[Forgotten]:
        """Returns all requests, oldest first."""
        self._read()
        return self._requests

    def salt(self) -> bytes:
        """Returns the salt for a new request: that of the last request, so that a text is hashed only once; a new salt
        if there is no request."""
        self._read()
        return self._requests[-1].salt if self._requests else secrets.token_bytes(SALT)

    def add(self, request: Forgotten) -> None:
        """Adds a request durably, unless it exists. Call it under `locks.files()`."""
        self._read()
        if any(known.id == request.id for known in self._requests):
            return
        before = self._files.text_or_none(PATH)
        text = (before or "").rstrip("\n")
        text = f"{text}\n{request.as_line()}\n" if text else f"{request.as_line()}\n"
        self._files.write_atomic(PATH, text, before, new=before is None)

    def _read(self) -> None:
        seen = self._files.version(PATH)
        if seen is None:
            self._seen, self._requests, self._together = None, (), ()
            return
        if seen == self._seen:
            return
        requests: list[Forgotten] = []
        problems: list[str] = []
        try:
            lines = self._files.read_text(PATH).splitlines()
        except ContextManagerError as error:
            lines, problems = [], [str(error)]
        for number, line in enumerate(lines, start=1):
            try:
                if line.strip():
                    requests.append(forgotten.from_line(line))
            except Invalid as error:
                problems.append(
                    f"{PATH}: line {number}: {error}; the text that it forgets may come back: restore the line from git"
                )
        # Assigned together and last: another thread sees the old requests or the new ones.
        self._together = _by_salt(requests)
        self._requests, self.problems, self._seen = tuple(requests), tuple(problems), seen


def _by_salt(requests: Sequence[Forgotten]) -> tuple[Forgotten, ...]:
    """Merges requests with the same salt, so that one search of a text finds the words of all."""
    found: dict[bytes, Forgotten] = {}
    for request in requests:
        if known := found.get(request.salt):
            names = ("windows", "sessions", "turns", "paths", "sources")
            both = {name: getattr(known, name) | getattr(request, name) for name in names}
            request = replace(known, at=max(known.at, request.at), **both)
        found[request.salt] = request
    return tuple(found.values())


PROSE = frozenset({"title", "text", "content", "summary", "shown"})
"""Columns with prose. The others have names; in names, the replacement of forgotten text has no brackets."""

KEPT = frozenset({"session", "turn_id", "sha"})
"""Columns of ids, which are never changed: clients identify a conversation by them."""


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
        fresh = forgotten.values(parsed, request.clean, request.name)
        return value if fresh == parsed else json.dumps(fresh)
    return clean(value)


_LEFT_OUT = re.compile(
    rf"(?:{re.escape(LOCAL)}/(?:index|locks|forget)/.*|{re.escape(LOCAL)}/state\.db(?:-wal|-shm|-journal)?|forgotten\.jsonl)"
)
_TEMPORARY = re.compile(r"(?:.*/)?\.cm-[0-9a-f]{16}\.tmp")
_DAMAGED = re.compile(rf"{re.escape(LOCAL)}/.*\.damaged-\d+")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
LARGEST = 512 * 1024 * 1024
"""Bytes. Larger files are not searched; `Copies.find` reports them as too large."""
TRIES = 20
"""Most attempts of `Copies.clean` to rewrite a file that changes meanwhile."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A file with copies of a forgotten text: their places, its new path if its name contains one, and the reason if a
    copy cannot be removed (`stuck`)."""

    path: str
    places: tuple[Place, ...]
    new_path: str | None = None
    stuck: str = ""


UNNAMED = "a file with such a name cannot be rewritten: delete it, or rename it and repeat"


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
        """Returns the beginnings of these texts that are left where a text or a file name was cut off."""
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
        """Returns a file's new path, without forgotten words."""
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
        except ContextManagerError:  # deleted since it was listed, or a link that leads out of the workspace
            return None

    def text(self, path: str) -> str:
        """Returns a file as text; "" if it is too large or does not exist."""
        return (self._bytes(path) or b"").decode("utf-8", "surrogateescape")

    def _size(self, path: str) -> int:
        try:
            return self._files.stat(path).size
        except ContextManagerError:
            return 0
