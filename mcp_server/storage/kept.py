"""Copies of replaced files, so that a replacement can be undone: `.local/recovered/{id}/`.

They are plain files, so that people can find them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.storage.ports import Files

FOLDER = ".local/recovered"
PREFIX = "before-"
MOST = 50


@dataclass(frozen=True, slots=True)
class Kept:
    """The files before `why` changed them; None for a file that did not exist."""

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
        number = f"{PREFIX}{secrets.token_hex(4)}"
        for path, text in before.items():
            if text is not None:
                self._files.write_atomic(f"{FOLDER}/{number}/files/{path}", text)
        about = {"at": at.isoformat(), "why": why, "files": {path: text is not None for path, text in before.items()}}
        # Written last: without it the copy is not there.
        self._files.write_atomic(f"{FOLDER}/{number}/about.json", json.dumps(about, ensure_ascii=False), new=True)
        for old in self.all()[MOST:]:
            self._files.remove_folder(f"{FOLDER}/{old.id}")
        return number

    def all(self) -> list[Kept]:
        """Returns all copies, newest first. Skips unreadable ones."""
        found: list[Kept] = []
        for stat in self._files.walk(f"{FOLDER}/"):
            if stat.path.endswith("/about.json"):
                try:
                    found.append(self.get(stat.path.removeprefix(f"{FOLDER}/").removesuffix("/about.json")))
                except ContextManagerError:
                    continue
        return sorted(found, key=lambda kept: (kept.at, kept.id), reverse=True)

    def get(self, number: str) -> Kept:
        """Returns a copy. Raises NotFound."""
        try:
            about = json.loads(self._files.read_text(f"{FOLDER}/{number}/about.json"))
            files = {
                path: self._files.read_text(f"{FOLDER}/{number}/files/{path}") if existed else None
                for path, existed in about["files"].items()
            }
            return Kept(number, datetime.fromisoformat(about["at"]), str(about["why"]), files)
        except (NotFound, ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotFound(f"no kept copy {number!r}; `context-manager recover` lists those there are") from error
