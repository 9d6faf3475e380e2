"""Commits that do not touch the user's work, and queries on past commits.

A commit is built in a private index (`GIT_INDEX_FILE`) and created by `commit-tree`; `update-ref` then moves HEAD only
if it still has the old value. So neither the work tree nor the user's staged changes are touched, and two writers
cannot lose each other's commit. Afterwards, committed paths that were equal in the user's index and the old HEAD are
updated in the index; otherwise git would show their reversal as staged. The update is recorded in a file first, so that
the next commit can repeat it after a crash.

Files are checked in the private index, after git's filters. A file with a secret, with conflict markers or over its
limit is removed from the index and reported, and the rest is committed. Nothing is committed in the middle of a merge
or rebase, while a commit by hand is in progress, or while HEAD is on no branch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.history.commit_rules import FORGET, refusal
from mcp_server.storage.git_process import NEEDS_GIT, GitFailed, moment_of, version
from mcp_server.storage.history_values import Commit, Committed
from mcp_server.storage.local.git.repository import Objects, Repository, clean_path, diff_in, nul, objects_of

_OURS = {
    "GIT_AUTHOR_NAME": "context-manager",
    "GIT_AUTHOR_EMAIL": "context-manager@localhost",
    "GIT_COMMITTER_NAME": "context-manager",
    "GIT_COMMITTER_EMAIL": "context-manager@localhost",
}
_TRIES = 8
_STALE_SECONDS = 600
_PENDING = "context-manager-index.json"
_GENERAL = ("No space left", "Read-only file system", "insufficient permission", "unable to write", "unable to create")
"""Parts of git's errors that concern all files, not a single one."""
_FORGETTING = re.compile(rf"^{FORGET} \S", re.MULTILINE)


class Committer:
    """Writes commits into one repository. Call it under `locks.git()`. `clock` gives their dates."""

    def __init__(self, repository: Repository, clock: Callable[[], datetime]) -> None:
        self._repository = repository
        self._clock = clock

    def commit(self, wanted: Sequence[str], message: str, *, redacted: bool = False) -> Committed:
        """Commits the current content of these files. If `redacted`, does not search them for secrets. Raises
        Unavailable."""
        forgetting = _FORGETTING.search(message) is not None
        self.check_free(detached=forgetting)  # a request to forget concerns every version
        try:
            _remove_stale(self._repository.folder().glob("context-manager-*.index*"))
            self._finish_pending()
            for attempt in range(_TRIES):
                done = self._try_commit(wanted, message, forgetting=forgetting, redacted=redacted)
                if done is not None:
                    return done
                _remove_stale(self._locks())
                time.sleep(0.01 * 2**attempt)
        except GitFailed as error:
            raise Unavailable(
                f"git could not commit: {error.said}; nothing is lost, the commit is tried again later"
            ) from error
        raise Unavailable(
            "git is busy: another program keeps changing the branch; nothing is lost, the commit is tried again later"
        )

    def check_free(self, *, detached: bool = False) -> None:
        """Raises Unavailable if git is in the middle of an operation or, without `detached`, HEAD is on no branch."""
        if not self._repository.exists():
            return
        busy = self._repository.busy()
        if busy is not None:
            raise Unavailable(
                f"git is in the middle of a {busy}; finish or abort it, then the waiting changes are committed"
            )
        if self._repository.head() is None and (problem := self._repository.head_problem()):
            raise Unavailable(f"{problem}; `context-manager doctor --repair` repairs what it can")
        if not detached and self._repository.branch() is None:
            raise Unavailable(
                "HEAD is on no branch (an old version is checked out); go back with `git switch main`, then the "
                "waiting changes are committed"
            )

    def put(self, tree: str, parents: Sequence[str], message: str) -> str:
        """Creates a commit object of this tree, which is on no branch yet, and returns its id."""
        named = [part for parent in parents for part in ("-p", parent)]
        said = self.signed("commit-tree", tree, *named, stdin=message.encode("utf-8", "replace"))
        return said.decode().strip()

    def advance(self, old: str | None, commit: str, changed: Mapping[str, tuple[str, str]], what: str) -> bool:
        """Moves HEAD from `old` to `commit` and updates the `changed` paths (path → both entries) in the user's index.

        Returns False if HEAD moved meanwhile or is locked.
        """
        pending = self._pending_file().with_suffix(".tmp")
        pending.write_text(json.dumps({path: entries[0] for path, entries in changed.items()}), "utf-8")
        pending.replace(self._pending_file())
        try:
            self._repository.run("update-ref", "-m", what, "HEAD", commit, old or "0" * len(commit))
        except GitFailed:
            self._pending_file().unlink(missing_ok=True)
            if self._repository.head() == old and not self._locks():
                raise
            return False
        self._finish_pending()
        return True

    def tree_of(self, paths: Sequence[str]) -> str:
        """Returns the id of a tree: the last commit with the current content of these files."""
        with self._repository.index_of(self._repository.head()) as index:
            self._take_in(paths, index)
            return self._repository.text("write-tree", index=index)

    # ------------------------------------------------------------ one commit

    def _try_commit(self, wanted: Sequence[str], message: str, **rules: bool) -> Committed | None:
        """Tries to commit once. Returns None if HEAD moved meanwhile or is locked. `rules` are those of `refusal`."""
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
        with self._repository.index_of(old) as index:
            left_out = self._take_in(paths, index)
            now = self._repository.staged(paths, index)
            left_out |= self._refused(paths, before, now, **rules)
            self._repository.set_entries(index, {path: before.get(path, "") for path in left_out})
            tree = self._repository.text("write-tree", index=index)
        changed = {path: (before.get(path, ""), now.get(path, "")) for path in paths if path not in left_out}
        changed = {path: entries for path, entries in changed.items() if entries[0] != entries[1]}
        left_out |= ignored
        if not changed:
            return Committed(None, left_out=left_out, waiting=waiting)
        commit = self.put(tree, [old] if old else [], message)
        subject = message.split("\n", 1)[0]
        self.check_free(detached=True)  # if the user has begun a commit meanwhile, moving HEAD would make it fail
        if not self.advance(old, commit, changed, f"commit: {subject}"):
            return None
        return Committed(commit, tuple(changed), left_out, waiting)

    def _take_in(self, paths: Sequence[str], index: Path) -> dict[str, str]:
        """Adds these files to a private index. Returns those that git could not add, each with the reason."""
        try:
            self._repository.run("update-index", "--add", "--remove", "-z", "--stdin", index=index, stdin=nul(paths))
        except GitFailed as error:
            if any(said in error.said for said in _GENERAL):
                raise
            if len(paths) == 1:  # an unreadable file, or a missing filter
                return {paths[0]: f"git could not add it: {error.said}"}
            half = len(paths) // 2
            return self._take_in(paths[:half], index) | self._take_in(paths[half:], index)
        return {}

    def _ignored(self, paths: Sequence[str]) -> dict[str, str]:
        """Returns new files that git ignores, each with the place of the rule. A broken .gitignore ignores nothing."""
        try:
            found = self._repository.ignored(paths)
        except GitFailed:
            return {}
        return {path: f"git ignores it ({where})" for path, where in found.items()}

    def _refused(
        self, paths: Sequence[str], before: Mapping[str, str], now: Mapping[str, str], **rules: bool
    ) -> dict[str, str]:
        """Returns the paths whose content `now` must not be committed, each with the reason."""
        changed = [path for path in paths if now.get(path, "") != before.get(path, "")]
        refused: dict[str, str] = {}
        with objects_of(self._repository.root) as objects:
            for path in changed:
                after, earlier = (_text_of(objects, entries.get(path, "")) for entries in (now, before))
                reason = refusal(path, after, earlier, **rules)
                if reason is not None:
                    refused[path] = reason
        return refused

    def signed(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Runs a git command with a date and a committer: the user, or this program if git knows no user."""
        now = self._clock().strftime("%Y-%m-%dT%H:%M:%S%z")
        who = {"GIT_AUTHOR_DATE": now, "GIT_COMMITTER_DATE": now}
        try:
            return self._repository.run("-c", "user.useConfigOnly=true", *arguments, stdin=stdin, who=who)
        except GitFailed:  # git knows no user; for another error the second try fails, too
            return self._repository.run(*arguments, stdin=stdin, who=_OURS | who)

    # ------------------------------------------------------------ the user's index

    def _pending_file(self) -> Path:
        return self._repository.folder() / _PENDING

    def _finish_pending(self) -> None:
        """Updates the recorded paths to HEAD in the user's index, unless the user has staged them since."""
        try:
            pending = json.loads(self._pending_file().read_text("utf-8"))
        except FileNotFoundError:
            return
        except ValueError:  # the machine lost power while the file was written
            pending = {}
        head = self._repository.head()
        paths = sorted(pending)
        if head and paths:
            now = self._repository.entries_of(head, paths)
            staged = self._repository.staged(paths)
            lines = [
                f"{now.get(path) or '0 ' + '0' * len(head)}\t{path}"
                for path in paths
                if staged.get(path, "") == pending[path] != now.get(path, "")
            ]
            if lines and not self._update_index(nul(lines)):
                return  # the index is locked; the next commit tries again
            with contextlib.suppress(GitFailed):  # without this refresh, git first shows them as changed
                self._repository.run("update-index", "-q", "--refresh")
        self._pending_file().unlink(missing_ok=True)

    def _update_index(self, info: bytes) -> bool:
        for attempt in range(_TRIES):
            try:
                self._repository.run("update-index", "-z", "--index-info", stdin=info)
            except GitFailed:
                if not (self._repository.folder() / "index.lock").exists():
                    raise
                _remove_stale(self._locks())
                time.sleep(0.01 * 2**attempt)
            else:
                return True
        return False

    def _locks(self) -> list[Path]:
        folder = self._repository.folder()
        names = [folder / "index.lock", folder / "HEAD.lock"]
        with contextlib.suppress(GitFailed):
            names.append(folder / (self._repository.text("symbolic-ref", "--quiet", "HEAD") + ".lock"))
        return [name for name in names if name.exists()]


def _remove_stale(files: Iterable[Path]) -> None:
    """Deletes locks and private indexes older than ten minutes: a killed git left them, because no command takes that
    long."""
    for file in files:
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > _STALE_SECONDS:
                file.unlink()


def _text_of(objects: Objects, entry: str) -> str | None:
    """Returns a file's text by its `mode blob`; None without an entry, "" for a binary file or a link."""
    if not entry:
        return None
    mode, _, blob = entry.partition(" ")
    data = objects.read(blob)[1] if mode.startswith("100") else b""
    return "" if b"\0" in data else data.decode("utf-8", "replace")


_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_./@{}^~+-]*")
_MARK = secrets.token_hex(8)
"""Random text that begins every commit and field in git's output, because names and messages may contain any fixed
text."""
FORMAT = "%x01" + _MARK + f"%x02{_MARK}".join(("%H", "%ct", "%an", "%B", ""))
_BEGINS, _PART, _PARTS = f"\x01{_MARK}".encode(), f"\x02{_MARK}".encode(), 5


class Past:
    """Queries on the history of one repository."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def resolve(self, revision: str) -> str:
        """Returns the commit of an id, a tag or a branch. Raises NotFound with the valid forms."""
        self._need_history()
        try:
            if not _REVISION.fullmatch(revision):
                raise GitFailed("rev-parse", "it is no revision")
            return self._repository.text("rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}")
        except GitFailed as error:
            raise NotFound(
                f"no commit, tag or date {revision!r}; give a date as YYYY-MM-DD or a commit's id"
            ) from error

    def at(self, moment: datetime) -> str | None:
        """Returns the last commit of the branch that is not later than a moment; None if all are later."""
        self._need_history()
        return self._repository.text("rev-list", "-1", f"--before={moment.isoformat()}", "HEAD") or None

    def commit(self, revision: str) -> Commit:
        oid = self.resolve(revision)
        return next(_commits(self._repository.run("log", "-1", f"--format={FORMAT}", oid)))

    def occurrences(self, text: str, paths: Sequence[str], limit: int) -> list[tuple[Commit, str, str, str]]:
        """Returns the newest `limit` commits that changed how often a file contains a text (ignoring case), oldest
        first. Each entry has commit, path, and the file's text before and after."""
        if not text.strip() or "\0" in text:
            raise Invalid("give some words to look for, as they are written in the memory")
        if not self._has_history():
            return []
        wanted = ("-i", f"-S{text}", "-z", "--raw", "--no-abbrev", "--no-renames", f"--max-count={limit}")
        log = self._repository.run("log", *wanted, f"--format={FORMAT}", "--", *map(clean_path, paths))
        with objects_of(self._repository.root) as objects:
            found = [
                (commit, path, self._text(objects, path, old), self._text(objects, path, new))
                for commit, (_, old, new, path) in raw_changes(log)
            ]
        return sorted(found, key=lambda one: one[0].at)

    def blame(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, str, Commit | None]]:
        """Returns number, text and commit of the lines in these ranges (counted from 1, ends included) of the current
        file. The commit of a line that is not committed yet is None. Raises NotFound if git does not know the file, or
        the file lacks these lines."""
        path = clean_path(path)
        if not self._has_history():
            raise NotFound(f"nothing was committed yet, so {path} has no history")
        where = [f"-L{first},{last}" for first, last in ranges]
        try:
            said = self._repository.run("blame", "--porcelain", *where, "--", path)
        except GitFailed as error:
            raise NotFound(
                f"{path} has no history with these lines ({error.said}); `read` shows its current text"
            ) from error
        blamed = list(_blamed(said))
        commits = self.commits(sorted({oid for _, oid, _ in blamed if oid.strip("0")}))
        return [(number, text, commits.get(oid)) for number, oid, text in blamed]

    def commits(self, oids: Sequence[str]) -> dict[str, Commit]:
        if not oids:
            return {}
        given = "".join(f"{oid}\n" for oid in oids).encode()
        said = self._repository.run("log", "--no-walk=unsorted", "--stdin", f"--format={FORMAT}", stdin=given)
        return {commit.id: commit for commit in _commits(said)}

    def reverts(self, limit: int) -> list[tuple[Commit, str]]:
        """Returns the newest reverts of this branch, each with the id of the reverted commit, newest first."""
        if not self._has_history():
            return []
        wanted = ("--fixed-strings", "--grep=This reverts commit ", f"--max-count={limit}", f"--format={FORMAT}")
        return [(one, one.reverts) for one in _commits(self._repository.run("log", *wanted)) if one.reverts]

    def between(self, old: str | None, new: str, paths: Sequence[str]) -> str:
        """Returns the diff between two commits or trees under these paths; `old` None is the empty tree."""
        wanted = ("-r", "-p", "--no-color", "--no-ext-diff", "--no-renames", "--textconv", "--unified=1")
        return self._repository.text("diff-tree", *wanted, old or self.empty_tree(), new, "--", *map(clean_path, paths))

    def counts(self, old: str | None, new: str, paths: Sequence[str]) -> list[tuple[str, int, int]]:
        """Returns path, number of added and of removed lines of each changed file; -1 for a binary file."""
        wanted = ("-r", "-z", "--numstat", "--no-renames", old or self.empty_tree(), new)
        said = self._repository.run("diff-tree", *wanted, "--", *map(clean_path, paths))
        found: list[tuple[str, int, int]] = []
        for line in filter(None, said.split(b"\0")):
            came, went, path = line.split(b"\t", 2)
            found.append((os.fsdecode(path), _number(came), _number(went)))
        return found

    def beginning(self, subject: str) -> str | None:
        """Returns the id of the first commit if it has this subject; else None."""
        first = self._repository.text("rev-list", "--max-parents=0", "HEAD").split("\n")[-1]
        return first if self.commit(first).subject == subject else None

    def parents(self, commit: str) -> list[str]:
        return self._repository.text("rev-list", "-1", "--parents", commit).split()[1:]

    def empty_tree(self) -> str:
        return self._repository.text("mktree", stdin=b"")

    # ------------------------------------------------------------ running

    def _text(self, objects: Objects, path: str, blob: str) -> str:
        if not blob.strip("0"):
            return ""
        data = objects.read(blob)[1]
        if self._repository.is_closed(data):
            data = self._repository.opened(path, blob)
        return data.decode("utf-8", "replace")

    def _has_history(self) -> bool:
        if version() is None:
            raise Unavailable(NEEDS_GIT)
        return self._repository.head() is not None

    def _need_history(self) -> None:
        if not self._has_history():
            raise NotFound("nothing was committed yet, so there are no earlier versions; leave out `at`")


def _commits(said: bytes) -> Iterator[Commit]:
    for part in said.split(_BEGINS)[1:]:
        yield _commit(part.split(_PART, _PARTS - 1))


def _commit(fields: Sequence[bytes]) -> Commit:
    oid, seconds, author, message = (field.decode("utf-8", "replace") for field in fields[:4])
    return Commit(oid, moment_of(seconds), author, message.strip("\n"))


def raw_changes(said: bytes) -> Iterator[tuple[Commit, tuple[str, str, str, str]]]:
    """Yields each changed file of each commit: commit, then new mode, old blob, new blob and path."""
    for part in said.split(_BEGINS)[1:]:
        fields = part.split(_PART, _PARTS - 1)
        commit = _commit(fields)
        for (_, mode, old, new, _), (path,) in diff_in(fields[4]):
            yield commit, (mode, old, new, path)


def _number(count: bytes) -> int:
    return int(count) if count.isdigit() else -1


def _blamed(said: bytes) -> Iterator[tuple[int, str, str]]:
    """Yields line number, commit and text of each line."""
    oid, number = "", 0
    for line in said.split(b"\n"):
        if line.startswith(b"\t"):
            yield number, oid, line[1:].decode("utf-8", "replace").rstrip("\r")
        elif head := re.match(rb"([0-9a-f]{40,64}) \d+ (\d+)(?: \d+)?$", line):
            oid, number = head[1].decode(), int(head[2])
