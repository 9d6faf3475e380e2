"""The requests to forget in `forgotten.jsonl`, as hashes. Everything that writes text cleans it here.

    memory.forgotten.clean(text)             a text before it is written
    memory.forgotten.turn(turn, session)     a turn
    memory.forgotten.document(path, text)    a whole file, which may be forgotten itself

The file is read again when it changes: another process, or git, may add a line.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.forgetting.cleaning import cleaned
from mcp_server.model import Turn
from mcp_server.storage.files import Files
from mcp_server.text import forgotten
from mcp_server.text.forgotten import Forgotten

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
        """The problems of the file, for `status`; such lines are ignored."""

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
        """Returns the salt for a new request: the last one again, so that texts are hashed once, else a new one."""
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
                problems.append(f"{PATH}: line {number}: {error}; what it names may come back: mend it from git")
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
