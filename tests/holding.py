"""Looking for a text in everything that a workspace holds, as bytes: what `grep -r` finds, and what it cannot see."""

from __future__ import annotations

import subprocess
from pathlib import Path


def holding(root: Path | str, text: str) -> list[str]:
    """Files outside of git's folder whose bytes hold the text in upper, lower or its own case; databases too. For the
    address of a memory on PostgreSQL: tables with such a row."""
    wanted = text.lower().encode()
    if isinstance(root, str):
        from tests.postgres import tables

        return [name for name, rows in tables(root) if wanted in rows.lower()]
    return [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts and wanted in path.read_bytes().lower()
    ]


def named(root: Path | str, text: str) -> list[str]:
    """Files and folders whose names hold the text; none on PostgreSQL, where `holding` finds paths."""
    if isinstance(root, str):
        return []
    return [str(path.relative_to(root)) for path in sorted(root.rglob("*")) if text.lower() in path.name.lower()]


def in_git(root: Path | str, text: str) -> list[str]:
    """Objects of git (loose, packed, reachable or not, inflated) and files of its folder that hold the text.
    None on PostgreSQL."""
    if isinstance(root, str):
        return []
    wanted = text.lower().encode()
    found: list[str] = []
    rest = subprocess.run(
        ["git", "cat-file", "--batch-all-objects", "--batch"], cwd=root, capture_output=True, check=True
    ).stdout
    while rest:
        head, rest = rest.split(b"\n", 1)  # name, kind, bytes
        name, _, size = head.decode().split()
        if wanted in rest[: int(size)].lower():
            found.append(name)
        rest = rest[int(size) + 1 :]
    for path in sorted((root / ".git").rglob("*")):
        if path.is_file() and "objects" not in path.parts and wanted in path.read_bytes().lower():
            found.append(str(path.relative_to(root)))
    return found
