"""The workspace's own git repository: commits that leave the user's work alone, and files as they were.

Methods are synchronous: call them in a worker thread, under `locks.git()` where they write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.store import git_repository
from mcp_server.store.git_commits import Committer
from mcp_server.store.git_repository import NEEDS_GIT, Failed, Repository, clean_path
from mcp_server.store.versions import FORMAT, Version, parse

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_./@{}^~+-]*")


class Git:
    """What the rest of the house asks of git."""

    def __init__(self, root: Path) -> None:
        self._repository = Repository(root)
        self._committer = Committer(self._repository)

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

    def commit(self, paths: Iterable[str], message: str, author: str | None = None) -> str | None:
        """Commits these files as they are now, a missing one as deleted; the commit's id, None if nothing changed.

        A path with changes that the user has staged waits for its owner and is left out. `author` is `Name <mail>`;
        by default the user's own identity, or ours if git knows none. Raises Unavailable if git is missing or refuses.
        """
        wanted = sorted({clean_path(path) for path in paths})
        self.init()
        return self._committer.commit(wanted, message, author)

    def tag(self, name: str) -> bool:
        """Tags the current commit; False if there is none, or a tag of this name. Raises Unavailable."""
        commit = self.head()
        try:
            if commit is None or self._repository.text("tag", "--list", name):
                return False
            self._repository.run("update-ref", f"refs/tags/{name}", commit, "0" * len(commit))
        except Failed as error:
            raise Unavailable(f"git could not set the tag {name}: {error}") from error
        return True

    def untag(self, name: str) -> None:
        """Takes a tag away. Raises Unavailable."""
        try:
            self._repository.run("update-ref", "-d", f"refs/tags/{name}")
        except Failed as error:
            raise Unavailable(f"git could not take the tag {name} away: {error}") from error

    def show(self, path: str, at: str) -> str:
        """The file as it was at a commit, tag or branch, or at the end of a day (YYYY-MM-DD, the machine's time zone).

        Raises NotFound for an unknown version or a file that was not there, Invalid for a binary file.
        """
        path = clean_path(path)
        commit = self._commit_at(at.strip())
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

    def _commit_at(self, at: str) -> str:
        if not self.available():
            raise Unavailable(NEEDS_GIT)
        if not self._repository.exists() or self._repository.head() is None:
            raise NotFound("nothing was committed yet; there is only the present (leave out `at`)")
        try:
            if _DATE.fullmatch(at) or _DATE_TIME.fullmatch(at):
                until = f"{at} 23:59:59" if _DATE.fullmatch(at) else at
                found = self._repository.text("rev-list", "-1", f"--before={until}", "HEAD")
                if not found:
                    raise NotFound(f"nothing was committed before the end of {at}; ask for a later date")
                return found
            if not _REVISION.fullmatch(at):
                raise Failed("no revision")
            return self._repository.text("rev-parse", "--quiet", "--verify", f"{at}^{{commit}}")
        except Failed as error:
            raise NotFound(f"no commit, tag or date {at!r}; give a date as YYYY-MM-DD or a commit's id") from error
