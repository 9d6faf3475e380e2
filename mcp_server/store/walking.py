"""Listing a folder: what is hidden, a symbolic link, or no text in its name is left out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file as the folder lists it. Sizes in bytes."""

    path: str
    size: int
    mtime_ns: int


def walk(folder: Path, prefix: str) -> Iterator[FileStat]:
    """Every file below `folder`, in the order of names, its path after `prefix`; none if there is no such folder."""
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:  # no such folder, or one that we may not read
        return
    for entry in entries:
        if entry.name.startswith(".") or not _is_text(entry.name):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield FileStat(prefix + entry.name, found.st_size, found.st_mtime_ns)
        except OSError:  # gone since it was listed
            continue


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return True
