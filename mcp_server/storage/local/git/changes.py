"""What differs between the work tree and the last commit, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mcp_server.history.commit_rules import CONVERSATIONS, FileChange, is_sealed
from mcp_server.storage.local.git.git import Git

LONGEST_TEXT = 1_000_000
"""Bytes of a file from which on it is not read for a message; the commit itself looks at all of it."""

MOST_READ = 500
"""Files whose texts are read: the message names no more."""

_HEAD_BYTES = 4096
"""A conversation's end is written in its front matter."""


def changes(git: Git, root: Path, prefixes: Sequence[str]) -> list[FileChange]:
    """What was changed, made or deleted under these paths since the last commit and was not staged.

    Conversations that are still going on are left out; of files that are encrypted on their way into git there is no
    text. Blocks; raises Unavailable if git is missing or fails.
    """
    paths = [path for path in git.uncommitted(prefixes) if not _is_open(root, path)]
    read = paths[:MOST_READ]
    before = git.committed_texts(read, LONGEST_TEXT)
    closed = git.filtered(read)
    known = [FileChange(path, before[path], _text(root / path)) for path in read if path not in closed]
    known += [_unread(path, before[path], _text(root / path)) for path in sorted(closed)]
    return known + [FileChange(path, "", "" if (root / path).exists() else None) for path in paths[MOST_READ:]]


def _unread(path: str, before: str | None, after: str | None) -> FileChange:
    return FileChange(path, None if before is None else "", None if after is None else "")


def _is_open(root: Path, path: str) -> bool:
    """Whether this is a conversation without an end; one that is gone is none."""
    if not path.startswith(CONVERSATIONS) or not path.endswith(".md"):
        return False
    try:
        with (root / path).open("rb") as stream:
            head = stream.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return not is_sealed(path, head)


def _text(place: Path) -> str | None:
    try:
        if place.is_symlink() or not place.is_file():
            return None if not place.exists() and not place.is_symlink() else ""
        if place.stat().st_size > LONGEST_TEXT:
            return ""
        data = place.read_bytes()
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode("utf-8", "replace")
