"""The workspace's own git repository: commits that leave the user's work alone, and files as they were.

Methods are synchronous: call them in a worker thread, under `locks.git()` where they write.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.history.commit_rules import CONVERSATIONS, FileChange, is_sealed
from mcp_server.storage.git_process import NEEDS_GIT, GitFailed, moment_of, version
from mcp_server.storage.history_values import LONGEST_TEXT, Commit, Committed, Version
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.git.commits import Committer
from mcp_server.storage.local.git.health import Health
from mcp_server.storage.local.git.hooks import Hooks
from mcp_server.storage.local.git.merging import Merger
from mcp_server.storage.local.git.refs import GitTrees, Remote, Tags, Worktrees
from mcp_server.storage.local.git.repository import Objects, Repository, clean_path, entries_in, objects_of
from mcp_server.text.dates import moment

_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_./@{}^~+-]*")
_MARK = secrets.token_hex(8)
"""Begins every commit and each of its fields: names and messages may contain any other text."""
_COMMIT = "%x01" + _MARK + f"%x02{_MARK}".join(("%H", "%ct", "%an", "%B", ""))
_BEGINS, _PART, _PARTS = f"\x01{_MARK}".encode(), f"\x02{_MARK}".encode(), 5


class Past:
    """Questions about the history of one repository."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def resolve(self, revision: str) -> str:
        """Returns the commit of an id, a tag or a branch. Raises NotFound with the valid forms."""
        self._need_history()
        try:
            if not _REVISION.fullmatch(revision):
                raise GitFailed("rev-parse", "it is no revision")
            return self._repository.text("rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}")
        except GitFailed as error:
            raise NotFound(
                f"no commit, tag or date {revision!r}; give a date as YYYY-MM-DD or a commit's id"
            ) from error

    def at(self, moment: datetime) -> str | None:
        """Returns the last commit of the branch that is not later than a moment; None if all are later."""
        self._need_history()
        return self._repository.text("rev-list", "-1", f"--before={moment.isoformat()}", "HEAD") or None

    def commit(self, revision: str) -> Commit:
        oid = self.resolve(revision)
        return next(_commits(self._repository.run("log", "-1", f"--format={_COMMIT}", oid)))

    def occurrences(self, text: str, paths: Sequence[str], limit: int) -> list[tuple[Commit, str, str, str]]:
        """Returns commit, path, and the file's text before and after, for each file in which the newest `limit` commits
        changed how often it contains a text (in any case), oldest first."""
        if not text.strip() or "\0" in text:
            raise Invalid("give some words to look for, as they stand in the memory")
        if not self._has_history():
            return []
        wanted = ("-i", f"-S{text}", "-z", "--raw", "--no-abbrev", "--no-renames", f"--max-count={limit}")
        log = self._repository.run("log", *wanted, f"--format={_COMMIT}", "--", *map(clean_path, paths))
        with objects_of(self._repository.root) as objects:
            found = [
                (commit, path, self._text(objects, path, old), self._text(objects, path, new))
                for commit, (_, old, new, path) in _raw(log)
            ]
        return sorted(found, key=lambda one: one[0].at)

    def blame(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, str, Commit | None]]:
        """Returns number, text and commit of each of these lines (counted from 1, ends included) of the current file;
        no commit for a line that is not committed yet. Raises NotFound for a file that git does not know, or missing
        lines."""
        path = clean_path(path)
        if not self._has_history():
            raise NotFound(f"nothing was committed yet, so {path} has no history")
        where = [f"-L{first},{last}" for first, last in ranges]
        try:
            said = self._repository.run("blame", "--porcelain", *where, "--", path)
        except GitFailed as error:
            raise NotFound(
                f"{path} has no history with these lines ({error.said}); `read` shows it as it is"
            ) from error
        blamed = list(_blamed(said))
        commits = self.commits(sorted({oid for _, oid, _ in blamed if oid.strip("0")}))
        return [(number, text, commits.get(oid)) for number, oid, text in blamed]

    def commits(self, oids: Sequence[str]) -> dict[str, Commit]:
        if not oids:
            return {}
        given = "".join(f"{oid}\n" for oid in oids).encode()
        said = self._repository.run("log", "--no-walk=unsorted", "--stdin", f"--format={_COMMIT}", stdin=given)
        return {commit.id: commit for commit in _commits(said)}

    def reverts(self, limit: int) -> list[tuple[Commit, str]]:
        """Returns the newest reverts of this branch, each with the id of the reverted commit, newest first."""
        if not self._has_history():
            return []
        wanted = ("--fixed-strings", "--grep=This reverts commit ", f"--max-count={limit}", f"--format={_COMMIT}")
        return [(one, one.reverts) for one in _commits(self._repository.run("log", *wanted)) if one.reverts]

    def between(self, old: str | None, new: str, paths: Sequence[str]) -> str:
        """Returns the diff between two commits or trees under these paths; `old` None is the empty tree."""
        wanted = ("-r", "-p", "--no-color", "--no-ext-diff", "--no-renames", "--textconv", "--unified=1")
        return self._repository.text("diff-tree", *wanted, old or self.empty_tree(), new, "--", *map(clean_path, paths))

    def counts(self, old: str | None, new: str, paths: Sequence[str]) -> list[tuple[str, int, int]]:
        """Returns path, number of added and of removed lines of each changed file; -1 for a binary file."""
        wanted = ("-r", "-z", "--numstat", "--no-renames", old or self.empty_tree(), new)
        said = self._repository.run("diff-tree", *wanted, "--", *map(clean_path, paths))
        found: list[tuple[str, int, int]] = []
        for line in filter(None, said.split(b"\0")):
            came, went, path = line.split(b"\t", 2)
            found.append((os.fsdecode(path), _number(came), _number(went)))
        return found

    def beginning(self, subject: str) -> str | None:
        """Returns the first commit if it has this subject; else None."""
        first = self._repository.text("rev-list", "--max-parents=0", "HEAD").split("\n")[-1]
        return first if self.commit(first).subject == subject else None

    def parents(self, commit: str) -> list[str]:
        return self._repository.text("rev-list", "-1", "--parents", commit).split()[1:]

    def empty_tree(self) -> str:
        return self._repository.text("mktree", stdin=b"")

    # ------------------------------------------------------------ running

    def _text(self, objects: Objects, path: str, blob: str) -> str:
        if not blob.strip("0"):
            return ""
        data = objects.read(blob)[1]
        if self._repository.is_closed(data):
            data = self._repository.opened(path, blob)
        return data.decode("utf-8", "replace")

    def _has_history(self) -> bool:
        if version() is None:
            raise Unavailable(NEEDS_GIT)
        return self._repository.head() is not None

    def _need_history(self) -> None:
        if not self._has_history():
            raise NotFound("nothing was committed yet; there is only the present (leave out `at`)")


def _commits(said: bytes) -> Iterator[Commit]:
    for part in said.split(_BEGINS)[1:]:
        yield _commit(part.split(_PART, _PARTS - 1))


def _commit(fields: Sequence[bytes]) -> Commit:
    oid, seconds, author, message = (field.decode("utf-8", "replace") for field in fields[:4])
    return Commit(oid, moment_of(seconds), author, message.strip("\n"))


def _raw(said: bytes) -> Iterator[tuple[Commit, tuple[str, str, str, str]]]:
    """Yields each changed file of each commit: commit, then new mode, old blob, new blob and path."""
    for part in said.split(_BEGINS)[1:]:
        fields = part.split(_PART, _PARTS - 1)
        commit = _commit(fields)
        entries = iter(fields[4].split(b"\0"))
        for entry in entries:
            if entry.lstrip(b"\n").startswith(b":"):
                _, mode, old, new, _ = entry.decode("ascii").split(" ")
                yield commit, (mode, old, new, os.fsdecode(next(entries)))


def _number(count: bytes) -> int:
    return int(count) if count.isdigit() else -1


def _blamed(said: bytes) -> Iterator[tuple[int, str, str]]:
    """Yields line number, commit and text of each line."""
    oid, number = "", 0
    for line in said.split(b"\n"):
        if line.startswith(b"\t"):
            yield number, oid, line[1:].decode("utf-8", "replace").rstrip("\r")
        elif head := re.match(rb"([0-9a-f]{40,64}) \d+ (\d+)(?: \d+)?$", line):
            oid, number = head[1].decode(), int(head[2])


MOST_READ = 500
"""Greatest number of files that are read for a commit message."""

_HEAD_BYTES = 4096
"""Bytes of a transcript that contain its front matter, which has the end of the conversation."""


class Git(Repository):
    """The git repository of a workspace. `clock` dates commits and tags.

    `files` are the workspace's files, if `.local/` is elsewhere.
    """

    def __init__(
        self, root: Path, clock: Callable[[], datetime] | None = None, files: WorkspaceFiles | None = None
    ) -> None:
        super().__init__(root)
        self.clock = clock or (lambda: datetime.now().astimezone())
        self._committer = Committer(self, self.clock)
        self.past = Past(self)
        self.merging = Merger(self, self._committer, files or WorkspaceFiles(root))
        self.remote = Remote(self)
        self.tags = Tags(self, self._committer)
        self.worktrees = Worktrees(self)
        self.hooks = Hooks(self)
        self.health = Health(self, self._committer, self.remote)

    def export(self, folder: Path, remote: str | None, paths: Sequence[str]) -> str | None:
        """Raises Unavailable: the workspace itself is a repository."""
        raise Unavailable("the memory's folder is a git repository already; `git clone` copies it")

    def in_folder(self, place: Path) -> Git:
        return Git(place, self.clock)

    def available(self) -> bool:
        return self.version() is not None

    def version(self) -> str | None:
        return version()

    def init(self) -> bool:
        """Makes the repository. Returns False if there is one already. Raises Unavailable without git."""
        if self.exists():
            return False
        self.run("-c", "init.defaultBranch=main", "init", "--quiet")
        return True

    def commit_files(self, paths: Iterable[str], message: str, *, redacted: bool = False) -> Committed:
        """Commits these files as they are now, missing ones as deleted.

        Files with changes that the user has staged wait for the user's commit. Files that are refused (a secret,
        conflict markers, too large, a sealed conversation that changed without the trailer `Forget:`) are left out and
        named. `redacted`: the files were just written without secrets and are not searched again. Raises Unavailable if
        git is missing, in the middle of a merge or on no branch, or refuses.
        """
        wanted = sorted({clean_path(path) for path in paths})
        self.init()
        return self._committer.commit(wanted, message, redacted=redacted)

    def uncommitted(self, prefixes: Sequence[str]) -> list[str]:
        """Returns files under these paths that differ from the user's index: changed, new, deleted.

        Ignored files, nested repositories and files that a sparse checkout leaves out do not count. Raises Unavailable.
        """
        if not self.exists():
            return []
        listed = self.run(
            "ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--", *prefixes
        )
        names = {os.fsdecode(name) for name in listed.split(b"\0") if name}
        return sorted(name for name in names if not name.endswith("/"))

    def differing(self, prefixes: Sequence[str]) -> list[str]:
        """Returns files under these paths that may differ from the last commit, also staged ones."""
        head = self.head()
        if head is None:
            return self.uncommitted(prefixes)
        listed = self.run("diff-index", "--cached", "--name-only", "-z", head, "--", *prefixes)
        staged = (os.fsdecode(name) for name in listed.split(b"\0") if name)
        return sorted({*self.uncommitted(prefixes), *staged})

    def changes(self, prefixes: Sequence[str]) -> list[FileChange]:
        """Returns the uncommitted and unstaged changes under these paths, with the texts. Raises Unavailable.

        Open conversations are left out. Files that a filter encrypts have no text.
        """
        root = self.root
        paths = [path for path in self.uncommitted(prefixes) if not _is_open(root, path)]
        read = paths[:MOST_READ]
        before = self.committed_texts(read)
        closed = self.filtered(read)
        known = [FileChange(path, before[path], _text_now(root / path)) for path in read if path not in closed]
        for path in sorted(closed):
            there = before[path] is not None, _text_now(root / path) is not None
            known.append(FileChange(path, *("" if one else None for one in there)))
        return known + [FileChange(path, "", "" if (root / path).exists() else None) for path in paths[MOST_READ:]]

    def committed_texts(self, paths: Sequence[str], at: str | None = None) -> dict[str, str | None]:
        """Returns the files' texts in a commit, by default the last one. Raises Unavailable.

        The text is None if the commit lacks the file, and empty for a binary file or one over LONGEST_TEXT bytes.
        """
        commit = at or self.head()
        if commit is None:
            return dict.fromkeys(paths)
        entries = self.entries_of(commit, paths)
        blobs = {path: entry.split(" ")[1] for path, entry in entries.items() if entry.startswith("100")}
        with objects_of(self.root) as objects:
            return {path: _text(objects.read(blobs[path])[1]) if path in blobs else None for path in paths}

    def check_free(self) -> None:
        """Raises Unavailable if git is missing, in the middle of a merge or rebase, or HEAD is on no branch."""
        if not self.available():
            raise Unavailable(NEEDS_GIT)
        self._committer.check_free()

    def unmerged(self) -> tuple[str, list[str]]:
        """Returns git's unfinished operation (empty: none), and the files that it could not merge."""
        busy = self.busy() if self.exists() else None
        if busy is None:
            return "", []
        return busy, sorted({path for _, path in entries_in(self.run("ls-files", "--unmerged", "-z"))})

    def show(self, path: str, at: str) -> str:
        """Returns the file's text at a commit, tag or branch, or at a moment (`text.dates.moment`; of a day, its end).

        Raises NotFound for an unknown version or a file that it lacks, Invalid for a binary file.
        """
        path = clean_path(path)
        commit = self.commit_at(at.strip())
        listed = self.entries_of(commit, [path])
        if path not in listed:
            raise NotFound(
                f"{path} was not there at {at} (commit {commit[:10]}); read it as it is, or ask for another time"
            )
        mode, blob = listed[path].split(" ")
        if not mode.startswith("100"):
            raise Invalid(f"{path} was not a file at {at}")
        data = self.run("cat-file", "blob", blob)
        if self.is_closed(data):
            data = self.opened(path, blob)
        try:
            if b"\0" not in data:
                return data.decode()
        except UnicodeDecodeError:
            pass
        raise Invalid(f"{path} at {at} is a binary file; only text can be read")

    def versions(self, prefixes: Sequence[str], commits: int) -> list[Version]:
        """Returns what the last `commits` commits wrote under these paths, newest first; nothing without a history.

        Raises Unavailable if git is missing or fails.
        """
        if self.head() is None:
            return []
        wanted = ("-z", "--raw", "--no-abbrev", "--no-renames", f"--format={_COMMIT}", f"--max-count={commits}")
        log = self.run("log", *wanted, "--", *map(clean_path, prefixes))
        return [
            Version(path, commit.id, commit.at, commit.subject, blob)
            for commit, (mode, _, blob, path) in _raw(log)
            if mode.startswith("100")  # a plain file that was not deleted
        ]

    def blob(self, name: str) -> bytes:
        """Returns the bytes of a blob by its name, as `versions` gives it. Raises Unavailable."""
        return self.run("cat-file", "blob", name)

    def commit_at(self, at: str) -> str:
        """Returns the commit that `at` names: a commit, tag or branch, or the last commit before a moment
        (`text.dates.moment`). Raises NotFound, Unavailable without git."""
        when = moment(at, self.clock())
        if when is None:
            return self.past.resolve(at)
        found = self.past.at(when)
        if found is None:
            raise NotFound(f"nothing was committed before the end of {at}; ask for a later date")
        return found

    def trees(self) -> GitTrees | None:
        """Returns the store for checkpoints in this repository; None without git or a repository."""
        return GitTrees(self) if self.available() and self.exists() else None

    def tree_now(self, prefixes: Sequence[str]) -> str:
        """Returns the id of a tree: the last commit, with the current files under these paths."""
        return self._committer.tree_of(self.uncommitted(prefixes))


def _text(data: bytes) -> str:
    return "" if len(data) > LONGEST_TEXT or b"\0" in data else data.decode("utf-8", "replace")


def _is_open(root: Path, path: str) -> bool:
    """Returns whether a path is a conversation that has not ended."""
    if not path.startswith(CONVERSATIONS) or not path.endswith(".md"):
        return False
    try:
        with (root / path).open("rb") as stream:
            head = stream.read(_HEAD_BYTES).decode("utf-8", "replace")
    except OSError:
        return False
    return not is_sealed(path, head)


def _text_now(place: Path) -> str | None:
    try:
        if place.is_symlink() or not place.is_file():
            return None if not place.exists() and not place.is_symlink() else ""
        return "" if place.stat().st_size > LONGEST_TEXT else _text(place.read_bytes())
    except OSError:
        return ""
