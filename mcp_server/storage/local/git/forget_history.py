"""Removes forgotten text from git's history: rewrites every commit, tag, stash and reflog entry that contains it.

Objects with the text, and all objects that refer to them, are replaced by new ones in the same repository. Then every
ref moves in one transaction, index and reflogs are rewritten, and `gc` deletes the old objects. Before the refs move
nothing has changed; a run that is killed later can be repeated. Hooks and configuration stay. Methods are synchronous:
call them in a worker thread, under `locks.git()`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mcp_server.errors import Refused, Unavailable
from mcp_server.forgetting.cleaning import finds
from mcp_server.storage.local.git.objects import Objects, command, environment, put, tree_entries
from mcp_server.storage.local.git.repository import NEEDS_GIT, moment_of
from mcp_server.storage.local.git.rewriter import Rewriter
from mcp_server.text.forgotten import MARK, Forgotten

_BUSY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply")
_MESSAGES = ("COMMIT_EDITMSG", "MERGE_MSG", "SQUASH_MSG", "TAG_EDITMSG", "NOTES_EDITMSG", "context-manager-index.json")
_FETCHED = ("FETCH_HEAD", "ORIG_HEAD")
_MODULE = 0o160000


@dataclass(frozen=True, slots=True)
class Survey:
    """The commits that contain the text: their number, the oldest one with its date, and some of its paths."""

    commits: int
    since: str = ""
    at: datetime | None = None
    paths: tuple[str, ...] = ()
    remotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The number of rewritten commits, and the objects (hashes) and files that still contain the text."""

    commits: int
    left: tuple[str, ...] = ()


class History:
    """The history of the repository in `root/.git`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / ".git"

    def survey(self, request: Forgotten) -> Survey:
        """Returns which commits, tags, stashes and reflogs contain a request's text."""
        if not self._folder.exists():
            return Survey(0)
        if not self._folder.is_dir():
            return Survey(0, remotes=())
        with Objects(self._root) as objects:
            writer = Rewriter(objects, request, None)
            order = self._commits(objects)
            for commit in order:
                writer.commit(commit)
            own = [commit for commit in order if commit in writer.holding]
            if not own:
                return Survey(0, remotes=self._remotes())
            at = _moment_of(objects.read(own[0])[1])
            return Survey(len(own), own[0], at, tuple(writer.holding[own[0]][:5]), self._remotes())

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yields hash and text of every blob, commit and tag, also of unreachable ones."""
        if not self._folder.is_dir():
            return
        with Objects(self._root, every=True) as objects:
            for oid, kind, data in objects.all():
                if kind != "tree":
                    yield oid, data.decode("utf-8", "surrogateescape")

    def back_up(self, to: Path) -> None:
        """Writes every branch, tag and stash into a git bundle, readable by this user only.

        Does nothing if the bundle exists or nothing was ever committed.
        """
        if to.exists() or not self._folder.exists() or not self._text("rev-list", "--all", "--max-count=1"):
            return
        temporary = to.with_name(f"{to.name}.{secrets.token_hex(4)}.tmp")
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise Unavailable(
                f"the backup {to} cannot be written: {error.strerror}; make its folder writable"
            ) from error
        try:
            self._git("bundle", "create", "--quiet", str(temporary), "--all", "HEAD")
            self._git("bundle", "verify", "--quiet", str(temporary))
            temporary.chmod(0o600)
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            temporary.replace(to)
        finally:
            temporary.unlink(missing_ok=True)

    def check(self) -> None:
        """Raises Refused, with the reason and what to do, if the history cannot be rewritten."""
        if not self._folder.is_dir():
            raise Refused("the workspace is a worktree or submodule of another repository: rewrite the history there")
        for name in _BUSY:
            if (self._folder / name).exists():
                raise Refused("git is in the middle of a merge, rebase or bisect; finish or abort that first")
        if (self._folder / "shallow").exists():
            raise Refused("this is a shallow clone without its older history; run `git fetch --unshallow` first")
        if (self._folder / "objects/info/alternates").exists():
            raise Refused(
                "this repository borrows objects from another one (alternates); `git repack -a -d`, then "
                "delete .git/objects/info/alternates"
            )
        if self._config("extensions.refStorage") not in ("", "files"):
            raise Refused("this repository keeps its refs in a reftable, which cannot be rewritten here yet")
        self._git("worktree", "prune")
        if any((self._folder / "worktrees").glob("*")):
            raise Refused("other worktrees are linked to this repository; `git worktree remove` them first")

    def rewrite(self, request: Forgotten) -> Rewritten:
        """Removes a request's text from all history. Raises Refused as `check` does, Unavailable if git fails."""
        self.check()
        with Objects(self._root) as objects:
            writer = Rewriter(objects, request, self._folder / "objects")
            for commit in self._commits(objects):
                writer.commit(commit)
            self._move_refs(writer)
            self._rewrite_reflogs(writer)
            self._rewrite_index(writer)
        self._clear_rest(request)
        for leftover in (*self._folder.glob("objects/info/commit-graph*"), *self._folder.glob("sharedindex.*")):
            with contextlib.suppress(OSError):
                leftover.unlink()
        self._git("gc", "--quiet", "--prune=now")
        self._git("prune", "--expire=now")
        return Rewritten(len(writer.holding), tuple(self._left(request)))

    # ------------------------------------------------------------ reading

    def _commits(self, objects: Objects) -> list[str]:
        """Returns every commit that is reachable from a ref, a stash, a reflog or HEAD, parents first."""
        roots = {oid for _, oid, _ in self._refs()}
        roots.update(oid for file in self._reflogs() for line in _lines(file) for oid in _oids_of(line))
        roots.add(self._text("rev-parse", "--quiet", "--verify", "HEAD", fails=True))
        tips = sorted({tip for root in roots if root and (tip := objects.commit_of(root))})
        if not tips:
            return []
        given = "\n".join(tips) + "\n"
        return self._text("rev-list", "--topo-order", "--reverse", "--stdin", stdin=given.encode()).split()

    def _refs(self) -> list[tuple[str, str, str]]:
        """Returns (name, object, target of a symbolic ref or "")."""
        listed = self._text("for-each-ref", "--format=%(refname)%00%(objectname)%00%(symref)")
        found: list[tuple[str, str, str]] = []
        for line in listed.split("\n") if listed else ():
            name, oid, symbolic = line.split("\0")
            found.append((name, oid, symbolic))
        return found

    def _reflogs(self) -> list[Path]:
        return sorted(path for path in (self._folder / "logs").rglob("*") if path.is_file())

    def _remotes(self) -> tuple[str, ...]:
        return tuple(self._text("remote").split())

    # ------------------------------------------------------------ rewriting

    def _move_refs(self, writer: Rewriter) -> None:
        lines: list[str] = []
        moved: dict[str, str] = {}
        for name, old, symbolic in self._refs():
            fresh = "/".join(writer.request.name(part) for part in name.split("/"))
            if symbolic:
                continue
            new = writer.any(old)
            if fresh != name:
                lines += [f"delete {name} {old}", f"create {fresh} {new}"]
                moved[name] = fresh
            elif new != old:
                lines.append(f"update {name} {new} {old}")
        head = self._text("symbolic-ref", "--quiet", "HEAD", fails=True)
        if not head:
            old = self._text("rev-parse", "--quiet", "--verify", "HEAD", fails=True)
            if old and writer.any(old) != old:
                lines.append(f"update HEAD {writer.any(old)} {old}")
        if lines:
            self._git("update-ref", "--no-deref", "--stdin", stdin=("\n".join(lines) + "\n").encode())
        if head in moved:
            self._git("symbolic-ref", "HEAD", moved[head])

    def _rewrite_reflogs(self, writer: Rewriter) -> None:
        for file in self._reflogs():
            lines: list[str] = []
            for line in _lines(file):
                about, tab, message = line.partition("\t")
                old, new, who = [*about.split(" ", 2), "", ""][:3]
                if not writer.objects.exists(new):
                    continue
                before = writer.any(old) if writer.objects.exists(old) else old
                # A reflog's message is the subject of a commit: it is replaced if the commit was rewritten.
                said = "commit: rewritten" if new in writer.holding else message
                said = writer.request.clean(said, MARK, names=True)
                lines.append(f"{before} {writer.any(new)} {writer.request.name(who)}{tab}{said}\n")
            put(file, "".join(lines).encode("utf-8", "surrogateescape"))

    def _rewrite_index(self, writer: Rewriter) -> None:
        """Rewrites the index, which refers to blobs and paths and keeps them from being deleted."""
        listed = self._git("ls-files", "--stage", "-z")
        entries: list[bytes] = []
        for line in listed.split(b"\0"):
            if not line:
                continue
            about, _, raw = line.partition(b"\t")
            mode, oid, stage = about.decode().split(" ")
            path = os.fsdecode(raw)
            new = oid if int(mode, 8) == _MODULE else writer.blob(oid, path)
            if new is not None:
                entries.append(f"{mode} {new} {stage}\t".encode() + os.fsencode(writer.path(oid, path)))
        fresh = self._folder / f"context-manager-{secrets.token_hex(8)}.index"
        lock = self._folder / "index.lock"
        try:
            given = b"".join(entry + b"\0" for entry in entries)
            self._git("read-tree", "--empty", index=fresh)
            self._git("update-index", "-z", "--index-info", stdin=given, index=fresh)
            try:
                os.link(fresh, lock)  # the way git takes its lock
            except FileExistsError:
                raise Unavailable("another git command holds the index (.git/index.lock); run this again") from None
            lock.replace(self._folder / "index")
        finally:
            fresh.unlink(missing_ok=True)
        self._git("update-index", "-q", "--refresh", fails=True)

    def _clear_rest(self, request: Forgotten) -> None:
        for name in _FETCHED:
            (self._folder / name).unlink(missing_ok=True)
        for leftover in self._folder.glob("context-manager-*.index*"):
            leftover.unlink(missing_ok=True)
        for name in _MESSAGES:
            file = self._folder / name
            if file.is_file():
                text = file.read_bytes().decode("utf-8", "surrogateescape")
                fresh = request.clean(text, MARK, names=True) if name.isupper() else request.name(text)
                if fresh != text:
                    put(file, fresh.encode("utf-8", "surrogateescape"))

    def _left(self, request: Forgotten) -> Iterator[str]:
        """Yields what still contains the text: objects of a kept pack, files in git's folder."""
        with Objects(self._root, every=True) as objects:
            for oid, kind, data in objects.all():
                if kind == "tree":
                    names = "\n".join(os.fsdecode(name) for _, name, _ in tree_entries(data, len(oid) // 2))
                    if request.holds(names, names=True):
                        yield oid
                elif finds(data, request):
                    yield oid
        for file in sorted(self._folder.rglob("*")):
            inside = file.relative_to(self._folder).as_posix()
            if inside.startswith(("objects/", "lfs/")) or not file.is_file():
                continue
            if finds(file.read_bytes(), request) or request.holds(inside, names=True):
                yield f".git/{inside}"

    # ------------------------------------------------------------ running git

    def _config(self, key: str) -> str:
        return self._text("config", "--get", key, fails=True)

    def _text(self, *arguments: str, stdin: bytes | None = None, fails: bool = False) -> str:
        return self._git(*arguments, stdin=stdin, fails=fails).decode("utf-8", "surrogateescape").strip()

    def _git(
        self, *arguments: str, stdin: bytes | None = None, index: Path | None = None, fails: bool = False
    ) -> bytes:
        """Runs a git command and returns its output. `fails`: an error gives empty output."""
        more = {"GIT_INDEX_FILE": str(index)} if index else {}
        try:
            done = subprocess.run(
                command(*arguments),
                input=stdin or b"",
                capture_output=True,
                cwd=self._root,
                env=environment(self._root, more),
                check=False,
            )
        except FileNotFoundError as error:
            raise Unavailable(NEEDS_GIT) from error
        if done.returncode == 0 or fails:
            return done.stdout if done.returncode == 0 else b""
        said = done.stderr.decode("utf-8", "replace").strip()
        raise Unavailable(f"git {arguments[0]} failed: {said or done.returncode}; nothing is lost, run this again")


def _lines(file: Path) -> list[str]:
    """Returns the lines of a reflog. Only line feeds end them, because a subject may contain other line ends."""
    return file.read_bytes().decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")


def _oids_of(line: str) -> list[str]:
    return [part for part in line.split(" ", 2)[:2] if re.fullmatch(r"[0-9a-f]{40,64}", part) and part.strip("0")]


def _moment_of(commit: bytes) -> datetime | None:
    found = re.search(rb"^committer .*> (-?\d+) [+-]\d+$", commit, re.MULTILINE)
    return moment_of(found.group(1).decode()) if found else None
