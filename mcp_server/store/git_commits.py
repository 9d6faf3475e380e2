"""Commits that leave the user's work alone.

A commit is built in a private index (`GIT_INDEX_FILE`), made by `commit-tree` and put in place by `update-ref` with
the old value, so neither the work tree nor what the user has staged is touched, and two writers cannot lose each
other's commit. Afterwards those of our paths that stood in the user's index as in the old HEAD are brought up to
the new one, or they would look as if the user had staged their reversal. What is to be brought up is written down
first, so that a crash in between is mended by the next commit.

What goes in is looked at as it stands in the private index, after git's own filters: a file with a secret, with
conflict markers or over its cap is taken out of it again and named, and the rest is committed. In the middle of a merge
or a rebase, while a commit by hand is open, and while HEAD is on no branch, nothing is committed: it waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from mcp_server.core.history.admission import FORGET, Admission
from mcp_server.errors import Invalid, Unavailable
from mcp_server.store.git_repository import Failed, Repository, nul
from mcp_server.store.history.objects import Objects

_OURS = {
    "GIT_AUTHOR_NAME": "context-manager",
    "GIT_AUTHOR_EMAIL": "context-manager@localhost",
    "GIT_COMMITTER_NAME": "context-manager",
    "GIT_COMMITTER_EMAIL": "context-manager@localhost",
}
_TRIES = 8
_STALE_LOCK_SECONDS = 600
_PENDING = "context-manager-index.json"
_NO_WAY = ("No space left", "Read-only file system", "insufficient permission", "unable to write", "unable to create")
"""What git says when no file could be taken in, whichever it is."""
_FORGETTING = re.compile(rf"^{FORGET} \S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did: its id (None: nothing changed), the paths that went in, and those that did not, with why."""

    commit: str | None
    paths: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    """Paths with changes that the user has staged: they wait for their owner."""


class Committer:
    """Writes commits into one repository, under `locks.git()`. `clock` dates them; without one git does."""

    def __init__(self, repository: Repository, clock: Callable[[], datetime] | None = None) -> None:
        self._repository = repository
        self._clock = clock

    def commit(self, wanted: Sequence[str], message: str, author: str | None, *, redacted: bool = False) -> Committed:
        """Commits these files as they are now; `redacted` ones are not searched for secrets again. Raises
        Unavailable."""
        forgetting = _FORGETTING.search(message) is not None
        self.check_free(detached=forgetting)  # what is forgotten must be so in every version
        try:
            self._remove_leftovers()
            self._finish_pending()
            for attempt in range(_TRIES):
                done = self._try_commit(wanted, message, author, Admission(forgetting, redacted))
                if done is not None:
                    return done
                self._remove_stale_locks()
                time.sleep(0.01 * 2**attempt)
        except Failed as error:
            raise Unavailable(f"git could not commit: {error}; nothing is lost, it is tried again later") from error
        raise Unavailable(
            "git is busy: another program keeps changing the branch; nothing is lost, it is tried again later"
        )

    def check_free(self, *, detached: bool = False) -> None:
        """Raises Unavailable where a commit of ours would get into somebody's merge or between their commit and its
        parent, or, but for `detached`, onto no branch."""
        if not self._repository.exists():
            return
        busy = self._repository.busy()
        if busy is not None:
            raise Unavailable(f"git is in the middle of a {busy}; finish or abort it, what waits is committed then")
        if self._repository.head() is None and (problem := self._repository.head_problem()):
            raise Unavailable(f"{problem}; `context-manager doctor --repair` mends what can be mended")
        if not detached and self._repository.branch() is None:
            raise Unavailable(
                "HEAD is on no branch (an old version is checked out); `git switch main` goes back, what waits is "
                "committed then"
            )

    def put(self, tree: str, parents: Sequence[str], message: str, author: str | None = None) -> str:
        """A commit of this tree as an object, on no branch yet."""
        named = [part for parent in parents for part in ("-p", parent)]
        said = self.signed("commit-tree", tree, *named, stdin=message.encode("utf-8", "replace"), author=author)
        return said.decode().strip()

    def advance(self, old: str | None, commit: str, changed: Mapping[str, tuple[str, str]], what: str) -> bool:
        """Moves HEAD from `old` to `commit` and brings the `changed` paths (with their entries in both) up to it in
        the user's index; False if HEAD moved meanwhile or is locked."""
        self._note_pending({path: entries[0] for path, entries in changed.items()})
        try:
            self._repository.run("update-ref", "-m", what, "HEAD", commit, old or "0" * len(commit))
        except Failed:
            self._pending_file().unlink(missing_ok=True)
            if self._repository.head() == old and not self._locked():
                raise
            return False
        self._finish_pending(commit, {path: entries[1] for path, entries in changed.items()})
        return True

    @contextmanager
    def index_of(self, commit: str | None) -> Iterator[Path]:
        """A private index that holds a commit: beside the real one, hidden from the user, on the same file system."""
        index = self._repository.folder() / f"context-manager-{secrets.token_hex(8)}.index"
        try:
            if commit:
                self._repository.run("read-tree", commit, index=index)
            yield index
        finally:
            for leftover in (index, index.with_name(index.name + ".lock")):
                leftover.unlink(missing_ok=True)

    def tree_of(self, paths: Sequence[str]) -> str:
        """The id of a tree: the last commit with these files as they are now."""
        with self.index_of(self._repository.head()) as index:
            self._take_in(paths, index)
            return self._repository.text("write-tree", index=index)

    # ------------------------------------------------------------ one commit

    def _try_commit(
        self, wanted: Sequence[str], message: str, author: str | None, admission: Admission
    ) -> Committed | None:
        """What was done; None if HEAD moved meanwhile or is locked."""
        old = self._repository.head()
        before = self._repository.entries_of(old, wanted) if old else {}
        staged = self._repository.staged(wanted)
        paths = [path for path in wanted if staged.get(path, "") == before.get(path, "")]
        waiting = tuple(path for path in wanted if path not in set(paths))
        new = [path for path in paths if path not in before and os.path.lexists(self._repository.root / path)]
        ignored = self._ignored(new)
        paths = [path for path in paths if path not in ignored]
        if not paths:
            return Committed(None, left_out=ignored, waiting=waiting)
        with self.index_of(old) as index:
            left_out = self._take_in(paths, index)
            now = self._repository.staged(paths, index)
            left_out |= self._refused(paths, before, now, admission)
            restored = [f"{before[path]}\t{path}" for path in left_out if path in before]
            removed = [path for path in left_out if path not in before]
            if restored:
                self._repository.run("update-index", "-z", "--index-info", index=index, stdin=nul(restored))
            if removed:
                self._repository.run("update-index", "--force-remove", "-z", "--stdin", index=index, stdin=nul(removed))
            tree = self._repository.text("write-tree", index=index)
        changed = {path: (before.get(path, ""), now.get(path, "")) for path in paths if path not in left_out}
        changed = {path: entries for path, entries in changed.items() if entries[0] != entries[1]}
        left_out |= ignored
        if not changed:
            return Committed(None, left_out=left_out, waiting=waiting)
        commit = self.put(tree, [old] if old else [], message, author)
        subject = message.split("\n", 1)[0]
        self.check_free(detached=True)  # they may have opened a commit meanwhile, which would fail if HEAD moved now
        if not self.advance(old, commit, changed, f"commit: {subject}"):
            return None
        return Committed(commit, tuple(changed), left_out, waiting)

    def _take_in(self, paths: Sequence[str], index: Path) -> dict[str, str]:
        """Brings these files into a private index; returns those that git could not take in, and why."""
        try:
            self._repository.run("update-index", "--add", "--remove", "-z", "--stdin", index=index, stdin=nul(paths))
        except Failed as error:
            if any(said in str(error) for said in _NO_WAY):
                raise
            if len(paths) == 1:  # a file that may not be read, a filter that is not installed
                return {paths[0]: f"git could not take it in: {error}"}
            half = len(paths) // 2
            return self._take_in(paths[:half], index) | self._take_in(paths[half:], index)
        return {}

    def _ignored(self, paths: Sequence[str]) -> dict[str, str]:
        """New files that their owner keeps out of git, and where that is said. A broken .gitignore keeps nothing."""
        try:
            found = self._repository.ignored(paths)
        except Failed:
            return {}
        return {path: f"git ignores it ({where})" for path, where in found.items()}

    def _refused(
        self, paths: Sequence[str], before: Mapping[str, str], now: Mapping[str, str], admission: Admission
    ) -> dict[str, str]:
        """What of these paths may not go in as it is `now`, and why."""
        changed = [path for path in paths if now.get(path, "") != before.get(path, "")]
        refused: dict[str, str] = {}
        with Objects(self._repository.root) as objects:
            for path in changed:
                texts = [_text_of(objects, entries.get(path, "")) for entries in (now, before)]
                reason = admission.refusal(path, *texts)
                if reason is not None:
                    refused[path] = reason
        return refused

    def signed(self, *arguments: str, author: str | None = None, stdin: bytes | None = None) -> bytes:
        """What a git command says that names who committed and when: the user, or us where git knows no user. `author`
        is another one, as `Name <mail>`."""
        who: dict[str, str] = {}
        if self._clock is not None:
            now = self._clock().strftime("%Y-%m-%dT%H:%M:%S%z")
            who |= {"GIT_AUTHOR_DATE": now, "GIT_COMMITTER_DATE": now}
        if author:
            found = re.fullmatch(r"\s*([^<>\n]+?)\s*<([^<>\n]*)>\s*", author)
            if found is None:
                raise Invalid(f"author must be `Name <mail>`, not {author!r}")
            who["GIT_AUTHOR_NAME"], who["GIT_AUTHOR_EMAIL"] = found.groups()
        try:
            return self._repository.run("-c", "user.useConfigOnly=true", *arguments, stdin=stdin, who=who)
        except Failed:  # nobody has told git who they are, or the second try says what it is
            return self._repository.run(*arguments, stdin=stdin, who=_OURS | who)

    # ------------------------------------------------------------ the user's index

    def _pending_file(self) -> Path:
        return self._repository.folder() / _PENDING

    def _note_pending(self, old_entries: Mapping[str, str]) -> None:
        fresh = self._pending_file().with_suffix(".tmp")
        fresh.write_text(json.dumps(old_entries), "utf-8")
        fresh.replace(self._pending_file())

    def _finish_pending(self, commit: str | None = None, entries: Mapping[str, str] | None = None) -> None:
        """Brings paths of the last commit up to HEAD in the user's index, unless something else was staged since.
        `entries` are those of `commit`: git is not asked for them where HEAD is still there."""
        try:
            pending = json.loads(self._pending_file().read_text("utf-8"))
        except FileNotFoundError:
            return
        except ValueError:  # written by a machine that lost power; the index then shows what it shows
            pending = {}
        head = self._repository.head()
        paths = sorted(pending)
        if head and paths:
            now = entries if entries is not None and head == commit else self._repository.entries_of(head, paths)
            staged = self._repository.staged(paths)
            lines = [
                f"{now.get(path) or '0 ' + '0' * len(head)}\t{path}"
                for path in paths
                if staged.get(path, "") == pending[path] != now.get(path, "")
            ]
            if lines and not self._update_index(nul(lines)):
                return  # somebody holds the index; it stays written down for the next commit
            with contextlib.suppress(Failed):  # or git takes them for changed until it has looked at them once
                self._repository.run("update-index", "-q", "--refresh")
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

    def _remove_leftovers(self) -> None:
        """Private indexes of commands that were killed."""
        for index in self._repository.folder().glob("context-manager-*.index*"):
            with contextlib.suppress(OSError):
                if time.time() - index.stat().st_mtime > _STALE_LOCK_SECONDS:
                    index.unlink()

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


def _text_of(objects: Objects, entry: str) -> str | None:
    """The text of a file by its `mode blob`; None if there is none, empty for what is no text or no plain file."""
    if not entry:
        return None
    mode, _, blob = entry.partition(" ")
    data = objects.read(blob)[1] if mode.startswith("100") else b""
    return "" if b"\0" in data else data.decode("utf-8", "replace")
