"""A workspace as bytes: what a dry run must not change."""

from __future__ import annotations

import hashlib
from pathlib import Path


def bytes_of(root: Path) -> dict[str, str]:
    """A hash of every file with bytes. Of a database that is open there is an empty log beside it, and a shared memory
    that changes with every reader; neither holds anything."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.stat().st_size and not path.name.endswith("-shm")
    }
