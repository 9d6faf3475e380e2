"""The workspace's own git repository: commits that do not touch the user's work, earlier versions of files, and the
trees of checkpoints.

The ref `refs/memory/checkpoints/{id}`, outside of all branches, refers to the tree of a checkpoint. Its files are
stored byte for byte (without filters and conversion of line ends), the user's index and work tree are not touched, and
the objects are on disk before the ref is written.

Methods are synchronous: call them in a worker thread; call those that write under `locks.git()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from functools import cached_property
from pathlib import Path

from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.history.commit_rules import CONVERSATIONS, FileChange, is_sealed
from mcp_server.storage.git_process import NEEDS_GIT, GitFailed, version
from mcp_server.storage.history_values import LONGEST_TEXT, Committed, Version, object_id
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.git.commits import FORMAT, Committer, Past, raw_changes
from mcp_server.storage.local.git.health import Health
from mcp_server.storage.local.git.hooks import Hooks
from mcp_server.storage.local.git.merging import Merger
from mcp_server.storage.local.git.refs import Remote, Tags, Worktrees
from mcp_server.storage.local.git.repository import Repository, clean_path, entries_in, objects_of
from mcp_server.text.dates import moment

MOST_READ = 500
"""Greatest number of files that are read for a commit message."""

_HEAD_BYTES = 4096
"""Bytes at the beginning of a transcript that contain its front matter, which tells whether the conversation has
ended."""


class Git(Repository):
    """The git repository of a workspace. `clock` gives the dates of commits and tags.

    `files` are the workspace's files; needed if `.local/` is outside the workspace.
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
        """Raises Unavailable, because the workspace itself is a repository."""
        raise Unavailable("the memory's folder is a git repository already; `git clone` copies it")

    def in_folder(self, place: Path) -> Git:
        return Git(place, self.clock)

    def available(self) -> bool:
        return self.version() is not None

    def version(self) -> str | None:
        return version()

    def init(self) -> bool:
        """Creates the repository. Returns False if there is one already. Raises Unavailable without git."""
        if self.exists():
            return False
        self.run("-c", "init.defaultBranch=main", "init", "--quiet")
        return True

    def commit_files(self, paths: Iterable[str], message: str, *, redacted: bool = False) -> Committed:
        """Commits the current content of these files, missing ones as deleted.

        Files with changes that the user has staged are left to the user's commit. Refused files (a secret, conflict
        markers, too large, a sealed conversation that changed without the trailer `Forget:`) are left out, and the
        result names them. With `redacted`, the files are not searched for secrets, because they were just written
        without any. Raises Unavailable if git is missing, in the middle of a merge or on no branch, or refuses.
        """
        wanted = sorted({clean_path(path) for path in paths})
        self.init()
        return self._committer.commit(wanted, message, redacted=redacted)

    def uncommitted(self, prefixes: Sequence[str]) -> list[str]:
        """Returns the files under these paths that differ from the user's index: changed, new, deleted.

        Leaves out ignored files, nested repositories and files outside a sparse checkout. Raises Unavailable.
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
                f"{path} did not exist at {at} (commit {commit[:10]}); read its current version, or give another time"
            )
        mode, blob = listed[path].split(" ")
        if not mode.startswith("100"):
            raise Invalid(f"{path} was not a plain file at {at}")
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
        """Returns the versions of files that the last `commits` commits wrote under these paths, newest first; nothing
        without a history.

        Raises Unavailable if git is missing or fails.
        """
        if self.head() is None:
            return []
        wanted = ("-z", "--raw", "--no-abbrev", "--no-renames", f"--format={FORMAT}", f"--max-count={commits}")
        log = self.run("log", *wanted, "--", *map(clean_path, prefixes))
        return [
            Version(path, commit.id, commit.at, commit.subject, blob)
            for commit, (mode, _, blob, path) in raw_changes(log)
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
            raise NotFound(f"nothing was committed before the end of {at}; give a later date")
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


REFS = "refs/memory/checkpoints/"
PREFIX = "git:"

_ON_DISK = ("-c", "core.fsync=loose-object,reference")


class GitTrees:
    """Trees in one repository. Methods raise Unavailable if git is missing or refuses."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        names = self._names(contents)
        asked = "".join(f"{name}\n" for name in dict.fromkeys(names.values())).encode()
        said = self._repository.text("cat-file", "--batch-check", stdin=asked) if asked else ""
        held = {line.split(" ")[0] for line in said.splitlines() if not line.endswith(" missing")}
        return frozenset(path for path, name in names.items() if name in held)

    def put(self, number: str, contents: Mapping[str, bytes], known: Set[str]) -> str:
        names = self._names(contents)
        self._write({path: (name, contents[path]) for path, name in names.items() if path not in known})
        with self._repository.index_of(None) as index:
            self._repository.set_entries(index, {path: f"100644 {name}" for path, name in names.items()})
            tree = self._repository.text(*_ON_DISK, "write-tree", index=index)
        self._repository.run(*_ON_DISK, "update-ref", REFS + number, tree)
        return f"{PREFIX}{number}"

    def tree_of(self, number: str) -> str | None:
        return f"{PREFIX}{number}" if number in self.numbers() else None

    def names(self, tree: str) -> dict[str, str]:
        """Returns the files of a tree: path -> git's id of the bytes. Raises Unavailable if it is not here."""
        number = tree.removeprefix(PREFIX)
        try:
            entries = self._repository.entries_of(REFS + number, [])
        except GitFailed as error:
            raise Unavailable(
                f"the knowledge of checkpoint {number} is not in this repository; it was made on another machine, or "
                f"was deleted ({error})"
            ) from error
        return {path: entry.split(" ")[1] for path, entry in entries.items()}

    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
        names = self.names(tree)
        wanted = {path: names[path] for path in paths if path in names}
        with objects_of(self._repository.root) as objects:
            found = {path: objects.read(name) for path, name in wanted.items()}
        if lost := [path for path, (kind, _) in found.items() if kind == "missing"]:
            raise Unavailable(
                f"git has lost {lost[0]} of {tree}; `context-manager doctor --repair` repairs what it can"
            )
        return {path: data for path, (_, data) in found.items()}

    def remove(self, number: str) -> None:
        """Deletes the ref of the tree under a number; git deletes its objects when it cleans up."""
        self._repository.run("update-ref", "-d", REFS + number)

    def numbers(self) -> frozenset[str]:
        listed = self._repository.text("for-each-ref", "--format=%(refname)", REFS)
        return frozenset(line.removeprefix(REFS) for line in listed.splitlines())

    def _names(self, contents: Mapping[str, bytes]) -> dict[str, str]:
        return {path: object_id(data, self._empty) for path, data in contents.items()}

    @cached_property
    def _empty(self) -> str:
        """Returns the id of an empty file. Its length shows the repository's hash function."""
        return self._repository.text("hash-object", "-t", "blob", "--stdin", stdin=b"")

    def _write(self, missing: Mapping[str, tuple[str, bytes]]) -> None:
        """Writes blobs. Git reads all files in one command; a blob whose file has changed is written from its bytes."""
        if not missing:
            return
        write = (*_ON_DISK, "hash-object", "-w", "--no-filters")
        paths = b"".join(os.fsencode(path) + b"\n" for path in missing)
        try:
            written = self._repository.text(*write, "--stdin-paths", stdin=paths).split()
        except GitFailed:  # one of the files was deleted meanwhile
            written = []
        for name, data in missing.values():
            if name not in written:
                self._repository.run(*write, "--stdin", stdin=data)
