"""Branches with a work tree of their own: the live one is never switched."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

from mcp_server.errors import Unavailable
from mcp_server.storage.history_values import Branch
from mcp_server.storage.local import durable
from mcp_server.storage.local.git.repository import NEEDS_GIT, Failed, Repository, moment_of, plain_environment

_HALF_MADE = "locked initializing"
"""How git lists a work tree that it is just making."""


class Worktrees:
    """Branches of one repository and their work trees. What writes, under `locks.git()`."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def branches(self, prefix: str) -> list[Branch]:
        """Returns the branches whose names begin with `prefix` (`explore/`)."""
        if not self._repository.exists() or self._repository.head() is None:
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
        """Deletes a branch and its folder with all content, also what a kill left of creating them."""
        place = place or self._places(half_made=True).get(branch)
        if place is not None and place.exists():
            try:  # twice: git locks a work tree while it is made, and a kill leaves it locked
                self._git("worktree", "remove", "--force", "--force", str(place))
            except Unavailable:
                shutil.rmtree(place, ignore_errors=True)
        if place is not None:
            with contextlib.suppress(Unavailable):  # nor is a locked one pruned
                self._git("worktree", "unlock", str(place))
        self._git("worktree", "prune")
        if self._repository.text("for-each-ref", f"refs/heads/{branch}"):
            self._git("branch", "--quiet", "-D", branch)

    def _places(self, *, half_made: bool = False) -> dict[str, Path]:
        """Returns the folder of each checked-out branch; with `half_made` also of those that a kill left incomplete."""
        found: dict[str, Path] = {}
        for block in self._repository.text("worktree", "list", "--porcelain").split("\n\n"):
            lines = block.split("\n")
            place = Path(lines[0].removeprefix("worktree "))
            for line in lines[1:]:
                if line.startswith("branch refs/heads/") and (half_made or _HALF_MADE not in lines) and place.is_dir():
                    found[line.removeprefix("branch refs/heads/")] = place
        return found

    def _git(self, *arguments: str) -> None:
        """Runs git without the variables of `Repository.run`, which git would pass on to the new work tree and fill
        this one's index."""
        command = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(self._repository.root), *arguments]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=plain_environment()
            )
        except FileNotFoundError as error:
            raise Unavailable(NEEDS_GIT) from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise Unavailable(f"git {' '.join(arguments[:2])} failed: {said}") from Failed(said)
