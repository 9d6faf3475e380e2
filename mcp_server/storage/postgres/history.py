"""The history of a team's workspace: the database keeps a version for each write of a document.

A team's workspace has no git repository. Everything about commits, tags, branches, merges and remotes raises
Unavailable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mcp_server.errors import NotFound, Unavailable
from mcp_server.storage.history_values import Committed, Version, object_id
from mcp_server.storage.ports import Trees
from mcp_server.storage.postgres.database import Database
from mcp_server.storage.postgres.files import TeamFiles, has_history
from mcp_server.text.dates import moment

NOT_OFFERED = (
    "a memory on PostgreSQL has no git repository, so commits, tags, branches and sync are not offered there; earlier "
    "versions of files are: `recover` lists them, and `read` with `at` shows a file as it was"
)
_LIKE_GIT = "0" * 40
_VERSION = re.compile(r"v(\d{1,18})")


class _NotOffered:
    """An attribute that needs git. Reading it raises Unavailable."""

    def __get__(self, history: object, owner: type | None = None) -> Any:
        raise Unavailable(NOT_OFFERED)


class TeamHistory:
    """The versions of one workspace's documents. A version is named by its file and number: `v12`."""

    def __init__(self, database: Database, files: TeamFiles, clock: Callable[[], datetime]) -> None:
        self.clock = clock
        self._database = database
        self._files = files
        self._known: dict[str, tuple[str, int]] = {}  # the file and number of each blob that `versions` named

    def versions(self, prefixes: Sequence[str], commits: int) -> list[Version]:
        """Returns the last `commits` versions of the files under these paths, newest first."""
        clean = [self._files.relative(prefix) for prefix in prefixes]
        rows = self._database.rows(
            "SELECT v.path, v.version, v.at FROM file_version v WHERE v.ws = %s AND v.size IS NOT NULL AND EXISTS "
            "(SELECT 1 FROM unnest(%s::text[]) AS p (prefix) WHERE v.path = p.prefix OR starts_with(v.path, "
            "p.prefix || '/')) ORDER BY v.at DESC, v.path, v.version DESC LIMIT %s",
            clean,
            commits,
        )
        found = []
        for path, number, at in rows:
            blob = object_id(self._files.content_of(path, number), _LIKE_GIT)
            self._known[blob] = (path, number)
            found.append(Version(path, f"v{number}", at.astimezone(UTC), f"version {number}", blob))
        return found

    def blob(self, name: str) -> bytes:
        """Returns the bytes of a blob that `versions` named. Raises NotFound."""
        if name not in self._known:
            raise NotFound(f"no version has the blob {name!r}")
        return self._files.content_of(*self._known[name])

    def show(self, path: str, at: str) -> str:
        """Returns a file's text as of a version (`v12`) or a moment. Raises NotFound."""
        named = _VERSION.fullmatch(at)
        until = int(named[1]) if named else moment(at, self.clock())
        if until is None:
            raise NotFound(f"{at!r} is neither a version such as v12 nor a moment such as 2026-01-31")
        found = self._files.last_version(path, until)
        if found is None or (named and found != until):
            kept = "" if has_history(path) else "; earlier versions of conversations and of `.local/` are not kept"
            raise NotFound(f"{path} has no version {at!r}{kept}")
        return self._files.content_of(path, found).decode("utf-8", "replace")

    def commit_files(self, paths: Iterable[str], message: str, *, redacted: bool = False) -> Committed:
        """Does nothing: each write has stored its version."""
        return Committed(None, tuple(paths))

    # There is no git repository. Callers that also work without one call these functions first.

    def available(self) -> bool:
        return False

    def version(self) -> str | None:
        return None

    def trees(self) -> Trees | None:
        return None

    past = tags = merging = remote = worktrees = hooks = health = _NotOffered()
    init = check_free = committed_texts = commit_at = tree_now = in_folder = _NotOffered()
    head = branch = is_shallow = uncommitted = differing = changes = ignored = unmerged = _NotOffered()

    def export(self, folder: Path, remote: str | None, paths: Sequence[str]) -> str | None:
        """Updates the repository `folder/WORKSPACE.git`, mirrors it to `remote`, and returns its last commit.
        `{workspace}` in `remote` is replaced by the workspace's name."""
        from mcp_server.storage.postgres.whole import export

        name = self._database.address.workspace
        mirror = remote.replace("{workspace}", name) if remote else None
        return export(self._database, folder.expanduser() / f"{name}.git", mirror, paths)
