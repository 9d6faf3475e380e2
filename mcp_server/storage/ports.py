"""The ports of storage: what a workspace's data must be able to do, whatever keeps it.

`storage.local` implements all of them with files, SQLite and git, `storage.postgres` with PostgreSQL. Where engines
share methods, the port is a base class: `files.Files`, `state.State`, `changes.Changes`. The other modules beside this
one (transcripts, live sets, topics, checkpoints and so on) are built on the ports alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from mcp_server.history.commit_rules import FileChange
    from mcp_server.model import Exchange
    from mcp_server.search.query import ParsedQuery
    from mcp_server.storage.history_values import (
        BlamedLine,
        Branch,
        Commit,
        Committed,
        Occurrence,
        Plan,
        Resolve,
        Tag,
        Version,
    )
    from mcp_server.storage.values import Candidates, Change, Depth, Filters, IndexStatus, Mode
    from mcp_server.text.entries import Source


class Past(Protocol):
    """Earlier commits. Raises NotFound for an unknown revision."""

    def resolve(self, revision: str) -> str: ...
    def at(self, moment: datetime) -> str | None: ...
    def commit(self, revision: str) -> Commit: ...
    def commits(self, oids: Sequence[str]) -> dict[str, Commit]: ...
    def parents(self, commit: str) -> list[str]: ...
    def beginning(self, subject: str) -> str | None: ...
    def empty_tree(self) -> str: ...
    def occurrences(self, text: str, paths: Sequence[str], limit: int) -> list[Occurrence]: ...
    def blame(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[BlamedLine]: ...
    def reverts(self, limit: int) -> list[tuple[Commit, str]]: ...
    def between(self, old: str | None, new: str, paths: Sequence[str]) -> str: ...
    def counts(self, old: str | None, new: str, paths: Sequence[str]) -> list[tuple[str, int, int]]: ...


class Tags(Protocol):
    """Names of commits."""

    def all(self, prefix: str = ...) -> list[Tag]: ...
    def create(self, name: str, commit: str, message: str = "") -> None: ...
    def remove(self, name: str) -> None: ...
    def commits_since(self, moment: datetime, paths: Sequence[str]) -> list[tuple[str, datetime]]: ...


class Merging(Protocol):
    """Three-way merges of commits into the workspace."""

    def base(self, ours: str, theirs: str) -> str | None: ...
    def plan(
        self,
        old: str,
        base: str | None,
        theirs: str,
        resolve: Resolve,
        keep: Callable[[str], bool] = ...,
    ) -> Plan: ...
    def replaced(self, plan: Plan, contents: Mapping[str, bytes | None]) -> Plan: ...
    def content(self, path: str, entry: str) -> bytes | None: ...
    def staged_by_user(self, plan: Plan) -> list[str]: ...
    def apply(self, plan: Plan, resolve: Resolve, held: frozenset[str] = frozenset()) -> list[str]: ...
    def remove_leftovers(self) -> None: ...
    def commit(
        self,
        plan: Plan,
        parents: Sequence[str],
        message: str,
        forward: str | None = None,
        held: frozenset[str] = frozenset(),
    ) -> str | None: ...
    def committed(self, path: str) -> bytes | None: ...
    def leave_out(self, paths: Sequence[str]) -> None: ...
    def take_in(self, paths: Sequence[str]) -> None: ...


class Remote(Protocol):
    """The repository's remotes."""

    def names(self) -> list[str]: ...
    def chosen(self, name: str | None) -> str: ...
    def fetch(self, name: str) -> None: ...
    def tip(self, name: str, branch: str) -> str | None: ...
    def counterpart(self, name: str, branch: str) -> str: ...
    def push(self, name: str, branch: str) -> Literal["pushed", "behind"]: ...
    def ahead_behind(self, name: str, branch: str) -> tuple[int, int] | None: ...


class Worktrees(Protocol):
    """Branches that are checked out in folders of their own."""

    def branches(self, prefix: str) -> list[Branch]: ...
    def any(self, prefix: str) -> bool: ...
    def add(self, branch: str, place: Path, start: str) -> None: ...
    def remove(self, branch: str, place: Path | None) -> None: ...


class Hooks(Protocol):
    """The hooks that check commits made by hand."""

    def in_place(self) -> bool: ...
    def ensure(self) -> None: ...
    def remove(self) -> None: ...
    def state(self) -> str: ...
    def take_mark(self) -> str | None: ...
    def hides_local(self) -> bool: ...


class Health(Protocol):
    """Checks and repairs of the repository."""

    def quick(self) -> str: ...
    def full(self) -> list[str]: ...
    def large_files(self) -> str: ...
    def repair(self) -> list[str]: ...


class History(Protocol):
    """The versions of the workspace's files."""

    clock: Callable[[], datetime] | None

    @property
    def past(self) -> Past: ...
    @property
    def tags(self) -> Tags: ...
    @property
    def merging(self) -> Merging: ...
    @property
    def remote(self) -> Remote: ...
    @property
    def worktrees(self) -> Worktrees: ...
    @property
    def hooks(self) -> Hooks: ...
    @property
    def health(self) -> Health: ...

    def available(self) -> bool: ...
    def version(self) -> str | None: ...
    def init(self) -> bool: ...
    def head(self) -> str | None: ...
    def branch(self) -> str | None: ...
    def is_shallow(self) -> bool: ...
    def check_free(self) -> None: ...
    def unmerged(self) -> tuple[str, list[str]]: ...
    def commit(self, paths: Iterable[str], message: str, *, redacted: bool = False) -> str | None: ...
    def commit_files(self, paths: Iterable[str], message: str, *, redacted: bool = False) -> Committed: ...
    def uncommitted(self, prefixes: Sequence[str]) -> list[str]: ...
    def differing(self, prefixes: Sequence[str]) -> list[str]: ...
    def changes(self, prefixes: Sequence[str]) -> list[FileChange]:
        """Returns the uncommitted changes under these paths with their texts; open conversations are left out."""

    def committed_texts(self, paths: Sequence[str], longest: int, at: str | None = None) -> dict[str, str | None]: ...
    def ignored(self, paths: Sequence[str]) -> dict[str, str]: ...
    def show(self, path: str, at: str) -> str: ...
    def versions(self, prefixes: Sequence[str], commits: int) -> list[Version]: ...
    def blob(self, name: str) -> bytes: ...
    def commit_at(self, at: str) -> str: ...
    def tree_now(self, prefixes: Sequence[str]) -> str: ...
    def export(self, folder: Path, remote: str | None, paths: Sequence[str]) -> str | None:
        """Brings a git repository elsewhere up to date with the history of these paths, and returns its last commit."""

    def in_folder(self, place: Path) -> History:
        """Returns the history of a branch that is checked out in another folder."""

    def trees(self) -> Trees | None:
        """Returns the store for checkpoints of this history; None if it has none now."""


T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with the number of files done and the number of all files."""


class Held(Protocol):
    """A lease that is held until `release`, at the latest until the process ends.

    `with held:` releases it at the end of the block. What the block writes after another process has taken the lease
    over is refused with Unavailable.
    """

    lost: bool
    """True after another process has taken the lease over, because this one was asleep for too long."""

    def __enter__(self) -> Held: ...
    def __exit__(self, *error: object) -> None: ...
    def release(self, *, forget: bool = False) -> None: ...


class Locks(Protocol):
    """Locks among tasks and processes: each is a unit of work. Take them in this order: transcript, files, git."""

    def transcript(self, session_id: str) -> AbstractAsyncContextManager[None]:
        """Locks a session's transcript and its rows in the state."""

    def files(self) -> AbstractAsyncContextManager[None]:
        """Locks knowledge and the other tracked files, to read, change and write them."""

    def git(self) -> AbstractAsyncContextManager[None]:
        """Locks the history, to commit."""

    def try_maintainer(self) -> Held | None:
        """Makes this process the maintainer. Returns None if another process is, or on a read-only disk."""

    def share(self, name: str) -> Held | None:
        """Takes a shared lock on `name`. Returns None if it is locked exclusively. Works on a read-only disk."""

    def try_exclusive(self, name: str) -> Held | None:
        """Takes an exclusive lock on `name`. Returns None if another process has or shares it."""


class Index(Protocol):
    """The search index: a disposable copy of the files. Without one, searches read the files and say so."""

    async def candidates(self, query: ParsedQuery, filters: Filters | None = None, mode: Mode = "hybrid") -> Candidates:
        """Returns the passages that may answer a query, with the raw values of every signal."""

    async def answer(
        self,
        query: ParsedQuery,
        filters: Filters | None,
        mode: Mode,
        then: Callable[[Candidates], T],
        depth: Depth = ...,
    ) -> T:
        """Returns `then` of the candidates. It runs on the thread that found them and may take milliseconds."""

    async def exchanges(self, text: str, turns: Sequence[Source]) -> Mapping[Source, Exchange]:
        """Returns how near these turns and their neighbors are to a text; nothing for a turn without a vector."""

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


class Listener(Protocol):
    """A stream of changes. `receive_nowait` raises anyio.WouldBlock if there is none."""

    def __aiter__(self) -> AsyncIterator[Change]: ...
    async def receive(self) -> Change: ...
    def receive_nowait(self) -> Change: ...


class Trees(Protocol):
    """Sets of files kept under a number, and given back byte for byte."""

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """Returns the paths whose bytes are stored already, under any name."""

    def put(self, number: str, contents: Mapping[str, bytes]) -> str: ...
    def tree_of(self, number: str) -> str | None:
        """Returns the name of the tree under a number; None if there is none."""

    def names(self, tree: str) -> dict[str, str]: ...
    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
        """Returns the bytes of these files of a tree; missing ones are left out."""

    def remove(self, number: str) -> None: ...
    def numbers(self) -> frozenset[str]:
        """Returns the numbers of all trees."""


class ProjectFolders(Protocol):
    """The client's project folders, if they are on this machine."""

    def keys(self, folder: str, directory_id: Callable[[str], str]) -> tuple[str, ...]: ...
    def name(self, folder: str) -> str: ...
