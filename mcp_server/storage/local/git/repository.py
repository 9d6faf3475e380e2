"""Runs git on the workspace's own repository, independent of this process's folder and environment, and reads and
stores git's objects by their hash."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mcp_server.errors import Refused, Unavailable
from mcp_server.storage.git_process import NEEDS_GIT, GitFailed, command_of, plain_environment, running_git

BUSY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
_SETTINGS = ("-c", "i18n.commitEncoding=UTF-8", "-c", "core.quotePath=false", "-c", "core.safecrlf=false")
"""Overrides of the user's settings: this program parses git's output, and converted line ends must not be an error."""
_ON_BRANCH, _ELSEWHERE = "ref: refs/heads/", "ref: refs/heads/.invalid"
"""The beginning of the file HEAD on a branch, and its content if the branch is stored elsewhere (reftable)."""
OPEN, _OPEN_SECONDS = "context-manager-open", 3600
"""The file in git's folder with the process id of a commit by hand that is in progress, which our pre-commit hook
writes, and the seconds for which it is valid, because the system reuses process ids."""
_HEAD = re.compile(rb"ref: refs/\S+|[0-9a-f]{40}|[0-9a-f]{64}")
UNREPLACED = {"GIT_NO_REPLACE_OBJECTS": "1"}
"""The environment in which git ignores replacements of objects (`git replace`)."""
_MANY = 200  # paths on one command line; for more, the whole index is listed


class Repository:
    """The repository in `root/.git`, also if the workspace is inside another repository.

    Methods raise GitFailed, which is an Unavailable, if git refuses, and Unavailable if git is missing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def exists(self) -> bool:
        return (self.root / ".git").exists()

    def head(self) -> str | None:
        """Returns the id of the current commit; None before the first one, or without a repository."""
        if not self.exists():
            return None
        try:
            return self.text("rev-parse", "--quiet", "--verify", "HEAD^{commit}") or None
        except GitFailed:
            return None

    def branch(self) -> str | None:
        """Returns the name of the branch that HEAD is on; None if HEAD is detached, or without a repository."""
        if not self.exists():
            return None
        with contextlib.suppress(OSError):
            said = (self.folder() / "HEAD").read_text("utf-8", "replace").strip()
            if said.startswith(_ON_BRANCH) and said != _ELSEWHERE:
                return said.removeprefix(_ON_BRANCH)
        try:
            return self.text("symbolic-ref", "--quiet", "--short", "HEAD") or None
        except GitFailed:
            return None

    def head_is_garbage(self) -> bool:
        """Returns whether the file HEAD is missing or names neither a branch nor a commit, so that git cannot work."""
        try:
            said = (self.folder() / "HEAD").read_bytes().strip()
        except OSError:
            return True
        return _HEAD.fullmatch(said) is None

    def head_problem(self) -> str:
        """Returns why HEAD has no commit; empty if it has one, or if nothing was committed yet."""
        if self.head_is_garbage():
            return f"{self.folder() / 'HEAD'} is damaged: it names no branch, so git cannot read the history"
        if self.head() is not None:
            return ""
        branch = self.branch()
        common = self.common_folder()
        if branch is None:
            return "the commit that is checked out is missing or damaged"
        log = common / "logs" / "refs" / "heads" / branch
        had_commits = log.is_file() and log.stat().st_size > 0
        if had_commits or (common / "refs" / "heads" / branch).is_file():
            return f"the branch {branch} has lost its last commit: git cannot read the history"
        return ""

    def busy(self) -> str | None:
        """Returns git's unfinished operation (`merge`, `rebase`, `commit`, …), or None."""
        folder = self.folder()
        found = next((name for file, name in BUSY.items() if (folder / file).exists()), None)
        return found or ("commit" if _is_open(folder / OPEN) else None)

    def staged(self, paths: Sequence[str], index: Path | None = None) -> dict[str, str]:
        """Returns `mode blob` of each of these paths in the user's index, or in another `index`; `conflict` for an
        unmerged path."""
        few = ("--", *paths) if len(paths) <= _MANY else ()
        said = self.run("ls-files", "--stage", "-z", *few, index=index)
        return {
            path: f"{mode} {blob}" if stage == "0" else "conflict" for (mode, blob, stage), path in entries_in(said)
        }

    def entries_of(self, commit: str, paths: Sequence[str]) -> dict[str, str]:
        """Returns `mode blob` of each of these paths in a commit."""
        few = ("--", *paths) if len(paths) <= _MANY else ()
        said = self.run("ls-tree", "-r", "-z", commit, *few)
        return {path: f"{mode} {blob}" for (mode, _, blob), path in entries_in(said)}

    def opened(self, path: str, blob: str) -> bytes:
        """Returns a blob's content in the work tree at this path, after git's filters (git-crypt, LFS, line ends)."""
        return self.run("cat-file", "--filters", f"--path={path}", blob)

    def is_closed(self, data: bytes) -> bool:
        """Returns whether a blob's content is encrypted (git-crypt) or stored elsewhere (LFS)."""
        return data.startswith((b"\0GITCRYPT\0", b"version https://git-lfs.github.com/"))

    def filtered(self, paths: Sequence[str]) -> frozenset[str]:
        """Returns those paths that a filter changes on commit."""
        if not paths:
            return frozenset()
        said = self.run("check-attr", "-z", "--stdin", "filter", stdin=nul(paths)).split(b"\0")
        values = zip(said[0::3], said[2::3], strict=False)
        return frozenset(os.fsdecode(path) for path, value in values if value not in (b"unspecified", b"unset", b""))

    def ignored(self, paths: Sequence[str]) -> dict[str, str]:
        """Returns those paths that git ignores and does not track, each with the place of the rule (`.gitignore:3`).

        The paths need not exist.
        """
        if not paths or not self.exists():
            return {}
        given = nul([f"./{path}" for path in paths])  # otherwise a leading ':' is special
        plain = {"GIT_LITERAL_PATHSPECS": "0"}  # only this command refuses it
        try:
            said = self.run("check-ignore", "--verbose", "-z", "--stdin", stdin=given, who=plain).split(b"\0")
        except GitFailed as error:
            if error.status == 1:  # none of them
                return {}
            raise
        found = zip(said[0::4], said[1::4], said[2::4], said[3::4], strict=False)
        return {
            os.fsdecode(path).removeprefix("./"): f"{os.fsdecode(source)}:{line.decode()}"
            for source, line, pattern, path in found
            if not pattern.startswith(b"!")
        }

    def is_shallow(self) -> bool:
        """Returns whether the repository is a shallow clone (`git clone --depth`)."""
        return (self.common_folder() / "shallow").is_file()

    def common_folder(self) -> Path:
        """Returns the folder of hooks, branches and objects; for a linked worktree that of its main repository."""
        folder = self.folder()
        common = folder / "commondir"
        return (folder / common.read_text("utf-8").strip()).resolve() if common.is_file() else folder

    def folder(self) -> Path:
        place = self.root / ".git"
        if place.is_file():  # a worktree or a submodule: the file names the folder
            named = place.read_text("utf-8").removeprefix("gitdir:").strip()
            return (self.root / named).resolve()
        return place

    @contextlib.contextmanager
    def index_of(self, commit: str | None) -> Iterator[Path]:
        """Yields a private index with the content of a commit, in git's folder."""
        index = self.folder() / f"context-manager-{secrets.token_hex(8)}.index"
        try:
            if commit:
                self.run("read-tree", commit, index=index)
            yield index
        finally:
            for leftover in (index, index.with_name(index.name + ".lock")):
                leftover.unlink(missing_ok=True)

    def set_entries(self, index: Path, entries: Mapping[str, str]) -> None:
        """Sets paths of a private index to their `mode blob`; an empty entry removes a path."""
        removed = [path for path, entry in entries.items() if not entry]
        lines = [f"{entry}\t{path}" for path, entry in entries.items() if entry]
        if removed:
            self.run("update-index", "--force-remove", "-z", "--stdin", index=index, stdin=nul(removed))
        if lines:
            self.run("update-index", "-z", "--index-info", index=index, stdin=nul(lines))

    def text(self, *arguments: str, **options: Any) -> str:
        return self.run(*arguments, **options).decode("utf-8", "replace").strip()

    def run(
        self,
        *arguments: str,
        index: Path | None = None,
        stdin: bytes = b"",
        who: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """Runs a git command on this repository and returns its output.

        `index` replaces the user's index, `who` is added to the environment, `seconds` is a time limit.
        """
        git = _library()
        folder = self.folder()
        environment = {
            "GIT_DIR": str(folder),
            "GIT_WORK_TREE": str(self.root),
            "GIT_INDEX_FILE": str(index or folder / "index"),
            "GIT_OBJECT_DIRECTORY": str(self.common_folder() / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
            **(who or {}),
        }
        with tempfile.TemporaryFile() as feed:
            feed.write(stdin)
            feed.seek(0)
            try:
                output = git.Git(str(self.root)).execute(
                    ["git", *_SETTINGS, *arguments],
                    istream=feed,
                    env=environment,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                    # GitPython has no time limit on Windows.
                    kill_after_timeout=None if sys.platform == "win32" else seconds,
                )
            except git.GitCommandNotFound as error:
                raise Unavailable(NEEDS_GIT) from error
            except git.GitCommandError as error:
                said = str(error.stderr).strip().removeprefix("stderr: '").removesuffix("'").strip()
                status = error.status if isinstance(error.status, int) else 128
                said = said or f"it ended with {error.status}"
                raise GitFailed(command_of(arguments), said, status, str(error.stdout)) from error
        return output if isinstance(output, bytes) else str(output).encode()


@contextlib.contextmanager
def objects_of(root: Path, *, every: bool = False) -> Iterator[Objects]:
    """Yields the objects of the repository in `root/.git`. With `every`, only `all` may be called."""
    which = ("--batch-all-objects", "--unordered") if every else ()
    environment = plain_environment() | {"GIT_DIR": str(root / ".git"), "GIT_WORK_TREE": str(root)} | UNREPLACED
    with running_git(root, "cat-file", "--batch", *which, environment=environment) as (ask, answers):
        yield Objects(ask, answers)


class Objects:
    """Reads objects by their hash from a running `git cat-file`."""

    def __init__(self, ask: IO[bytes], answers: IO[bytes]) -> None:
        self._ask = ask
        self._answers = answers

    def read(self, oid: str) -> tuple[str, bytes]:
        """Returns kind and bytes of an object; ("missing", b"") if it does not exist."""
        self._ask.write(oid.encode() + b"\n")
        self._ask.flush()
        found = self._next()
        return ("missing", b"") if found is None else found[1:]

    def all(self) -> Iterator[tuple[str, str, bytes]]:
        while (found := self._next()) is not None:
            yield found

    def exists(self, oid: str) -> bool:
        return bool(oid.strip("0")) and self.read(oid)[0] != "missing"

    def commit_of(self, oid: str) -> str | None:
        """Returns the commit that an object is or, if it is a tag, refers to; None for a tree, a blob or a missing
        object."""
        while oid.strip("0"):
            kind, data = self.read(oid)
            if kind != "tag":
                return oid if kind == "commit" else None
            oid = data.split(b"\n", 1)[0].removeprefix(b"object ").decode()
        return None

    def _next(self) -> tuple[str, str, bytes] | None:
        about = self._answers.readline().decode().split()
        if len(about) != 3:
            return None
        oid, kind, size = about
        data = self._answers.read(int(size))
        self._answers.read(1)
        return oid, kind, data


def tree_entries(data: bytes, size: int) -> Iterator[tuple[int, bytes, bytes]]:
    position = 0
    while position < len(data):
        space = data.index(b" ", position)
        end = data.index(b"\0", space)
        yield int(data[position:space], 8), data[space + 1 : end], data[end + 1 : end + 1 + size]
        position = end + 1 + size


def put(file: Path, data: bytes, mode: int | None = None) -> None:
    temporary = file.with_name(f"tmp_obj_{secrets.token_hex(8)}")  # `git prune` deletes files of such names
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(mode if mode is not None else file.stat().st_mode & 0o777)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def store(folder: Path, kind: str, data: bytes, oid: str) -> None:
    """Stores an object under its hash in `.git/objects`, durably."""
    place = folder / oid[:2] / oid[2:]
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        put(place, zlib.compress(f"{kind} {len(data)}\0".encode() + data, 1), mode=0o444)


@functools.cache
def _library() -> Any:
    """Imports GitPython. Raises Unavailable if git or GitPython is missing."""
    if shutil.which("git") is None:
        raise Unavailable(NEEDS_GIT)
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    try:
        import git
    except ImportError as error:
        raise Unavailable(f"GitPython does not work here ({error}); reinstall context-manager-mcp") from error
    return git


def entries_in(said: bytes) -> Iterator[tuple[list[str], str]]:
    """Yields the fields and the path of each entry that `ls-files --stage -z` or `ls-tree -z` printed."""
    for line in filter(None, said.split(b"\0")):
        fields, _, path = line.partition(b"\t")
        yield fields.decode().split(" "), os.fsdecode(path)


def diff_in(said: bytes) -> Iterator[tuple[list[str], list[str]]]:
    """Yields the fields (old and new mode, old and new blob, status) and the paths of each entry that `diff-tree -z` or
    `log --raw -z` printed. A renamed file has two paths."""
    parts = iter(said.split(b"\0"))
    for part in parts:
        if part.lstrip(b"\n").startswith(b":"):
            fields = part.lstrip(b"\n")[1:].decode("ascii").split(" ")
            yield fields, [os.fsdecode(next(parts)) for _ in range(2 if fields[4].startswith("R") else 1)]


def nul(parts: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(part) + b"\0" for part in parts)


def clean_path(path: str) -> str:
    """Returns a path inside the workspace as git writes it. Raises Refused for any other path."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path or not pure.parts:
        raise Refused(f"{path!r} is not a path inside the workspace")
    return str(pure)


def _is_open(mark: Path) -> bool:
    """Returns whether the process whose id is in this file still runs. It is a commit by hand, whose editor may be open
    for a long time."""
    try:
        if os.name != "posix" or time.time() - mark.stat().st_mtime > _OPEN_SECONDS:
            return False  # on Windows sh has its own process ids
        os.kill(int(mark.read_text("ascii")), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True
