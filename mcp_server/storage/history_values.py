"""The values of the history: versions, commits, tags, branches and planned merges."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Version:
    """The file `path` as of the commit `commit`. `blob` is git's id of its bytes."""

    path: str
    commit: str
    at: datetime
    subject: str
    blob: str


def object_id(data: bytes, like: str, kind: str = "blob") -> str:
    """Returns git's id of an object with these bytes, in the hash format of the id `like`."""
    hashed = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return hashed(f"{kind} {len(data)}\0".encode() + data).hexdigest()


_TRAILER = re.compile(r"^Session: (\S.*)$", re.MULTILINE)

_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: its id, time (UTC), author's name and whole message."""

    id: str
    at: datetime
    author: str
    message: str

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]

    @property
    def reverts(self) -> str | None:
        """Returns the id of the commit that this one reverts, if any."""
        found = _REVERTS.search(self.message)
        return found[1] if found else None

    @property
    def sessions(self) -> tuple[str, ...]:
        """Returns the transcripts that the message names as its sources."""
        return tuple(_TRAILER.findall(self.message))


TAG_PREFIX = "memory/"
"""The names of the memory's own tags begin with this."""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag: its full name, its commit with the commit's time (UTC), and its message."""

    name: str
    commit: str
    at: datetime
    message: str


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: its commit with the commit's time (UTC), the number of its commits that HEAD lacks, and the folder
    where it is checked out, if any."""

    name: str
    commit: str
    at: datetime
    ahead: int
    place: Path | None


Resolve = Callable[[str, bytes | None, bytes, bytes], bytes]
"""(path, base, ours, theirs) → the merged file; base is None if there is no common version."""


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A planned merge from the commit `old` to `tree`.

    `changed` maps a path to its entries in `old` and `tree`, each as `mode blob` or "". `both` are the paths that both
    sides changed. `links` are symbolic links that the other side added or changed: they are not merged.
    """

    old: str
    tree: str
    changed: Mapping[str, tuple[str, str]]
    both: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit: its id (None: nothing changed), its paths, and the paths left out, each with the reason.

    `waiting` are paths with changes that the user has staged: they are left to the user's commit.
    """

    commit: str | None
    paths: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()


LONGEST_TEXT = 1_000_000
"""Files with more bytes are not read for a commit message."""
