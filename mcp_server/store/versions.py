"""Earlier versions of files as git remembers them: what `git log --raw` says, as values."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from mcp_server.store.git_repository import moment_of

FORMAT = "--format=%x01%H%x02%ct%x02%s"
"""What `parse` expects of each commit, besides `-z --raw --no-abbrev --no-renames`."""


@dataclass(frozen=True, slots=True)
class Version:
    """The file `path` as the commit `commit` left it. `blob` is git's name for its bytes."""

    path: str
    commit: str
    at: datetime
    subject: str
    blob: str


def parse(log: bytes) -> Iterator[Version]:
    """Every file that was written by a commit of the log, in the log's order; a deletion is no version."""
    parts = iter(log.split(b"\0"))
    commit, at, subject = "", datetime.fromtimestamp(0, UTC), ""
    for part in parts:
        if part.startswith(b"\x01"):
            commit, seconds, subject = part[1:].decode("utf-8", "replace").split("\x02", 2)
            at = moment_of(seconds)
        elif part.lstrip(b"\n").startswith(b":"):
            _, mode, _, blob, kind = part.decode("ascii").split(" ")
            path = os.fsdecode(next(parts))
            if kind != "D" and mode.startswith("100"):
                yield Version(path, commit, at, subject, blob)


def blob_id(data: bytes, like: str) -> str:
    """git's name for these bytes, in the kind of hash that the repository of `like` uses."""
    kind = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return kind(b"blob %d\0" % len(data) + data).hexdigest()
