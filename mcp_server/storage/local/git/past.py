"""The past of the repository: when a text was added or removed, who wrote a line, and what changed between commits."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from mcp_server.errors import Invalid, NotFound, Unavailable
from mcp_server.storage.history_values import BlamedLine, Commit, Occurrence, Version
from mcp_server.storage.local.git.objects import Objects
from mcp_server.storage.local.git.repository import NEEDS_GIT, Failed, Repository, clean_path, moment_of, version

FORMAT = "--format=%x01%H%x02%ct%x02%s"
"""What `parse` expects of each commit, besides `-z --raw --no-abbrev --no-renames`."""


def parse(log: bytes) -> Iterator[Version]:
    """Yields every file version in a log, in its order. Skips deletions."""
    parts = iter(log.split(b"\0"))
    commit, at, subject = "", datetime.fromtimestamp(0, UTC), ""
    for part in parts:
        if part.startswith(b"\x01"):
            commit, seconds, subject = part[1:].decode("utf-8", "replace").split("\x02", 2)
            at = moment_of(seconds)
        elif part.lstrip(b"\n").startswith(b":"):
            _, mode, _, blob, kind = part.decode("ascii").split(" ")
            path = os.fsdecode(next(parts))
            if kind != "D" and mode.startswith("100"):
                yield Version(path, commit, at, subject, blob)


_REVISION = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_./@{}^~+-]*")
_MARK = secrets.token_hex(8)
"""Begins every commit, and every part of one: names and messages are anybody's and may hold anything else."""
_COMMIT = "%x01" + _MARK + f"%x02{_MARK}".join(("%H", "%ct", "%an", "%B", ""))
_BEGINS, _PART, _PARTS = f"\x01{_MARK}".encode(), f"\x02{_MARK}".encode(), 5


class Past:
    """Questions about the history of one repository."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def resolve(self, revision: str) -> str:
        """Returns the commit of an id, a tag or a branch. Raises NotFound with the valid forms."""
        self._need_history()
        try:
            if not _REVISION.fullmatch(revision):
                raise Failed("rev-parse", "it is no revision")
            return self._repository.text("rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}")
        except Failed as error:
            raise NotFound(
                f"no commit, tag or date {revision!r}; give a date as YYYY-MM-DD or a commit's id"
            ) from error

    def at(self, moment: datetime) -> str | None:
        """Returns the last commit of the branch that is not later than a moment; None if all are later."""
        self._need_history()
        return self._repository.text("rev-list", "-1", f"--before={moment.isoformat()}", "HEAD") or None

    def commit(self, revision: str) -> Commit:
        """Returns a commit. Raises NotFound."""
        oid = self.resolve(revision)
        return next(_commits(self._repository.run("log", "-1", f"--format={_COMMIT}", oid)))

    def occurrences(self, text: str, paths: Sequence[str], limit: int) -> list[Occurrence]:
        """Returns the newest `limit` commits that changed how often these files contain a text (in any case), oldest
        first."""
        if not text.strip() or "\0" in text:
            raise Invalid("give some words to look for, as they stand in the memory")
        if not self._has_history():
            return []
        wanted = ("-i", f"-S{text}", "-z", "--raw", "--no-abbrev", "--no-renames", f"--max-count={limit}")
        log = self._repository.run("log", *wanted, f"--format={_COMMIT}", "--", *map(clean_path, paths))
        found: list[Occurrence] = []
        needle = text.lower()
        with Objects(self._repository.root) as objects:
            for commit, (old, new, path) in _raw(log):
                before, after = (self._text(objects, path, blob) for blob in (old, new))
                was, now = before.lower().count(needle), after.lower().count(needle)
                if was != now:
                    said = tuple(line for line in (after if now else before).split("\n") if needle in line.lower())
                    found.append(Occurrence(commit, path, was, now, said))
        return sorted(found, key=lambda one: one.commit.at)

    def blame(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[BlamedLine]:
        """Returns the commit of each of these lines (counted from 1, ends included) of the current file. Raises
        NotFound for a file that git does not know, or missing lines."""
        path = clean_path(path)
        if not self._has_history():
            raise NotFound(f"nothing was committed yet, so {path} has no history")
        where = [f"-L{first},{last}" for first, last in ranges]
        try:
            said = self._repository.run("blame", "--porcelain", *where, "--", path)
        except Failed as error:
            raise NotFound(
                f"{path} has no history with these lines ({error.said}); `read` shows it as it is"
            ) from error
        blamed = list(_blamed(said))
        commits = self.commits(sorted({oid for _, oid, _ in blamed if oid.strip("0")}))
        return [BlamedLine(number, text, commits.get(oid)) for number, oid, text in blamed]

    def commits(self, oids: Sequence[str]) -> dict[str, Commit]:
        """Returns these commits by id."""
        if not oids:
            return {}
        given = "".join(f"{oid}\n" for oid in oids).encode()
        said = self._repository.run("log", "--no-walk=unsorted", "--stdin", f"--format={_COMMIT}", stdin=given)
        return {commit.id: commit for commit in _commits(said)}

    def reverts(self, limit: int) -> list[tuple[Commit, str]]:
        """Returns the newest reverts of this branch, each with the id of the reverted commit, newest first."""
        if not self._has_history():
            return []
        wanted = ("--fixed-strings", "--grep=This reverts commit ", f"--max-count={limit}", f"--format={_COMMIT}")
        return [(one, one.reverts) for one in _commits(self._repository.run("log", *wanted)) if one.reverts]

    def between(self, old: str | None, new: str, paths: Sequence[str]) -> str:
        """Returns the diff between two commits or trees under these paths; `old` None is the empty tree."""
        named = [] if not paths else ["--", *map(clean_path, paths)]
        wanted = ("-r", "-p", "--no-color", "--no-ext-diff", "--no-renames", "--textconv", "--unified=1")
        return self._repository.text("diff-tree", *wanted, old or self.empty_tree(), new, *named)

    def counts(self, old: str | None, new: str, paths: Sequence[str]) -> list[tuple[str, int, int]]:
        """Returns path, number of added and of removed lines of each changed file; -1 for a binary file."""
        named = [] if not paths else ["--", *map(clean_path, paths)]
        said = self._repository.run(
            "diff-tree", "-r", "-z", "--numstat", "--no-renames", old or self.empty_tree(), new, *named
        )
        found: list[tuple[str, int, int]] = []
        for line in filter(None, said.split(b"\0")):
            came, went, path = line.split(b"\t", 2)
            found.append((os.fsdecode(path), _number(came), _number(went)))
        return found

    def beginning(self, subject: str) -> str | None:
        """Returns the first commit if it has this subject; else None."""
        first = self._repository.text("rev-list", "--max-parents=0", "HEAD").split("\n")[-1]
        return first if self.commit(first).subject == subject else None

    def parents(self, commit: str) -> list[str]:
        """Returns the ids of a commit's parents."""
        return self._repository.text("rev-list", "-1", "--parents", commit).split()[1:]

    def empty_tree(self) -> str:
        """Returns the id of the empty tree."""
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
        return self._repository.exists() and self._repository.head() is not None

    def _need_history(self) -> None:
        if not self._has_history():
            raise NotFound("nothing was committed yet; there is only the present (leave out `at`)")


def _commits(said: bytes) -> Iterator[Commit]:
    for part in said.split(_BEGINS)[1:]:
        yield _commit(part.split(_PART, _PARTS - 1))


def _commit(fields: Sequence[bytes]) -> Commit:
    oid, seconds, author, message = (field.decode("utf-8", "replace") for field in fields[:4])
    return Commit(oid, moment_of(seconds), author, message.strip("\n"))


def _raw(said: bytes) -> Iterator[tuple[Commit, tuple[str, str, str]]]:
    """Yields each changed file of each commit: commit, then old blob, new blob and path."""
    for part in said.split(_BEGINS)[1:]:
        fields = part.split(_PART, _PARTS - 1)
        commit = _commit(fields)
        entries = iter(fields[4].split(b"\0"))
        for entry in entries:
            if entry.lstrip(b"\n").startswith(b":"):
                _, _, old, new, _ = entry.decode("ascii").split(" ")
                yield commit, (old, new, os.fsdecode(next(entries)))


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
