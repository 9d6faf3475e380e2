"""The ports of storage: the interfaces that each storage engine implements.

`storage.local` implements all of them with files, SQLite and git, `storage.postgres` with PostgreSQL. If engines share
methods, the port is a base class: `Locks`, `files.Files`, `state.State`, `changes.Changes`. Features that only git has
(tags, merges, remotes …) have no port: `History` uses git's classes as types. The other modules in this folder
(transcripts, live sets, topics, checkpoints and so on) use only the ports.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from anyio import Lock

if TYPE_CHECKING:
    from mcp_server.history.commit_rules import FileChange
    from mcp_server.storage.history_values import Committed, Version
    from mcp_server.storage.local.git.commits import Past
    from mcp_server.storage.local.git.health import Health
    from mcp_server.storage.local.git.hooks import Hooks
    from mcp_server.storage.local.git.merging import Merger
    from mcp_server.storage.local.git.refs import Remote, Tags, Worktrees
    from mcp_server.storage.values import Candidates, IndexQuery, IndexStatus, TurnsNear


class History(Protocol):
    """The versions of the workspace's files.

    All attributes except `clock` need git. On PostgreSQL, reading one of them raises Unavailable.
    """

    clock: Callable[[], datetime]
    past: Past
    tags: Tags
    merging: Merger
    remote: Remote
    worktrees: Worktrees
    hooks: Hooks
    health: Health

    def available(self) -> bool: ...
    def version(self) -> str | None: ...
    def init(self) -> bool: ...
    def head(self) -> str | None: ...
    def branch(self) -> str | None: ...
    def is_shallow(self) -> bool: ...
    def check_free(self) -> None: ...
    def unmerged(self) -> tuple[str, list[str]]: ...
    def commit_files(self, paths: Iterable[str], message: str, *, redacted: bool = False) -> Committed: ...
    def uncommitted(self, prefixes: Sequence[str]) -> list[str]: ...
    def differing(self, prefixes: Sequence[str]) -> list[str]: ...
    def changes(self, prefixes: Sequence[str]) -> list[FileChange]:
        """Returns the uncommitted changes under these paths with their texts; open conversations are left out."""

    def committed_texts(self, paths: Sequence[str], at: str | None = None) -> dict[str, str | None]: ...
    def ignored(self, paths: Sequence[str]) -> dict[str, str]: ...
    def show(self, path: str, at: str) -> str: ...
    def versions(self, prefixes: Sequence[str], commits: int) -> list[Version]: ...
    def blob(self, name: str) -> bytes: ...
    def commit_at(self, at: str) -> str: ...
    def tree_now(self, prefixes: Sequence[str]) -> str: ...
    def export(self, folder: Path, remote: str | None, paths: Sequence[str]) -> str | None:
        """Updates a git repository in `folder` with the history of these paths. Returns its last commit."""

    def in_folder(self, place: Path) -> History:
        """Returns the history of a branch that is checked out in another folder."""

    def trees(self) -> Trees | None:
        """Returns the store for checkpoints in this history; None if there is none at present."""


T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with the number of files done and the number of all files."""


class Held(Protocol):
    """A lease that is held until `release`, at the latest until the process ends.

    `with held:` releases it at the end of the block. If another process takes over the lease, later writes in the block
    raise Unavailable.
    """

    lost: bool
    """True if another process has taken over the lease, because this process was suspended for too long."""

    def __enter__(self) -> Held: ...
    def __exit__(self, *error: object) -> None: ...
    def release(self, *, forget: bool = False) -> None: ...


LEVELS = ("transcript", "files", "git")


class Locks(ABC):
    """Locks among tasks and processes: each is a unit of work.

        async with locks.transcript(session): …    one conversation's transcript, and its rows in the state
        async with locks.files(): …                knowledge and the other tracked files
        async with locks.git(): …                  the history

    Take them in this order. Taking an earlier one while holding a later one, or two of the same kind, raises
    RuntimeError, because it could deadlock.
    """

    session_digits: slice
    """The digits of a session's SHA-256 that the name of its lock contains."""

    def __init__(self) -> None:
        self._inside: dict[str, Lock] = {}
        # The locks that the current task holds. A task that it starts inherits them, because it works for its parent.
        self._held: ContextVar[tuple[str, ...]] = ContextVar("held", default=())

    def transcript(self, session_id: str) -> AbstractAsyncContextManager[None]:
        digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return self._exclusive("transcript", f"transcript-{digest[self.session_digits]}")

    def files(self) -> AbstractAsyncContextManager[None]:
        return self._exclusive("files", "files")

    def git(self) -> AbstractAsyncContextManager[None]:
        return self._exclusive("git", "git")

    @abstractmethod
    def _exclusive(self, level: str, name: str) -> AbstractAsyncContextManager[None]: ...

    def _check_order(self, level: str, held: Sequence[str]) -> None:
        if held and LEVELS.index(held[-1]) >= LEVELS.index(level):
            raise RuntimeError(
                f"the {level} lock was requested while holding {held[-1]}; the order is transcript, files, git"
            )

    @abstractmethod
    def try_maintainer(self) -> Held | None:
        """Makes this process the maintainer. Returns None if another process is the maintainer, or on a read-only
        disk."""

    @abstractmethod
    def share(self, name: str) -> Held | None:
        """Takes a shared lock on `name`. Returns None if it is locked exclusively. Works on a read-only disk."""

    @abstractmethod
    def try_exclusive(self, name: str) -> Held | None:
        """Takes an exclusive lock on `name`. Returns None if another process has or shares it."""


class Index(Protocol):
    """The search index: a disposable copy of the files. Without an index, searches read the files and report that."""

    async def answer(self, queries: Sequence[IndexQuery], then: Callable[[Sequence[Candidates], TurnsNear], T]) -> T:
        """Returns `then(candidates, turns_near)`: the candidates of each query, and a function that compares turns with
        a text. `then` runs on the thread that found the candidates, and may take milliseconds."""

    def embed_ahead(self, text: str) -> None:
        """Embeds a query before it is searched. It may take long: call it in a thread."""

    async def settle(self, paths: Iterable[str], patience: float = ...) -> None:
        """Waits until searches see the current versions of these files, at most `patience` seconds."""

    async def last_turn(self, session: str) -> int | None:
        """Returns the number of a session's newest indexed turn; None if searches read the files."""

    async def data_version(self) -> tuple[str, int]:
        """Returns a value that changes whenever any process changes or replaces the index."""

    async def status(self) -> IndexStatus:
        """Returns the contents and problems of the index."""

    async def compare_sample(self, files: int) -> tuple[int, tuple[str, ...]]:
        """Reads some indexed files again and compares their passages with the index.

        Returns the number of compared files, and the paths of those that differ. Files that changed since they were
        indexed are skipped: the next refresh indexes them.
        """

    async def read_ahead(self, most: int) -> int:
        """Computes with the recognizer's network what the newest unprocessed passages are about, for at most `most`,
        and stores it. Returns their number. Does nothing without an embedder."""

    @property
    def needs_care(self) -> bool: ...
    async def refresh(self, progress: Progress | None = None) -> int: ...
    async def apply(self, paths: Iterable[str]) -> int: ...
    async def apply_small(self, paths: Iterable[str]) -> tuple[int, list[str]]: ...
    async def rebuild(self, progress: Progress | None = None) -> int: ...
    async def renew(self, progress: Progress | None = None) -> tuple[str, ...]:
        """Rebuilds the index and deletes all other index files, because search tables keep words of deleted rows.

        Returns the names of files that another process still uses; that process deletes them when it closes them.
        """

    async def close(self) -> None: ...


class Trees(Protocol):
    """Stores sets of files, each under a number, and returns them byte for byte."""

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """Returns the paths whose bytes are stored already, under any name."""

    def put(self, number: str, contents: Mapping[str, bytes], known: Set[str]) -> str:
        """Stores these files durably under a number, and replaces the previous set. Returns the name of the tree.
        `known` is the result of the method `known` for these files."""

    def tree_of(self, number: str) -> str | None:
        """Returns the name of the tree under a number; None if there is none."""

    def names(self, tree: str) -> dict[str, str]: ...
    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
        """Returns the bytes of these files of a tree; missing ones are left out."""

    def remove(self, number: str) -> None: ...
    def numbers(self) -> frozenset[str]:
        """Returns the numbers of all trees."""
