"""Reads markdown files or folders (notes, a wiki, a `docs/`) for `knowledge/reference/{import-name}/`.

Relative paths are kept. Other and unreadable files are named and left out.
"""

from __future__ import annotations

import os
from pathlib import Path

from mcp_server.clients.importers.imported import Skipped

SUFFIXES = frozenset({".md", ".markdown", ".mdown", ".mkd", ".mdx"})
LARGEST = 20 * 1024 * 1024
"""Bytes; a larger file is not text that a person wrote."""


def listing(path: Path) -> list[tuple[Path, str]]:
    """Returns the files and hidden folders below `path` with relative paths, sorted; or the file `path` itself."""
    if not path.is_dir():
        return [(path, path.name)]
    found: list[tuple[Path, str]] = []
    for folder, folders, files in os.walk(path):
        here = Path(folder)
        hidden = [name for name in folders if name.startswith(".") or (here / name).is_symlink()]
        folders[:] = sorted(set(folders) - set(hidden))
        found += [(here / name, (here / name).relative_to(path).as_posix()) for name in hidden + files]
    return sorted(found, key=lambda item: item[1])


def read_one(path: Path, relative: str) -> bytes | Skipped:
    """Returns the bytes of a listed file, or why it is left out. Links out of the folder are not followed."""
    if path.is_dir():
        return Skipped(relative + "/", "a link to a folder" if path.is_symlink() else "a hidden folder")
    if path.suffix.lower() not in SUFFIXES:
        return Skipped(relative, f"not markdown ({path.suffix or 'no suffix'})")
    if path.is_symlink() and not path.resolve().is_relative_to(path.parents[relative.count("/")].resolve()):
        return Skipped(relative, "a link that leads out of the folder")
    try:
        if not path.is_file():
            return Skipped(relative, "not a regular file" if path.exists() else "a link that leads nowhere")
        if (size := path.stat().st_size) > LARGEST:
            return Skipped(relative, f"{size / 1024**2:.0f} MB, more than {LARGEST // 1024**2} MB")
        return path.read_bytes()
    except OSError as error:
        return Skipped(relative, f"cannot be read: {error.strerror}")
