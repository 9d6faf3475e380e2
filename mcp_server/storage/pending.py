"""Proposals: changes by agents that need the user's approval, in `.local/pending/{id}.json`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from mcp_server.errors import ContextManagerError, Invalid, NotFound
from mcp_server.storage.ports import Files

FOLDER = ".local/pending"
_ID = re.compile(r"[a-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed change. `fact` are the arguments of `remember`, `base` is the hash of the file that it was made for
    (None: no file), `by` who proposed it."""

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
        found: list[Proposal] = []
        for stat in self._files.walk(f"{FOLDER}/"):
            if stat.path.endswith(".json"):
                with contextlib.suppress(ContextManagerError):
                    found.append(self._read(stat.path))
        return sorted(found, key=lambda proposal: (proposal.at, proposal.id))

    def get(self, number: str) -> Proposal:
        """Returns a proposal. Raises NotFound with the existing ones."""
        if _ID.fullmatch(number) and self._files.exists(f"{FOLDER}/{number}.json"):
            return self._read(f"{FOLDER}/{number}.json")
        known = ", ".join(proposal.id for proposal in self.all()) or "none"
        raise NotFound(f"no proposal {number[:60]!r} waits; there are: {known}")

    def rebase(self, path: str, before: str | None, after: str | None) -> None:
        """Bases the other proposals for a file on its new text, after one of them was written."""
        for proposal in self.all():
            if proposal.path == path and proposal.base == before:
                self._write(replace(proposal, base=after))

    def remove(self, number: str) -> None:
        """Deletes a proposal, if it exists."""
        try:
            self._files.remove(f"{FOLDER}/{number}.json")
        except NotFound:
            return

    def _write(self, proposal: Proposal) -> None:
        value = {**asdict(proposal), "at": proposal.at.isoformat()}
        text = json.dumps(value, ensure_ascii=False, indent=2)
        self._files.write_atomic(f"{FOLDER}/{proposal.id}.json", text.encode("utf-8", "replace").decode())

    def _read(self, path: str) -> Proposal:
        try:
            value = json.loads(self._files.read_text(path))
            fact = {str(name): None if text is None else str(text) for name, text in value["fact"].items()}
            at = datetime.fromisoformat(value["at"])
            return Proposal(
                str(value["id"]), at, str(value["path"]), fact, value["base"], value["session"], str(value["by"])
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Invalid(f"{path} is no proposal ({error}); delete it") from error


def hash_of(text: str | None) -> str | None:
    """Returns the hash of a text for `base`."""
    return None if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
