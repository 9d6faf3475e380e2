"""Commits that leave the user's work alone.

A commit is built in a private index (`GIT_INDEX_FILE`), made by `commit-tree` and put in place by `update-ref` with
the old value, so neither the work tree nor what the user has staged is touched, and two writers cannot lose each
other's commit. Afterwards those of our paths that stood in the user's index as in the old HEAD are brought up to
the new one, or they would look as if the user had staged their reversal. What is to be brought up is written down
first, so that a crash in between is mended by the next commit.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcp_server.errors import Invalid, Unavailable
from mcp_server.store.git_repository import Failed, Repository, nul

OUR_NAME, OUR_EMAIL = "context-manager", "context-manager@localhost"
_TRIES = 8
_STALE_LOCK_SECONDS = 600
_PENDING = "context-manager-index.json"


class Committer:
    """Writes commits into one repository, under `locks.git()`."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def commit(self, wanted: Sequence[str], message: str, author: str | None) -> str | None:
        """Commits these files as they are now; returns the commit's id, None if nothing changed. Raises Unavailable."""
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

    # ------------------------------------------------------------ one commit

    def _try_commit(self, wanted: Sequence[str], message: str, author: str | None) -> tuple[bool, str | None]:
        """(True, commit or None) or, if HEAD moved meanwhile or is locked, (False, None)."""
        old = self._repository.head()
        before = self._repository.entries_of(old, wanted) if old else {}
        staged = self._repository.staged(wanted)
        paths = [path for path in wanted if staged.get(path, "") == before.get(path, "")]
        if not paths:
            return True, None
        # A private index beside the real one: hidden from the user, on the same file system as the objects.
        index = self._repository.folder() / f"context-manager-{secrets.token_hex(8)}.index"
        try:
            if old:
                self._repository.run("read-tree", old, index=index)
            self._repository.run("update-index", "--add", "--remove", "-z", "--stdin", index=index, stdin=nul(paths))
            tree = self._repository.text("write-tree", index=index)
        finally:
            for leftover in (index, index.with_name(index.name + ".lock")):
                leftover.unlink(missing_ok=True)
        if tree == (
            self._repository.text("rev-parse", f"{old}^{{tree}}") if old else self._repository.text("mktree", stdin=b"")
        ):
            return True, None
        parents = ("-p", old) if old else ()
        commit = self._repository.text(
            "commit-tree", tree, *parents, stdin=message.encode("utf-8", "replace"), who=self._identity(author)
        )
        self._note_pending({path: before.get(path, "") for path in paths})
        try:
            subject = message.split("\n", 1)[0]
            self._repository.run("update-ref", "-m", f"commit: {subject}", "HEAD", commit, old or "0" * len(commit))
        except Failed:
            self._pending_file().unlink(missing_ok=True)
            if self._repository.head() == old and not self._locked():
                raise
            return False, None
        self._finish_pending()
        return True, commit

    def _identity(self, author: str | None) -> dict[str, str]:
        """Names for the commit where git has none of its own, or another author is asked for."""
        names: dict[str, str] = {}
        try:
            self._repository.run("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
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
        return self._repository.folder() / _PENDING

    def _note_pending(self, old_entries: Mapping[str, str]) -> None:
        fresh = self._pending_file().with_suffix(".tmp")
        fresh.write_text(json.dumps(old_entries), "utf-8")
        fresh.replace(self._pending_file())

    def _finish_pending(self) -> None:
        """Brings paths of the last commit up to HEAD in the user's index, unless something else was staged since."""
        try:
            pending = json.loads(self._pending_file().read_text("utf-8"))
        except FileNotFoundError:
            return
        except ValueError:  # written by a machine that lost power; the index then shows what it shows
            pending = {}
        head = self._repository.head()
        paths = sorted(pending)
        if head and paths:
            now, staged = self._repository.entries_of(head, paths), self._repository.staged(paths)
            lines = [
                f"{now.get(path, '0 ' + '0' * len(head))}\t{path}"
                for path in paths
                if staged.get(path, "") == pending[path] != now.get(path, "")
            ]
            if lines and not self._update_index(nul(lines)):
                return  # somebody holds the index; it stays written down for the next commit
        self._pending_file().unlink(missing_ok=True)

    def _update_index(self, info: bytes) -> bool:
        for attempt in range(_TRIES):
            try:
                self._repository.run("update-index", "-z", "--index-info", stdin=info)
            except Failed:
                if not (self._repository.folder() / "index.lock").exists():
                    raise
                self._remove_stale_locks()
                time.sleep(0.01 * 2**attempt)
            else:
                return True
        return False

    def _locks(self) -> list[Path]:
        folder = self._repository.folder()
        names = [folder / "index.lock", folder / "HEAD.lock"]
        with contextlib.suppress(Failed):
            names.append(folder / (self._repository.text("symbolic-ref", "--quiet", "HEAD") + ".lock"))
        return [name for name in names if name.exists()]

    def _locked(self) -> bool:
        return bool(self._locks())

    def _remove_stale_locks(self) -> None:
        """A git that was killed leaves its lock behind for ever; no command here takes ten minutes."""
        for lock in self._locks():
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > _STALE_LOCK_SECONDS:
                    lock.unlink()
