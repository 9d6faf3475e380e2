"""The other copy: what is fetched from a remote and pushed to it. Never by force.

Methods are synchronous and wait for the network; call them in a worker thread, without a lock.
"""

from __future__ import annotations

from typing import Literal

from mcp_server.errors import NotFound, Unavailable
from mcp_server.storage.local.git.repository import Failed, Repository

NETWORK_SECONDS = 300.0
"""After so long a remote that does not answer is given up."""

_BEHIND = ("[rejected]", "fetch first", "non-fast-forward", "stale info", "[remote rejected]", "cannot lock ref")


class Remote:
    """The remotes of one repository."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def names(self) -> list[str]:
        """Returns the names of the remotes."""
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
        except Failed as error:
            raise Unavailable(f"{name} could not be fetched: {_short(error)}; what is here is committed") from error

    def tip(self, name: str, branch: str) -> str | None:
        """Returns the commit of the remote's branch when it was last fetched; None if there is none."""
        try:
            return self._repository.text("rev-parse", "--quiet", "--verify", f"refs/remotes/{name}/{branch}^{{commit}}")
        except Failed:
            return None

    def counterpart(self, name: str, branch: str) -> str:
        """Returns the name of the remote's branch for this one: the same name; else the only branch of the remote, as
        in a new clone whose HEAD has another name; else the same name, which will be created."""
        listed = self._repository.text("for-each-ref", "--format=%(refname:strip=3)", f"refs/remotes/{name}/")
        there = [one for one in listed.split() if one != "HEAD" and not one.startswith(("explore/", "extract/"))]
        return there[0] if len(there) == 1 and branch not in there else branch

    def push(self, name: str, branch: str) -> Literal["pushed", "behind"]:
        """Pushes HEAD to the remote's branch. Returns "behind" if the remote has other commits. Raises Unavailable with
        the message of git."""
        try:
            where = f"HEAD:refs/heads/{branch}"
            self._repository.run("push", "--quiet", "--no-signed", name, where, seconds=NETWORK_SECONDS)
        except Failed as error:
            if any(said in str(error) for said in _BEHIND):
                return "behind"
            raise Unavailable(f"{name} could not be pushed to: {_short(error)}; what is here is committed") from error
        return "pushed"

    def ahead_behind(self, name: str, branch: str) -> tuple[int, int] | None:
        """Returns the number of commits that are only here, and only on the remote when it was last fetched; None if it
        lacks the branch."""
        tip = self.tip(name, branch)
        if tip is None:
            return None
        ahead, behind = self._repository.text("rev-list", "--left-right", "--count", f"HEAD...{tip}").split()
        return int(ahead), int(behind)


def _short(error: Failed) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(" ".join(lines[-3:]).split())[:300]
