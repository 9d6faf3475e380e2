"""What a recovery is about to do, written down before it begins, so that a crash in the middle is carried on."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass

from mcp_server.errors import ContextManagerError, NotFound
from mcp_server.storage.local.files import WorkspaceFiles

FOLDER = ".local/recovering"


@dataclass(frozen=True, slots=True)
class RecoveryIntent:
    """A recovery of checkpoint `target`. `undo` is the checkpoint that was made before it, `turns` how many turns the
    session had then. `skipped` are files of the knowledge that stay as they are."""

    target: str
    undo: str
    session: str
    turns: int
    knowledge: bool
    skipped: tuple[str, ...] = ()


class RecoveryIntents:
    """The intents of one workspace. Methods are synchronous."""

    def __init__(self, files: WorkspaceFiles) -> None:
        self._files = files

    def write(self, intent: RecoveryIntent) -> None:
        """Keeps an intent durably."""
        self._files.write_atomic(_path(intent), json.dumps(asdict(intent)))

    def all(self) -> list[RecoveryIntent]:
        """Every intent that was not carried out, in no order; one that cannot be read is left out."""
        folder = self._files.local / "recovering"
        found: list[RecoveryIntent] = []
        for name in sorted(file.name for file in folder.glob("*.json")) if folder.is_dir() else []:
            with contextlib.suppress(ContextManagerError, ValueError, TypeError, KeyError):
                stored = json.loads(self._files.read_text(f"{FOLDER}/{name}"))
                found.append(RecoveryIntent(**{**stored, "skipped": tuple(stored["skipped"])}))
        return found

    def erase(self, intent: RecoveryIntent) -> None:
        """Says that an intent was carried out."""
        with contextlib.suppress(NotFound):
            self._files.remove(_path(intent))


def _path(intent: RecoveryIntent) -> str:
    return f"{FOLDER}/{intent.undo}.json"
