"""The workspace's own git repository: commits that leave the user's work alone, and files as they were.

Methods are synchronous: call them in a worker thread, under `locks.git()` where they write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from mcp_server.core.history.moments import moment
from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.store import git_repository
from mcp_server.store.git_commits import Committed, Committer
from mcp_server.store.git_health import Health
from mcp_server.store.git_hooks import Hooks
from mcp_server.store.git_merging import Merger
from mcp_server.store.git_past import Past
from mcp_server.store.git_remote import Remote
from mcp_server.store.git_repository import NEEDS_GIT, Failed, Repository, clean_path
from mcp_server.store.git_tags import Tags
from mcp_server.store.git_worktrees import Worktrees
from mcp_server.store.history.objects import Objects
from mcp_server.store.versions import FORMAT, Version, parse


class Git:
    """What the rest of the house asks of git. `clock` dates commits and tags; without one git's own does."""

    def __init__(self, root: Path, clock: Callable[[], datetime] | None = None) -> None:
        self.clock = clock
        self._repository = Repository(root)
        self._committer = Committer(self._repository, clock)
        self.past = Past(self._repository)
        self.merging = Merger(self._repository, self._committer)
        self.remote = Remote(self._repository)
        self.tags = Tags(self._repository, self._committer)
        self.worktrees = Worktrees(self._repository)
        self.hooks = Hooks(self._repository)
        self.health = Health(self._repository, self._committer, self.remote)

    def available(self) -> bool:
        """True if git can be run."""
        return self.version() is not None

    def version(self) -> str | None:
        """git's version, such as `2.39.5`; None if it was not found."""
        return git_repository.version()

    def head(self) -> str | None:
        """The id of the current commit; None before the first one, or where there is no repository."""
        if not self._repository.exists():
            return None
        return self._repository.head()

    def init(self) -> bool:
        """Makes the repository; False if there is one already. Raises Unavailable without git."""
        if self._repository.exists():
            return False
        try:
            try:
                self._repository.run("init", "--quiet", "--initial-branch=main")
            except Failed:  # git before 2.28
                self._repository.run("init", "--quiet")
        except Failed as error:
            raise Unavailable(f"git could not make a repository in {self._repository.root}: {error}") from error
        return True

    def commit(
        self, paths: Iterable[str], message: str, author: str | None = None, *, redacted: bool = False
    ) -> str | None:
        """As `commit_files`; the commit's id, None if nothing changed."""
        return self.commit_files(paths, message, author, redacted=redacted).commit

    def commit_files(
        self, paths: Iterable[str], message: str, author: str | None = None, *, redacted: bool = False
    ) -> Committed:
        """Commits these files as they are now, a missing one as deleted.

        A path with changes that the user has staged waits for its owner; a file that may not go in (a secret, conflict
        markers, over its cap, a sealed conversation that changed without the trailer `Forget:`) is left out and named.
        `redacted`: they were written without secrets just now and are not searched again. `author` is `Name <mail>`; by
        default the user's own identity, or ours if git knows none. Raises Unavailable if
        git is missing, in the middle of a merge or on no branch, or refuses.
        """
        wanted = sorted({clean_path(path) for path in paths})
        self.init()
        return self._committer.commit(wanted, message, author, redacted=redacted)

    def uncommitted(self, prefixes: Sequence[str]) -> list[str]:
        """Files under these paths that differ from what the user's index holds: changed, new, deleted. What git
        ignores, other repositories inside, and files that a sparse checkout leaves out are none. Raises Unavailable."""
        if not self._repository.exists():
            return []
        try:
            listed = self._repository.run(
                "ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard", "--", *prefixes
            )
        except Failed as error:
            raise Unavailable(f"git could not say what changed: {error}") from error
        names = {os.fsdecode(name) for name in listed.split(b"\0") if name}
        return sorted(name for name in names if not name.endswith("/"))

    def differing(self, prefixes: Sequence[str]) -> list[str]:
        """Files under these paths that may differ from the last commit, staged or not; as `uncommitted` otherwise."""
        head = self.head()
        if head is None:
            return self.uncommitted(prefixes)
        try:
            listed = self._repository.run("diff-index", "--cached", "--name-only", "-z", head, "--", *prefixes)
        except Failed as error:
            raise Unavailable(f"git could not say what is staged: {error}") from error
        staged = (os.fsdecode(name) for name in listed.split(b"\0") if name)
        return sorted({*self.uncommitted(prefixes), *staged})

    def committed_texts(self, paths: Sequence[str], longest: int, at: str | None = None) -> dict[str, str | None]:
        """These files as a commit has them, by default the last: None for one that it does not hold, an empty text for
        what is no text or has over `longest` bytes. Raises Unavailable."""
        commit = at or self.head()
        if commit is None:
            return dict.fromkeys(paths)
        try:
            blobs = self._repository.entry_blobs(commit, paths)
        except Failed as error:
            raise Unavailable(f"git could not read the commit {commit[:10]}: {error}") from error
        with Objects(self._repository.root) as objects:
            return {path: _text(objects.read(blobs[path])[1], longest) if path in blobs else None for path in paths}

    def filtered(self, paths: Sequence[str]) -> frozenset[str]:
        """Those of these paths that a filter closes on their way into git (git-crypt, LFS): nothing of what is in them
        may stand in a commit's message. Raises Unavailable."""
        try:
            return self._repository.filtered(paths)
        except Failed as error:
            raise Unavailable(f"git could not read .gitattributes: {error}") from error

    def ignored(self, paths: Sequence[str]) -> dict[str, str]:
        """Those of these paths that git was told to ignore and does not hold, each with the place that says so. Raises
        Unavailable."""
        if not self._repository.exists():
            return {}
        try:
            return self._repository.ignored(paths)
        except Failed as error:
            raise Unavailable(f"git could not read .gitignore: {error}") from error

    def is_shallow(self) -> bool:
        """Whether history begins somewhere in the middle (`git clone --depth`)."""
        return self._repository.exists() and self._repository.is_shallow()

    def check_free(self) -> None:
        """Raises Unavailable where git is missing, in the middle of a merge or rebase, or HEAD is on no branch."""
        if not self.available():
            raise Unavailable(NEEDS_GIT)
        self._committer.check_free()

    def unmerged(self) -> tuple[str, list[str]]:
        """What git is in the middle of (empty: nothing), and the files that it could not merge."""
        busy = self._repository.busy() if self._repository.exists() else None
        if busy is None:
            return "", []
        listed = self._repository.run("ls-files", "--unmerged", "-z").split(b"\0")
        return busy, sorted({os.fsdecode(line.partition(b"\t")[2]) for line in listed if line})

    def branch(self) -> str | None:
        """The branch that HEAD is on; None where it is detached or there is no repository."""
        return self._repository.branch() if self._repository.exists() else None

    def show(self, path: str, at: str) -> str:
        """The file as it was at a commit, tag or branch, or at a moment (`moments.moment`; a day is its end).

        Raises NotFound for an unknown version or a file that was not there, Invalid for a binary file.
        """
        path = clean_path(path)
        commit = self.commit_at(at.strip())
        try:
            listed = self._repository.entries_of(commit, [path])
            if path not in listed:
                raise NotFound(
                    f"{path} was not there at {at} (commit {commit[:10]}); read it as it is, or ask for another time"
                )
            mode, blob = listed[path].split(" ")
            if not mode.startswith("100"):
                raise Invalid(f"{path} was no file at {at}")
            data = self._repository.run("cat-file", "blob", blob)
            if self._repository.is_closed(data):
                data = self._repository.opened(path, blob)
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
            return list(parse(self._repository.run("log", *wanted, "--", *(clean_path(prefix) for prefix in prefixes))))
        except Failed as error:
            raise Unavailable(f"git could not list earlier versions: {error}") from error

    def blob(self, name: str) -> bytes:
        """The bytes that git knows under this name, as `versions` gives it. Raises Unavailable."""
        try:
            return self._repository.run("cat-file", "blob", name)
        except Failed as error:
            raise Unavailable(f"git could not read {name[:10]}: {error}") from error

    def commit_at(self, at: str) -> str:
        """The commit that `at` names: a commit, a tag, a branch, or a moment (see `moments.moment`), and then the last
        one before it. Raises NotFound, Unavailable without git."""
        when = moment(at, self._now())
        if when is None:
            return self.past.resolve(at)
        found = self.past.at(when)
        if found is None:
            raise NotFound(f"nothing was committed before the end of {at}; ask for a later date")
        return found

    def tree_now(self, prefixes: Sequence[str]) -> str:
        """The id of a tree: the last commit, with the files under these paths as they are now, committed or not."""
        try:
            return self._committer.tree_of(self.uncommitted(prefixes))
        except Failed as error:
            raise Unavailable(f"git could not look at the files as they are: {error}") from error

    def _now(self) -> datetime:
        return self.clock() if self.clock else datetime.now().astimezone()


def _text(data: bytes, longest: int) -> str:
    return "" if len(data) > longest or b"\0" in data else data.decode("utf-8", "replace")
