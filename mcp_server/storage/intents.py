"""Intents: written before a `forget` or a recovery begins, so that an interrupted one is continued.

A forget intent has hashes and the old and new names of files, but no text. A name may contain forgotten words, so the
file is overwritten before it is deleted. (Copies that a drive or file system keeps cannot be reached.)
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from mcp_server.errors import ContextManagerError, Invalid, NotFound
from mcp_server.storage.ports import Files
from mcp_server.text.forgotten import Forgotten, from_line, hashes_of

FORGET = ".local/forget"
RECOVERING = ".local/recovering"


@dataclass(frozen=True, slots=True)
class RecoveryIntent:
    """A recovery of checkpoint `target`. `undo` is the checkpoint that was made before it, `turns` the session's number
    of turns then. `skipped` are knowledge files that are not restored."""

    target: str
    undo: str
    session: str
    turns: int
    knowledge: bool
    skipped: tuple[str, ...] = ()


class RecoveryIntents:
    """The recoveries in progress. Methods are synchronous."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def write(self, intent: RecoveryIntent) -> None:
        """Writes an intent durably."""
        self._files.write_atomic(f"{RECOVERING}/{intent.undo}.json", json.dumps(asdict(intent)))

    def all(self) -> list[RecoveryIntent]:
        """Returns all intents, ordered by the name of their file. Skips unreadable ones."""
        found: list[RecoveryIntent] = []
        for path in _json_files(self._files, RECOVERING):
            with contextlib.suppress(ContextManagerError, ValueError, TypeError, KeyError):
                stored = json.loads(self._files.read_text(path))
                found.append(RecoveryIntent(**{**stored, "skipped": tuple(stored["skipped"])}))
        return found

    def erase(self, intent: RecoveryIntent) -> None:
        """Deletes an intent that was carried out."""
        with contextlib.suppress(NotFound):
            self._files.remove(f"{RECOVERING}/{intent.undo}.json")


@dataclass(frozen=True, slots=True)
class Intent:
    """A request to forget in progress: whether git's history is rewritten, and the files to commit."""

    request: Forgotten
    history: bool
    paths: tuple[str, ...]


class Intents:
    """The requests to forget in progress. Methods are synchronous."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def write(self, intent: Intent) -> None:
        """Writes an intent durably."""
        value = {
            "request": intent.request.as_line(),
            "cuts": [[length, digest.hex()] for length, digest in sorted(intent.request.cuts)],
            "renames": list(intent.request.renames),
            "history": intent.history,
            "paths": intent.paths,
        }
        self._files.write_atomic(f"{FORGET}/{intent.request.id}.json", json.dumps(value))

    def all(self) -> list[Intent]:
        """Returns all intents. Skips unreadable ones."""
        found: list[Intent] = []
        for path in _json_files(self._files, FORGET):
            with contextlib.suppress(ContextManagerError):
                found.append(self._read(path))
        return found

    def erase(self, intent: Intent) -> None:
        """Overwrites and deletes an intent that was carried out."""
        self._files.erase(f"{FORGET}/{intent.request.id}.json")

    def _read(self, path: str) -> Intent:
        try:
            value = json.loads(self._files.read_text(path))
            renames = tuple((str(old), str(new)) for old, new in value["renames"])
            request = replace(from_line(value["request"]), cuts=hashes_of(value["cuts"]), renames=renames)
            return Intent(request, bool(value["history"]), tuple(str(name) for name in value["paths"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Invalid(f"{path} cannot be read ({error}); run the same `forget` again and delete it") from error


def _json_files(files: Files, folder: str) -> Iterator[str]:
    return (stat.path for stat in files.walk(f"{folder}/") if stat.path.endswith(".json"))
