"""Lists folders without hidden files, symbolic links, and names that are not allowed in a path."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from mcp_server.model import Category
from mcp_server.storage.local.paths import is_usable


@dataclass(frozen=True, slots=True)
class FileStat:
    """A listed file. `size` is in bytes."""

    path: str
    size: int
    mtime_ns: int


def walk(folder: Path, prefix: str) -> Iterator[FileStat]:
    """Yields every file below `folder`, ordered by name, with `prefix` before its path; none without the folder."""
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:  # the folder is missing or not readable
        return
    for entry in entries:
        if entry.name.startswith(".") or not is_usable(entry.name):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield FileStat(prefix + entry.name, found.st_size, found.st_mtime_ns)
        except OSError:  # deleted since it was listed
            continue


def count_files(root: Path) -> Counter[str]:
    """Returns the number of markdown files of each category; "other" for files in other folders."""
    known = set(get_args(Category))
    counts: Counter[str] = Counter()
    for prefix in ("knowledge/", "topics/", "archive/", "raw/conversations/"):
        for stat in walk(root / prefix, prefix):
            parts = stat.path.split("/")
            name = {"people": "person", "projects": "project", "procedures": "procedure"}.get(parts[1], parts[1])
            name = "conversation" if parts[0] == "raw" else parts[0].rstrip("s") if parts[0] != "knowledge" else name
            if stat.path.endswith(".md"):
                counts[name if name in known else "other"] += 1
    return counts


def unusable(folder: Path, prefix: str) -> Iterator[str]:
    """Yields the paths that `walk` skips because of their names. For a skipped folder, only its own path."""
    for here, folders, names in os.walk(folder):
        kept = [name for name in folders if not name.startswith(".")]
        odd = [name for name in (*kept, *names) if not name.startswith(".") and not is_usable(name)]
        folders[:] = sorted(name for name in kept if name not in odd)
        yield from (prefix + Path(here, name).relative_to(folder).as_posix() for name in sorted(odd))
