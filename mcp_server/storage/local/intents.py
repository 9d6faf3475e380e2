"""What a `forget` is about to do, written down before it begins, so that a crash in the middle is carried on.

An intent holds hashes, and the old and new names of files: no text. A name may hold words of it, so the file is
overwritten before it is deleted. (What a drive or file system keeps of overwritten blocks is out of our reach.)
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, replace

from mcp_server.errors import ContextManagerError, Invalid
from mcp_server.storage.local.copies import INTENTS
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.text.forgotten import Forgotten, from_line, hashes_of


@dataclass(frozen=True, slots=True)
class Intent:
    """A request that is carried out: whether git's history goes with it, and the files to be committed."""

    request: Forgotten
    history: bool
    paths: tuple[str, ...]


class Intents:
    """The intents of one workspace. Methods are synchronous."""

    def __init__(self, files: WorkspaceFiles) -> None:
        self._files = files

    def write(self, intent: Intent) -> None:
        """Keeps an intent durably."""
        value = {
            "request": intent.request.as_line(),
            "cuts": [[length, digest.hex()] for length, digest in sorted(intent.request.cuts)],
            "renames": list(intent.request.renames),
            "history": intent.history,
            "paths": intent.paths,
        }
        self._files.write_atomic(self._path(intent), json.dumps(value))

    def all(self) -> list[Intent]:
        """Every intent that was not carried out; one that cannot be read is left out."""
        folder = self._files.local / "forget"
        names = sorted(file.name for file in folder.glob("*.json")) if folder.is_dir() else []
        found: list[Intent] = []
        for name in names:
            with contextlib.suppress(ContextManagerError):
                found.append(self._read(f"{INTENTS}/{name}"))
        return found

    def erase(self, intent: Intent) -> None:
        """Overwrites an intent and deletes it."""
        path = self._path(intent)
        real = self._files.resolve(path)
        with contextlib.suppress(FileNotFoundError):
            size = real.stat().st_size
            with real.open("r+b") as stream:
                stream.write(b"\0" * size)
                stream.flush()
                os.fsync(stream.fileno())
            self._files.remove(path)

    def _read(self, path: str) -> Intent:
        try:
            value = json.loads(self._files.read_text(path))
            renames = tuple((str(old), str(new)) for old, new in value["renames"])
            request = replace(from_line(value["request"]), cuts=hashes_of(value["cuts"]), renames=renames)
            return Intent(request, bool(value["history"]), tuple(str(name) for name in value["paths"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Invalid(f"{path} cannot be read ({error}); run the same `forget` again and delete it") from error

    def _path(self, intent: Intent) -> str:
        return f"{INTENTS}/{intent.request.id}.json"
