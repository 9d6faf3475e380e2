"""Which transcripts there are, by name alone. An import asks this for every session, so a folder that did not change is
not listed again.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

SETTLED_NS = 2_000_000_000
"""A folder that was changed so shortly before it was listed may change again without a later time."""


@dataclass(frozen=True, slots=True)
class _Listed:
    mtime_ns: int
    folders: tuple[str, ...]
    names: tuple[str, ...]


class TranscriptNames:
    """The markdown files below `root`, as they are whenever it is asked."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listed: dict[str, _Listed] = {}

    def holding(self, part: str) -> list[str]:
        """The paths below the root, with slashes, of the files whose names hold `part`."""
        found: list[str] = []
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            listed = self._list(folder)
            if listed is not None:
                found += [folder + name for name in listed.names if part in name]
                waiting += [f"{folder}{name}/" for name in listed.folders]
        return found

    def _list(self, folder: str) -> _Listed | None:
        """What lies in one folder; None if it is gone. Hidden files and links are left out."""
        real = self._root / folder
        try:
            mtime_ns = real.stat().st_mtime_ns
            known = self._listed.get(folder)
            if known is not None and known.mtime_ns == mtime_ns:
                return known
            now = time.time_ns()
            with os.scandir(real) as entries:
                shown = [entry for entry in entries if not entry.name.startswith(".")]
                folders = tuple(entry.name for entry in shown if entry.is_dir(follow_symlinks=False))
                names = tuple(
                    entry.name for entry in shown if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False)
                )
        except OSError:
            self._listed.pop(folder, None)
            return None
        listed = _Listed(mtime_ns, folders, names)
        if 0 <= mtime_ns < now - SETTLED_NS:
            self._listed[folder] = listed
        return listed
