"""Tags under `memory/`: states of the memory that have a name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mcp_server.errors import Conflict, Invalid, Unavailable
from mcp_server.storage.history_values import TAG_PREFIX, Tag
from mcp_server.storage.local.git.commits import Committer
from mcp_server.storage.local.git.repository import Failed, Repository, clean_path, moment_of


class Tags:
    """The tags of one repository. `create` under `locks.git()`."""

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
        except Failed as error:
            raise Invalid(f"{name!r} is no name for a tag; use letters, digits, '-', '_' and '.'") from error
        known = {tag.name: tag for tag in self.all(name)}
        if name in known:
            if known[name].commit == commit:
                return
            raise Conflict(f"the tag {name} names another state ({known[name].commit[:10]}); choose another name")
        try:
            if message:
                # Not signed, as our commits are not: nobody sits there to type a passphrase.
                self._committer.signed("tag", "--no-sign", "--annotate", "--message", message, "--", name, commit)
            else:
                self._point(name, commit)
        except Failed as error:
            raise Unavailable(f"git could not write the tag {name}: {error}") from error

    def create_new(self, name: str, commit: str) -> bool:
        """Creates a tag. Returns False if the name is taken. Raises Unavailable."""
        try:
            if self._repository.text("tag", "--list", name):
                return False
            self._point(name, commit)
        except Failed as error:
            raise Unavailable(f"git could not write the tag {name}: {error}") from error
        return True

    def remove(self, name: str) -> None:
        """Deletes a tag. Raises Unavailable."""
        try:
            self._repository.run("update-ref", "-d", f"refs/tags/{name}")
        except Failed as error:
            raise Unavailable(f"git could not take the tag {name} away: {error}") from error

    def commits_since(self, moment: datetime, paths: Sequence[str]) -> list[tuple[str, datetime]]:
        """Returns the commits of the branch under these paths since a moment, with their moments (UTC), oldest first."""
        if not self._repository.exists() or self._repository.head() is None:
            return []
        try:
            said = self._repository.text(
                "log", "--format=%H %ct", f"--since={moment.isoformat()}", "--", *map(clean_path, paths)
            )
        except Failed as error:
            raise Unavailable(f"git could not list commits: {error}") from error
        # The newest first, as git lists them: reversed, so that of commits in one second the later one is the later.
        found = [line.split(" ") for line in reversed(said.split("\n")) if line]
        return sorted(((oid, moment_of(seconds)) for oid, seconds in found), key=lambda one: one[1])

    def _point(self, name: str, commit: str) -> None:
        self._repository.run("update-ref", f"refs/tags/{name}", commit, "0" * len(commit))
