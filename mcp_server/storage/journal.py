"""Operations that wait for approval, can be undone, or were interrupted: JSON files in `.local/`.

`pending/` has proposals: changes by agents that need the user's approval. `recovered/` has copies of replaced files, as
plain files, so that people can find them. `forget/` and `recovering/` have the requests to forget and the recoveries in
progress, so that the next process finishes them after a crash.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TypeVar

from mcp_server.errors import ContextManagerError, Invalid, NotFound
from mcp_server.storage.files import Files
from mcp_server.text.forgotten import Forgotten, from_line, hashes_of

T = TypeVar("T")

KEPT = ".local/recovered"
KEPT_PREFIX = "before-"
MOST_KEPT = 50


@dataclass(frozen=True, slots=True)
class Kept:
    """Copies of files before a change; None for a file that did not exist. `why` describes the change."""

    id: str
    at: datetime
    why: str
    files: Mapping[str, str | None]


class KeptCopies:
    """The copies of one workspace. Methods are synchronous; call those that write under `locks.files()`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def keep(self, before: Mapping[str, str | None], why: str, at: datetime) -> str:
        """Copies these files durably and returns the id. Deletes the oldest copies beyond fifty."""
        number = f"{KEPT_PREFIX}{secrets.token_hex(4)}"
        for path, text in before.items():
            if text is not None:
                self._files.write_atomic(f"{KEPT}/{number}/files/{path}", text)
        about = {"at": at.isoformat(), "why": why, "files": {path: text is not None for path, text in before.items()}}
        # Written last: without this file, the copy is ignored.
        self._files.write_atomic(f"{KEPT}/{number}/about.json", json.dumps(about, ensure_ascii=False), new=True)
        for old in self.all()[MOST_KEPT:]:
            self._files.remove_folder(f"{KEPT}/{old.id}")
        return number

    def all(self) -> list[Kept]:
        """Returns all copies, newest first. Skips unreadable ones."""
        about, folder = "/about.json", f"{KEPT}/"
        found = _read_all(self._files, KEPT, about, lambda at: self.get(at.removeprefix(folder).removesuffix(about)))
        return sorted(found, key=lambda kept: (kept.at, kept.id), reverse=True)

    def get(self, number: str) -> Kept:
        """Returns a copy. Raises NotFound."""
        try:
            about = json.loads(self._files.read_text(f"{KEPT}/{number}/about.json"))
            files = {
                path: self._files.read_text(f"{KEPT}/{number}/files/{path}") if existed else None
                for path, existed in about["files"].items()
            }
            return Kept(number, datetime.fromisoformat(about["at"]), str(about["why"]), files)
        except (NotFound, ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotFound(f"no kept copy {number!r}; `context-manager recover` lists all") from error


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
        self._files.write_atomic(f"{RECOVERING}/{intent.undo}.json", json.dumps(asdict(intent)))

    def all(self) -> list[RecoveryIntent]:
        """Returns all intents, ordered by the name of their file. Skips unreadable ones."""

        def read(path: str) -> RecoveryIntent:
            stored = json.loads(self._files.read_text(path))
            return RecoveryIntent(**{**stored, "skipped": tuple(stored["skipped"])})

        return _read_all(self._files, RECOVERING, ".json", read)

    def erase(self, intent: RecoveryIntent) -> None:
        with contextlib.suppress(NotFound):
            self._files.remove(f"{RECOVERING}/{intent.undo}.json")


@dataclass(frozen=True, slots=True)
class ForgetIntent:
    """A request to forget that is in progress. `history` tells whether git's history is rewritten, `paths` are the
    files to commit."""

    request: Forgotten
    history: bool
    paths: tuple[str, ...]


class ForgetIntents:
    """The requests to forget in progress. Methods are synchronous."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def write(self, intent: ForgetIntent) -> None:
        value = {
            "request": intent.request.as_line(),
            "cuts": [[length, digest.hex()] for length, digest in sorted(intent.request.cuts)],
            "renames": list(intent.request.renames),
            "history": intent.history,
            "paths": intent.paths,
        }
        self._files.write_atomic(f"{FORGET}/{intent.request.id}.json", json.dumps(value))

    def all(self) -> list[ForgetIntent]:
        """Returns all intents. Skips unreadable ones."""

        def read(path: str) -> ForgetIntent:
            value = json.loads(self._files.read_text(path))
            renames = tuple((str(old), str(new)) for old, new in value["renames"])
            request = replace(from_line(value["request"]), cuts=hashes_of(value["cuts"]), renames=renames)
            return ForgetIntent(request, bool(value["history"]), tuple(str(name) for name in value["paths"]))

        return _read_all(self._files, FORGET, ".json", read)

    def erase(self, intent: ForgetIntent) -> None:
        """Overwrites and deletes an intent that was carried out."""
        self._files.erase(f"{FORGET}/{intent.request.id}.json")


def _read_all(files: Files, folder: str, ending: str, read: Callable[[str], T]) -> list[T]:
    """Returns `read(path)` of each file below a folder, ordered by path. Skips unreadable ones."""
    found: list[T] = []
    for stat in files.walk(f"{folder}/"):
        if stat.path.endswith(ending):
            with contextlib.suppress(ContextManagerError, ValueError, TypeError, KeyError):
                found.append(read(stat.path))
    return found


PENDING = ".local/pending"
_ID = re.compile(r"[a-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change. `fact` has the arguments of `remember`, `base` is the hash of the file for which it was made
    (None: no file), `by` names the agent that proposed it."""

    id: str
    at: datetime
    path: str
    fact: Mapping[str, str | None]
    base: str | None
    session: str | None = None
    by: str = ""


class Pending:
    """The proposals of one workspace. Methods are synchronous; call those that write under `locks.files()`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def add(self, proposal: Proposal) -> Proposal:
        """Writes a proposal durably and returns it. Returns the existing one if it is equal."""
        for known in self.all():
            if (known.path, known.fact, known.base) == (proposal.path, proposal.fact, proposal.base):
                return known
        self._write(proposal)
        return proposal

    def all(self) -> list[Proposal]:
        """Returns all proposals, oldest first. Skips unreadable ones."""
        found = _read_all(self._files, PENDING, ".json", self._read)
        return sorted(found, key=lambda proposal: (proposal.at, proposal.id))

    def get(self, number: str) -> Proposal:
        """Returns a proposal. Raises NotFound with the existing ones."""
        if _ID.fullmatch(number) and self._files.exists(f"{PENDING}/{number}.json"):
            return self._read(f"{PENDING}/{number}.json")
        known = ", ".join(proposal.id for proposal in self.all()) or "none"
        raise NotFound(f"no proposal {number[:60]!r} is pending; there are: {known}")

    def rebase(self, path: str, before: str | None, after: str | None) -> None:
        """Makes the new text of a file the base of its other proposals, after one of them was applied. `before` and
        `after` are hashes."""
        for proposal in self.all():
            if proposal.path == path and proposal.base == before:
                self._write(replace(proposal, base=after))

    def remove(self, number: str) -> None:
        with contextlib.suppress(NotFound):
            self._files.remove(f"{PENDING}/{number}.json")

    def _write(self, proposal: Proposal) -> None:
        value = {**asdict(proposal), "at": proposal.at.isoformat()}
        text = json.dumps(value, ensure_ascii=False, indent=2)
        self._files.write_atomic(f"{PENDING}/{proposal.id}.json", text.encode("utf-8", "replace").decode())

    def _read(self, path: str) -> Proposal:
        try:
            value = json.loads(self._files.read_text(path))
            return Proposal(**{**value, "at": datetime.fromisoformat(value["at"])})
        except (ValueError, KeyError, TypeError) as error:
            raise Invalid(f"{path} is not a valid proposal ({error}); delete it") from error


def hash_of(text: str | None) -> str | None:
    """Returns the hash of a text for `base`."""
    return None if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
