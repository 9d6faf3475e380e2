"""The content of a whole workspace in an export: rows of the state, git's history, and files.

Each engine has `dump`, which writes a workspace to a `Sink`, and `load`, which fills an empty one from a `Source`.
A git history is moved as a bundle. For PostgreSQL, `versions` reads the versions of files from a git history, and
`fast_import` builds a git history from them.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Protocol

from mcp_server.errors import Invalid
from mcp_server.storage.git_process import GitFailed, moment_of, plain_environment, run_git, running_git
from mcp_server.storage.state import KEY_COLUMNS, SESSION_COLUMNS
from mcp_server.storage.values import CHUNK_COLUMNS, LOCAL

TABLES: Mapping[str, tuple[str, ...]] = {
    "session": SESSION_COLUMNS,
    "turn_key": ("session", *KEY_COLUMNS),
    "access": ("path", "at", "kind"),
    "directory": ("folder", "id"),
    "entry": ("namespace", "key", "value"),
    "live_chunk": ("session", *CHUNK_COLUMNS),
}
"""The columns of each table of the state."""

ORDERS: Mapping[str, str] = {
    "session": "session",
    "turn_key": "session, number",
    "access": "path, at, kind",
    "directory": "folder",
    "entry": "namespace, key",
    "live_chunk": "session, id",
}
"""The order in which the rows of each table are exported, so that two exports of the same state have the same bytes."""

OF_AN_ENGINE = ("state", "git", "in git")
"""Namespaces of entries about the storage engine itself. They are not exported."""

MOVED_LOCAL = tuple(f"{LOCAL}/{name}" for name in ("checkpoints", "cold-storage", "logs", "pending", "recovered"))
"""Folders in `.local/` that are exported. The others can be rebuilt (index, briefs) or belong to one machine (its
settings, the records of installed clients, tokens)."""

BUNDLE = f"{LOCAL}/history.bundle"
"""The git history of a workspace before its import into PostgreSQL, as a git bundle."""

EXPORT = ".memory"
"""The folder in an export that has the state, the history and the list of files."""

PART_BYTES = 1 << 20
"""Most bytes of a file that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class MovedFile:
    """A file of a workspace: its path, the time of its last change, and whether it is read-only."""

    path: str
    mtime_ns: int
    sealed: bool


@dataclass(frozen=True, slots=True)
class MovedHistory:
    """A file in git's bundle format with all branches and tags, and the branch that is checked out."""

    bundle: Path
    branch: str


class Sink(Protocol):
    """Receives a whole workspace: first the rows, then the history, then the files ordered by path."""

    def row(self, table: str, values: tuple[Any, ...]) -> None: ...
    def history(self, branch: str, parts: Iterable[bytes]) -> None: ...
    def file(self, found: MovedFile, parts: Iterable[bytes]) -> None: ...


class Source(Protocol):
    """A whole workspace that is stored somewhere else. `history` writes the bundle into a folder of the caller."""

    def rows(self) -> Iterator[tuple[str, tuple[Any, ...]]]: ...
    def history(self, folder: Path) -> MovedHistory | None: ...
    def files(self) -> Iterator[tuple[MovedFile, Iterator[bytes]]]: ...


def moves(path: str) -> bool:
    first = path.partition("/")[0]
    if first == LOCAL:
        return path.startswith(tuple(f"{folder}/" for folder in MOVED_LOCAL))
    return first not in (".git", EXPORT)


BRANCH = "main"
AUTHOR = "context-manager <context-manager@localhost>"
_PLAIN = tuple(
    part
    for name in ("core.quotePath=false", "pack.threads=1", "pack.useBitmaps=false", "log.showRoot=true", "gc.auto=0")
    for part in ("-c", name)
)
MOST_NAMED = 20
"""Most files that a commit message lists."""


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A commit to be made. `files` are its changed files, read once, in order: path, size (None: deleted) and bytes."""

    at: datetime
    message: str
    files: Iterable[tuple[str, int | None, Iterable[bytes]]]


def git(folder: Path, *arguments: str) -> bytes:
    """Returns git's output in a repository. Raises GitFailed if git refuses, Unavailable without git."""
    return run_git(folder, *_PLAIN, *arguments, environment=_environment())


def refs(folder: Path) -> list[tuple[str, str]]:
    """Returns object and name of each branch and tag, ordered by name."""
    said = git(folder, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/tags")
    found = (line.partition(" ") for line in said.decode().splitlines())
    return sorted(((oid, name) for oid, _, name in found), key=itemgetter(1))


def dump_history(folder: Path, branch: str, sink: Sink) -> None:
    """Writes all branches and tags of a repository to `sink` as a bundle; nothing if there are none. `branch` is the
    one that is checked out.

    Does not reuse the repository's packs, so that equal histories give equal bytes.
    """
    named = refs(folder)
    if not named:
        return
    with tempfile.TemporaryFile() as out:
        lines = [b"# v2 git bundle", *(f"{oid} {name}".encode() for oid, name in named), b"", b""]
        out.write(b"\n".join(lines))
        out.flush()
        wanted = "".join(f"{oid}\n" for oid, _ in named).encode()
        options = ("--revs", "--stdout", "--quiet", "--no-reuse-delta", "--no-reuse-object", "--delta-base-offset")
        with _running(folder, "pack-objects", *options, stdout=out) as (stdin, _):
            stdin.write(wanted)
        out.seek(0)
        sink.history(branch, iter(lambda: out.read(PART_BYTES), b""))


def new_repository(folder: Path, branch: str, *, bare: bool = True) -> None:
    """Creates an empty repository whose HEAD is a branch without a commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "check-ref-format", f"refs/heads/{branch}")
    git(folder, "init", "--quiet", *(["--bare"] if bare else []))
    git(folder, "symbolic-ref", "HEAD", f"refs/heads/{branch}")


def tip_of(folder: Path, branch: str) -> str | None:
    return next((oid for oid, name in refs(folder) if name == f"refs/heads/{branch}"), None)


def read_bundle(bundle: Path, folder: Path, branch: str, *, bare: bool = False) -> None:
    """Creates a repository with all branches and tags of a bundle. Raises Invalid for a damaged bundle."""
    new_repository(folder, branch, bare=bare)
    try:
        wanted = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        git(folder, "fetch", "--quiet", "--update-head-ok", "--no-tags", str(bundle), *wanted)
    except GitFailed as error:
        raise Invalid(f"the history in the export is damaged: {error.said}") from None


def versions(folder: Path, branch: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, datetime, bytes | None]]:
    """Yields each version of each wanted plain file on a branch, oldest first: path, time of the commit, and bytes
    (None: deleted). Merges are read from their first parent."""
    if not any(name == f"refs/heads/{branch}" for _, name in refs(folder)):
        return
    options = ("--first-parent", "--reverse", "--raw", "--no-renames", "--no-abbrev", "-m", "-z", "--format=%ct")
    with (
        _running(folder, "log", *options, f"refs/heads/{branch}", "--") as (_, log),
        _running(folder, "cat-file", "--batch") as (ask, answers),
    ):
        at = datetime.fromtimestamp(0, UTC)
        fields = _fields(log)
        for field in fields:
            text = field.strip()
            if re.fullmatch(rb"\d+", text):
                at = moment_of(text.decode())
                continue
            if not text.startswith(b":"):
                continue
            _, mode, _, blob, status = text[1:].split(b" ")
            path = os.fsdecode(next(fields))
            if not wanted(path):
                continue
            if status.startswith(b"D"):
                yield path, at, None
            elif mode.startswith(b"100"):  # neither a link nor a submodule
                ask.write(blob + b"\n")
                ask.flush()
                size = int(answers.readline().split(b" ")[2])
                yield path, at, answers.read(size + 1)[:-1]


def fast_import(folder: Path, commits: Iterable[NewCommit], tip: str | None, branch: str) -> str | None:
    """Creates commits on top of `tip`, and returns the last one. Moves the branch only after all were created, even if
    it does not point to `tip`."""
    with _running(folder, "fast-import", "--quiet", "--force", "--done", "--date-format=raw") as (out, _):
        if tip is not None:
            out.write(f"reset refs/heads/{branch}\nfrom {tip}\n\n".encode())
        for commit in commits:
            text = commit.message.encode()
            seconds = int(commit.at.timestamp())
            out.write(f"commit refs/heads/{branch}\ncommitter {AUTHOR} {seconds} +0000\n".encode())
            out.write(b"data %d\n%s\n" % (len(text), text))
            for path, size, parts in commit.files:
                name = '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
                if size is None:
                    out.write(f"D {name}\n".encode())
                    continue
                out.write(f"M 100644 inline {name}\ndata {size}\n".encode())
                for part in parts:
                    out.write(part)
                out.write(b"\n")
            out.write(b"\n")
        out.write(b"done\n")
    return tip_of(folder, branch)


def _fields(stream: IO[bytes]) -> Iterator[bytes]:
    """Yields the NUL-terminated fields of a stream."""
    held = b""
    while part := stream.read(PART_BYTES):
        *whole, held = (held + part).split(b"\0")
        yield from whole
    if held:
        yield held


def _running(
    folder: Path, *arguments: str, stdout: IO[bytes] | int = subprocess.PIPE
) -> contextlib.AbstractContextManager[tuple[IO[bytes], IO[bytes]]]:
    return running_git(folder, *_PLAIN, *arguments, environment=_environment(), stdout=stdout)


def _environment() -> dict[str, str]:
    return plain_environment() | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}


def message(paths: Sequence[str]) -> str:
    if len(paths) == 1:
        return f"memory: {paths[0]}\n"
    return "\n".join((f"memory: {len(paths)} files", "", *(f"- {path}" for path in paths[:MOST_NAMED]), ""))
