"""Names for commits: tags under `memory/`, branches with their own folders, and remotes."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

from mcp_server.errors import Conflict, Invalid, NotFound, Unavailable
from mcp_server.storage.git_process import GitFailed, moment_of, plain_environment, run_git
from mcp_server.storage.history_values import TAG_PREFIX, Branch, Tag
from mcp_server.storage.local import durable
from mcp_server.storage.local.git.commits import Committer
from mcp_server.storage.local.git.repository import Repository, clean_path

NETWORK_SECONDS = 300.0
"""Time limit in seconds for a command that connects to a remote."""

_BEHIND = ("[rejected]", "fetch first", "non-fast-forward", "stale info", "[remote rejected]", "cannot lock ref")


class Remote:
    """The remotes of one repository."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def names(self) -> list[str]:
        return self._repository.text("remote").split() if self._repository.exists() else []

    def chosen(self, name: str | None) -> str:
        """Returns the remote of this name; without a name, the only remote. Raises NotFound with what to do."""
        names = self.names()
        if name is None and len(names) == 1:
            return names[0]
        if name is None:
            said = f"there are {', '.join(names)}: name one" if names else "there is none"
            raise NotFound(f"no remote to sync with ({said}); `git remote add origin URL` in the workspace adds one")
        if name not in names:
            raise NotFound(f"no remote {name!r}; `git remote add {name} URL` in the workspace adds it")
        return name

    def fetch(self, name: str) -> None:
        """Fetches from the remote. Raises Unavailable with the message of git."""
        try:
            self._repository.run("fetch", "--quiet", name, seconds=NETWORK_SECONDS)
        except GitFailed as error:
            raise Unavailable(f"{name} could not be fetched: {_short(error)}; local changes are committed") from error

    def tip(self, name: str, branch: str) -> str | None:
        """Returns the commit of the remote's branch when it was last fetched; None if there is none."""
        try:
            return self._repository.text("rev-parse", "--quiet", "--verify", f"refs/remotes/{name}/{branch}^{{commit}}")
        except GitFailed:
            return None

    def counterpart(self, name: str, branch: str) -> str:
        """Returns the name of the remote's branch for this branch: the same name, which a push creates if the remote
        lacks it. If the remote lacks it and has exactly one branch (as in a new clone whose HEAD has another name),
        returns that one."""
        listed = self._repository.text("for-each-ref", "--format=%(refname:strip=3)", f"refs/remotes/{name}/")
        there = [one for one in listed.split() if one != "HEAD" and not one.startswith(("explore/", "extract/"))]
        return there[0] if len(there) == 1 and branch not in there else branch

    def push(self, name: str, branch: str) -> Literal["pushed", "behind"]:
        """Pushes HEAD to the remote's branch. Returns "behind" if the remote has other commits. Raises Unavailable with
        the message of git."""
        try:
            where = f"HEAD:refs/heads/{branch}"
            self._repository.run("push", "--quiet", "--no-signed", name, where, seconds=NETWORK_SECONDS)
        except GitFailed as error:
            if any(said in error.said for said in _BEHIND):
                return "behind"
            raise Unavailable(f"{name} could not be pushed to: {_short(error)}; local changes are committed") from error
        return "pushed"

    def ahead_behind(self, name: str, branch: str) -> tuple[int, int] | None:
        """Returns the number of commits that only HEAD has, and the number that only the remote's branch had when it
        was last fetched; None if the remote lacks the branch."""
        tip = self.tip(name, branch)
        if tip is None:
            return None
        ahead, behind = self._repository.text("rev-list", "--left-right", "--count", f"HEAD...{tip}").split()
        return int(ahead), int(behind)


def _short(error: GitFailed) -> str:
    lines = [line for line in error.said.splitlines() if line.strip()]
    return " ".join(" ".join(lines[-3:]).split())[:300]


_HALF_MADE = "locked initializing"
"""The line in git's list for a work tree whose creation has not finished."""


class Worktrees:
    """Branches of one repository and their work trees. Call methods that write under `locks.git()`."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def branches(self, prefix: str) -> list[Branch]:
        """Returns the branches whose names begin with `prefix` (`explore/`)."""
        if self._repository.head() is None:
            return []
        said = self._repository.text(
            "for-each-ref",
            "--format=%(refname:strip=2)%00%(objectname)%00%(committerdate:unix)",
            f"refs/heads/{prefix}",
        )
        places = self._places()
        found: list[Branch] = []
        for line in filter(None, said.split("\n")):
            name, commit, at = line.split("\0")
            ahead = int(self._repository.text("rev-list", "--count", f"HEAD..{commit}"))
            found.append(Branch(name, commit, moment_of(at), ahead, places.get(name)))
        return found

    def any(self, prefix: str) -> bool:
        """Returns whether there is such a branch. Quick: does not run git unless refs are packed."""
        folder = self._repository.folder()
        loose = folder / "refs" / "heads" / prefix
        if loose.is_dir() and any(loose.rglob("*")):
            return True
        packed = folder / "packed-refs"
        return packed.is_file() and f" refs/heads/{prefix}" in packed.read_text("utf-8", "replace")

    def add(self, branch: str, place: Path, start: str) -> None:
        """Creates a branch at the commit `start` and checks it out in a new folder."""
        durable.make_folders(place.parent)
        self._git("worktree", "prune")
        self._git("worktree", "add", "--quiet", "-b", branch, str(place), start)

    def remove(self, branch: str, place: Path | None) -> None:
        """Deletes a branch and its folder with all content, also if their creation was killed."""
        place = place or self._places(half_made=True).get(branch)
        if place is not None and place.exists():
            try:  # --force twice: git locks a work tree during its creation, and a kill leaves it locked
                self._git("worktree", "remove", "--force", "--force", str(place))
            except Unavailable:
                shutil.rmtree(place, ignore_errors=True)
        if place is not None:
            with contextlib.suppress(Unavailable):  # `prune` skips a locked work tree
                self._git("worktree", "unlock", str(place))
        self._git("worktree", "prune")
        if self._repository.text("for-each-ref", f"refs/heads/{branch}"):
            self._git("branch", "--quiet", "-D", branch)

    def _places(self, *, half_made: bool = False) -> dict[str, Path]:
        """Returns the folder of each checked-out branch; with `half_made`, also those whose creation has not
        finished."""
        found: dict[str, Path] = {}
        for block in self._repository.text("worktree", "list", "--porcelain").split("\n\n"):
            lines = block.split("\n")
            place = Path(lines[0].removeprefix("worktree "))
            for line in lines[1:]:
                if line.startswith("branch refs/heads/") and (half_made or _HALF_MADE not in lines) and place.is_dir():
                    found[line.removeprefix("branch refs/heads/")] = place
        return found

    def _git(self, *arguments: str) -> None:
        """Runs git without the environment variables of `Repository.run`: with them, git would fill the index of this
        work tree instead of that of the new one."""
        root = self._repository.root
        run_git(root, "-c", "core.hooksPath=/dev/null", *arguments, environment=plain_environment())


class Tags:
    """The tags of one repository. Call `create` under `locks.git()`."""

    def __init__(self, repository: Repository, committer: Committer) -> None:
        self._repository = repository
        self._committer = committer

    def all(self, prefix: str = TAG_PREFIX) -> list[Tag]:
        """Returns the tags under a prefix, ordered by the time of their commits."""
        if not self._repository.exists():
            return []
        names = "refname:strip=2 objectname *objectname creatordate:unix *committerdate:unix contents:subject"
        fields = "%00".join(f"%({name})" for name in names.split())
        found: list[Tag] = []
        for line in self._repository.text("for-each-ref", f"--format={fields}", f"refs/tags/{prefix}").split("\n"):
            if line:
                name, own, of, at, of_at, message = line.split("\0")
                moment = moment_of(of_at or at or "0")
                found.append(Tag(name, of or own, moment, message if of else ""))
        return sorted(found, key=lambda tag: (tag.at, tag.name))

    def create(self, name: str, commit: str, message: str = "") -> None:
        """Creates a tag. Raises Invalid for an invalid name, Conflict if it is the tag of another commit."""
        try:
            self._repository.run("check-ref-format", f"refs/tags/{name}")
        except GitFailed as error:
            raise Invalid(f"{name!r} is not a valid tag name; use letters, digits, '-', '_' and '.'") from error
        known = {tag.name: tag for tag in self.all(name)}
        if name in known:
            if known[name].commit == commit:
                return
            raise Conflict(f"the tag {name} names another state ({known[name].commit[:10]}); choose another name")
        if message:
            # Not signed, like our commits, because nobody could type a passphrase.
            self._committer.signed("tag", "--no-sign", "--annotate", "--message", message, "--", name, commit)
        else:
            self._repository.run("update-ref", f"refs/tags/{name}", commit, "0" * len(commit))

    def remove(self, name: str) -> None:
        self._repository.run("update-ref", "-d", f"refs/tags/{name}")

    def commits_since(self, moment: datetime, paths: Sequence[str]) -> list[tuple[str, datetime]]:
        """Returns the commits of the branch under these paths since a moment, with their times (UTC), oldest first."""
        if self._repository.head() is None:
            return []
        said = self._repository.text(
            "log", "--format=%H %ct", f"--since={moment.isoformat()}", "--", *map(clean_path, paths)
        )
        # Git lists the newest first. Reversed, so that commits of the same second stay in their order.
        found = [line.split(" ") for line in reversed(said.split("\n")) if line]
        return sorted(((oid, moment_of(seconds)) for oid, seconds in found), key=lambda one: one[1])
