"""The workspace's own git repository: commits that leave the user's work alone, and files as they were.

A commit is built in a private index (`GIT_INDEX_FILE`), made by `commit-tree` and put in place by `update-ref` with
the old value, so neither the work tree nor what the user has staged is touched, and two writers cannot lose each
other's commit. Afterwards those of our paths that stood in the user's index as in the old HEAD are brought up to
the new one, or they would look as if the user had staged their reversal. What is to be brought up is written down
first, so that a crash in between is mended by the next commit.

Methods are synchronous: call them in a worker thread, under `locks.git()` where they write.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from mcp_server.errors import Invalid, NotFound, Refused, Unavailable
from mcp_server.store.versions import FORMAT, Version, parse

NEEDS_GIT = "this needs git, which was not found on PATH; install it (https://git-scm.com) and start again"
OUR_NAME, OUR_EMAIL = "context-manager", "context-manager@localhost"
_TRIES = 8
_STALE_LOCK_SECONDS = 600
_PENDING = "context-manager-index.json"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_./@{}^~+-]*")
_MANY = 200  # paths on one command line; beyond that the whole index is listed


class Failed(Exception):
    """A git command ended with an error; the text is what it said."""


class Git:
    """The repository in `root/.git`, also where the workspace lies inside somebody else's repository."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def available(self) -> bool:
        """True if git can be run."""
        return self.version() is not None

    def version(self) -> str | None:
        """git's version, such as `2.39.5`; None if it was not found."""
        return _version()

    def head(self) -> str | None:
        """The id of the current commit; None before the first one, or where there is no repository."""
        if not (self._root / ".git").exists():
            return None
        return self._head()

    def init(self) -> bool:
        """Makes the repository; False if there is one already. Raises Unavailable without git."""
        if (self._root / ".git").exists():
            return False
        try:
            try:
                self._run("init", "--quiet", "--initial-branch=main")
            except Failed:  # git before 2.28
                self._run("init", "--quiet")
        except Failed as error:
            raise Unavailable(f"git could not make a repository in {self._root}: {error}") from error
        return True

    def commit(self, paths: Iterable[str], message: str, author: str | None = None) -> str | None:
        """Commits these files as they are now (a missing one as deleted); returns the commit's id, None if nothing
        changed.

        A path with changes that the user has staged waits for its owner and is left out. `author` is `Name <mail>`;
        by default the user's own identity, or ours if git knows none. Raises Unavailable if git is missing or
        refuses.
        """
        wanted = sorted({_clean(path) for path in paths})
        self.init()
        try:
            self._finish_pending()
            for attempt in range(_TRIES):
                done, commit = self._try_commit(wanted, message, author)
                if done:
                    return commit
                self._remove_stale_locks()
                time.sleep(0.01 * 2**attempt)
        except Failed as error:
            raise Unavailable(f"git could not commit: {error}; nothing is lost, it is tried again later") from error
        raise Unavailable(
            "git is busy: another program keeps changing the branch; nothing is lost, it is tried again later"
        )

    def show(self, path: str, at: str) -> str:
        """The file as it was at a commit, tag or branch, or at the end of a day (YYYY-MM-DD, the machine's time zone).

        Raises NotFound for an unknown version or a file that was not there, Invalid for a binary file.
        """
        path = _clean(path)
        commit = self._commit_at(at.strip())
        try:
            listed = self._entries_of(commit, [path])
            if path not in listed:
                raise NotFound(
                    f"{path} was not there at {at} (commit {commit[:10]}); read it as it is, or ask for another time"
                )
            mode, blob = listed[path].split(" ")
            if not mode.startswith("100"):
                raise Invalid(f"{path} was no file at {at}")
            data = self._run("cat-file", "blob", blob)
        except Failed as error:
            raise Unavailable(f"git could not read {path} at {at}: {error}") from error
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise Invalid(f"{path} at {at} is a binary file; only text can be read") from error
        if "\0" in text:
            raise Invalid(f"{path} at {at} is a binary file; only text can be read")
        return text

    def versions(self, prefixes: Sequence[str], commits: int) -> list[Version]:
        """What the last so many commits wrote under these paths, the newest first; nothing where there is no history.

        Raises Unavailable if git is missing or fails.
        """
        if self.head() is None:
            return []
        wanted = ("-z", "--raw", "--no-abbrev", "--no-renames", FORMAT, f"--max-count={commits}")
        try:
            return list(parse(self._run("log", *wanted, "--", *(_clean(prefix) for prefix in prefixes))))
        except Failed as error:
            raise Unavailable(f"git could not list earlier versions: {error}") from error

    def blob(self, name: str) -> bytes:
        """The bytes that git knows under this name, as `versions` gives it. Raises Unavailable."""
        try:
            return self._run("cat-file", "blob", name)
        except Failed as error:
            raise Unavailable(f"git could not read {name[:10]}: {error}") from error

    # ------------------------------------------------------------ commits

    def _try_commit(self, wanted: Sequence[str], message: str, author: str | None) -> tuple[bool, str | None]:
        """(True, commit or None) or, if HEAD moved meanwhile or is locked, (False, None)."""
        old = self._head()
        before = self._entries_of(old, wanted) if old else {}
        staged = self._staged(wanted)
        paths = [path for path in wanted if staged.get(path, "") == before.get(path, "")]
        if not paths:
            return True, None
        # A private index beside the real one: hidden from the user, on the same file system as the objects.
        index = self._git_folder() / f"context-manager-{secrets.token_hex(8)}.index"
        try:
            if old:
                self._run("read-tree", old, index=index)
            self._run("update-index", "--add", "--remove", "-z", "--stdin", index=index, stdin=_nul(paths))
            tree = self._text("write-tree", index=index)
        finally:
            for leftover in (index, index.with_name(index.name + ".lock")):
                leftover.unlink(missing_ok=True)
        if tree == (self._text("rev-parse", f"{old}^{{tree}}") if old else self._text("mktree", stdin=b"")):
            return True, None
        parents = ("-p", old) if old else ()
        commit = self._text(
            "commit-tree", tree, *parents, stdin=message.encode("utf-8", "replace"), who=self._identity(author)
        )
        self._note_pending({path: before.get(path, "") for path in paths})
        try:
            subject = message.split("\n", 1)[0]
            self._run("update-ref", "-m", f"commit: {subject}", "HEAD", commit, old or "0" * len(commit))
        except Failed:
            self._pending_file().unlink(missing_ok=True)
            if self._head() == old and not self._locked():
                raise
            return False, None
        self._finish_pending()
        return True, commit

    def _head(self) -> str | None:
        try:
            return self._text("rev-parse", "--quiet", "--verify", "HEAD^{commit}") or None
        except Failed:
            return None

    def _staged(self, paths: Sequence[str]) -> dict[str, str]:
        """`mode blob` of each of these paths in the user's index; a path in conflict has an entry that equals
        nothing."""
        few = ("--", *paths) if len(paths) <= _MANY else ()
        found: dict[str, str] = {}
        for line in self._run("ls-files", "--stage", "-z", *few).split(b"\0"):
            if line:
                entry, _, name = line.partition(b"\t")
                mode, blob, stage = entry.decode().split(" ")
                found[os.fsdecode(name)] = f"{mode} {blob}" if stage == "0" else "conflict"
        return found

    def _entries_of(self, commit: str, paths: Sequence[str]) -> dict[str, str]:
        """`mode blob` of each of these paths in a commit."""
        few = ("--", *paths) if len(paths) <= _MANY else ()
        found: dict[str, str] = {}
        for line in self._run("ls-tree", "-r", "-z", commit, *few).split(b"\0"):
            if line:
                entry, _, name = line.partition(b"\t")
                mode, _, blob = entry.decode().split(" ")
                found[os.fsdecode(name)] = f"{mode} {blob}"
        return found

    def _identity(self, author: str | None) -> dict[str, str]:
        """Names for the commit where git has none of its own, or another author is asked for."""
        names: dict[str, str] = {}
        try:
            self._run("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
        except Failed:
            for role in ("AUTHOR", "COMMITTER"):
                names[f"GIT_{role}_NAME"], names[f"GIT_{role}_EMAIL"] = OUR_NAME, OUR_EMAIL
        if author:
            found = re.fullmatch(r"\s*([^<>\n]+?)\s*<([^<>\n]*)>\s*", author)
            if found is None:
                raise Invalid(f"author must be `Name <mail>`, not {author!r}")
            names["GIT_AUTHOR_NAME"], names["GIT_AUTHOR_EMAIL"] = found.groups()
        return names

    # ------------------------------------------------------------ the user's index

    def _pending_file(self) -> Path:
        return self._git_folder() / _PENDING

    def _note_pending(self, old_entries: Mapping[str, str]) -> None:
        fresh = self._pending_file().with_suffix(".tmp")
        fresh.write_text(json.dumps(old_entries), "utf-8")
        fresh.replace(self._pending_file())

    def _finish_pending(self) -> None:
        """Brings paths of the last commit in the user's index up to HEAD, unless the user has staged something else
        since."""
        try:
            pending = json.loads(self._pending_file().read_text("utf-8"))
        except FileNotFoundError:
            return
        except ValueError:  # written by a machine that lost power; the index then shows what it shows
            pending = {}
        head = self._head()
        paths = sorted(pending)
        if head and paths:
            now, staged = self._entries_of(head, paths), self._staged(paths)
            lines = [
                f"{now.get(path, '0 ' + '0' * len(head))}\t{path}"
                for path in paths
                if staged.get(path, "") == pending[path] != now.get(path, "")
            ]
            if lines and not self._update_index(_nul(lines)):
                return  # somebody holds the index; it stays written down for the next commit
        self._pending_file().unlink(missing_ok=True)

    def _update_index(self, info: bytes) -> bool:
        for attempt in range(_TRIES):
            try:
                self._run("update-index", "-z", "--index-info", stdin=info)
            except Failed:
                if not (self._git_folder() / "index.lock").exists():
                    raise
                self._remove_stale_locks()
                time.sleep(0.01 * 2**attempt)
            else:
                return True
        return False

    def _locks(self) -> list[Path]:
        folder = self._git_folder()
        names = [folder / "index.lock", folder / "HEAD.lock"]
        with contextlib.suppress(Failed):
            names.append(folder / (self._text("symbolic-ref", "--quiet", "HEAD") + ".lock"))
        return [name for name in names if name.exists()]

    def _locked(self) -> bool:
        return bool(self._locks())

    def _remove_stale_locks(self) -> None:
        """A git that was killed leaves its lock behind for ever; no command of ours or the user's takes ten minutes
        here."""
        for lock in self._locks():
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > _STALE_LOCK_SECONDS:
                    lock.unlink()

    # ------------------------------------------------------------ versions

    def _commit_at(self, at: str) -> str:
        if not self.available():
            raise Unavailable(NEEDS_GIT)
        if not (self._root / ".git").exists() or self._head() is None:
            raise NotFound("nothing was committed yet; there is only the present (leave out `at`)")
        try:
            if _DATE.fullmatch(at) or _DATE_TIME.fullmatch(at):
                until = f"{at} 23:59:59" if _DATE.fullmatch(at) else at
                found = self._text("rev-list", "-1", f"--before={until}", "HEAD")
                if not found:
                    raise NotFound(f"nothing was committed before the end of {at}; ask for a later date")
                return found
            if not _REVISION.fullmatch(at):
                raise Failed("no revision")
            return self._text("rev-parse", "--quiet", "--verify", f"{at}^{{commit}}")
        except Failed as error:
            raise NotFound(f"no commit, tag or date {at!r}; give a date as YYYY-MM-DD or a commit's id") from error

    # ------------------------------------------------------------ running git

    def _git_folder(self) -> Path:
        place = self._root / ".git"
        if place.is_file():  # a worktree or a submodule: the file names the folder
            named = place.read_text("utf-8").removeprefix("gitdir:").strip()
            return (self._root / named).resolve()
        return place

    def _text(self, *arguments: str, **options: Any) -> str:
        return self._run(*arguments, **options).decode("utf-8", "replace").strip()

    def _run(
        self,
        *arguments: str,
        index: Path | None = None,
        stdin: bytes | None = None,
        who: Mapping[str, str] | None = None,
    ) -> bytes:
        """One git command on this very repository, whatever folder or hook this process was started from."""
        library = _library()
        folder = self._git_folder()
        environment = {
            "GIT_DIR": str(folder),
            "GIT_WORK_TREE": str(self._root),
            "GIT_INDEX_FILE": str(index or folder / "index"),
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "LC_ALL": "C",
            **(who or {}),
        }
        command = ["git", "-c", "i18n.commitEncoding=UTF-8", "-c", "core.quotePath=false", *arguments]
        with contextlib.ExitStack() as stack:
            feed = None
            if stdin is not None:
                feed = stack.enter_context(tempfile.TemporaryFile())
                feed.write(stdin)
                feed.seek(0)
            try:
                output = library.Git(str(self._root)).execute(
                    command, istream=feed, env=environment, stdout_as_string=False, strip_newline_in_stdout=False
                )
            except library.GitCommandNotFound as error:
                raise Unavailable(NEEDS_GIT) from error
            except library.GitCommandError as error:
                said = str(error.stderr).strip().removeprefix("stderr: '").removesuffix("'").strip()
                raise Failed(said or f"git {arguments[0]} ended with {error.status}") from error
        return output if isinstance(output, bytes) else str(output).encode()


def ask_git(folder: Path, *arguments: str) -> str | None:
    """What git says about any folder of this machine; None if it says nothing, fails, or is not there.

    Only for questions: a plain process, because loading GitPython takes longer than the answer.
    """
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.decode("utf-8", "replace").strip() or None if done.returncode == 0 else None


@functools.cache
def _library() -> Any:
    """GitPython, told not to fail its own import where git is missing."""
    if shutil.which("git") is None:
        raise Unavailable(NEEDS_GIT)
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # noqa: TID251  GitPython reads it while it is imported
    try:
        import git
    except ImportError as error:
        raise Unavailable(f"GitPython is missing or broken ({error}); reinstall context-manager-mcp") from error
    return git


@functools.cache
def _version() -> str | None:
    try:
        said = subprocess.run(["git", "--version"], capture_output=True, timeout=10, check=True).stdout.decode()
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\d+(?:\.\d+)+", said)
    return found.group() if found else said.strip()


def _nul(parts: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(part) + b"\0" for part in parts)


def _clean(path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path or not pure.parts:
        raise Refused(f"{path!r} is no path inside the workspace")
    return str(pure)
