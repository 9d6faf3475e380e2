"""Removes forgotten text from git's history: rewrites every commit, tag, stash and reflog entry that contains it.

Objects with the text, and all objects that refer to them, are replaced by new ones in the same repository. Then all
refs are moved in one transaction, index and reflogs are rewritten, and `gc` deletes the old objects. A run that is
killed before the refs move changes nothing; a run that is killed later can be repeated. Hooks and configuration stay
unchanged. Methods are synchronous: call them in a worker thread, under `locks.git()`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from mcp_server.checkpoints.document import parse, render, without_counts, without_texts
from mcp_server.errors import Invalid, Refused, Unavailable
from mcp_server.forgetting.cleaning import cleaned, finds
from mcp_server.storage.git_process import GitFailed, moment_of
from mcp_server.storage.history_values import object_id
from mcp_server.storage.local.git.repository import (
    BUSY,
    UNREPLACED,
    Objects,
    Repository,
    entries_in,
    objects_of,
    put,
    store,
    tree_entries,
)
from mcp_server.text.forgotten import MARK, NAME, Forgotten

_WHO = re.compile(rb"(author|committer|tagger) (.*) <(.*)> (-?\d+ [+-]\d+)")
_QUOTED_LINE = re.compile(rb"^  - .*\n?", re.MULTILINE)
"""A line of a page, quoted in a commit's message."""
_BRANCH, _MODULE = 0o40000, 0o160000


@dataclass(slots=True)
class Rewriter:
    """Makes cleaned copies of objects. Writes them into `folder`, or only computes their hashes if it is None."""

    objects: Objects
    request: Forgotten
    folder: Path | None
    holding: dict[str, list[str]] = field(default_factory=dict)
    """The commits that contain the text themselves, each with some of the paths that contain it."""
    _commits: dict[str, str] = field(default_factory=dict)
    _trees: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _blobs: dict[tuple[str, str], str | None] = field(default_factory=dict)
    _paths: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _renames: dict[str, str] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _met: list[str] = field(default_factory=list)

    def any(self, oid: str) -> str:
        """Returns the new id of an object of any kind. Call it for the parents of a commit first."""
        if oid in self._commits:
            return self._commits[oid]
        kind, data = self.objects.read(oid)
        match kind:
            case "commit":
                return self.commit(oid)
            case "tag":
                return self._tag(oid, data)
            case "tree":
                return self.tree(oid, "") or self._write("tree", b"", oid)
            case "blob":
                return self.blob(oid, "blob") or self._write("blob", b"", oid)
        return oid

    def commit(self, oid: str) -> str:
        """Returns the new id of a commit. Call it for the parents first."""
        if oid in self._commits:
            return self._commits[oid]
        _, data = self.objects.read(oid)
        head, _, message = data.partition(b"\n\n")
        self._met.clear()
        lines: list[bytes] = []
        changed = own = False
        for line in re.sub(rb"\n(?! )", b"\0", head).split(b"\0"):  # each with its continuation lines
            fresh = line
            if line.startswith(b"tree "):
                old = line[5:].decode()
                fresh = b"tree " + (self.tree(old, "") or self._write("tree", b"", old)).encode()
                own = own or fresh != line
            elif line.startswith(b"parent "):
                parent = line[7:].decode()
                fresh = b"parent " + self._commits.get(parent, parent).encode()
            elif who := _WHO.fullmatch(line):
                fresh = self._who(who)
                own = own or fresh != line
            changed = changed or fresh != line
            lines.append(fresh)
        if own and (self.request.turns or self.request.sessions):
            message = _QUOTED_LINE.sub(b"", message)  # a quoted line may be a part of a turn
        said = self._message(message)
        own = own or said != message
        if own:
            self.holding[oid] = list(dict.fromkeys(self._met)) or ["its message"]
        if changed or own:
            # A signature is left out: it was made for the old bytes.
            lines = [line for line in lines if not line.startswith((b"gpgsig", b"mergetag "))]
            new = self._write("commit", b"\n".join(lines) + b"\n\n" + said, oid)
        else:
            new = oid
        self._commits[oid] = new
        return new

    def tree(self, oid: str, prefix: str) -> str | None:
        """Returns the new id of a tree; None if it became empty."""
        key = (oid, prefix)
        if key in self._trees:
            self._met.extend(self._paths.get(key, ()))
            return self._trees[key]
        _, data = self.objects.read(oid)
        before = len(self._met)
        entries: list[tuple[int, bytes, bytes]] = []
        taken: set[bytes] = set()
        size = len(oid) // 2
        # Conversations first, because other files name them and need their new names.
        for mode, raw, child in sorted(tree_entries(data, size), key=lambda entry: bool(prefix) or entry[1] != b"raw"):
            path = prefix + os.fsdecode(raw)
            old: str = child.hex()
            new = self.tree(old, f"{path}/") if mode == _BRANCH else old if mode == _MODULE else self.blob(old, path)
            name = os.fsencode(self._names.get((old, path)) or self.request.name(os.fsdecode(raw)))
            if new != old or name != raw:
                self._met.append(path)
            if new is not None:
                name = _free(name, taken) if name != raw else name
                taken.add(name)
                entries.append((mode, name, bytes.fromhex(new)))
        entries.sort(key=lambda entry: entry[1] + (b"/" if entry[0] == _BRANCH else b""))
        fresh = b"".join(b"%o %s\0%s" % entry for entry in entries)
        result = None if data and not fresh else oid if fresh == data else self._write("tree", fresh, oid)
        self._trees[key] = result
        self._paths[key] = tuple(path for path in self._met[before:] if not path.endswith("/"))[-5:]
        return result

    def blob(self, oid: str, path: str) -> str | None:
        """Returns the new id of a file; None if the whole file was forgotten."""
        key = (oid, path)
        if key not in self._blobs:
            data = self.objects.read(oid)[1]
            found = cleaned(path, data, self.request)
            fresh = found.data
            if path.startswith("raw/"):
                self._changed |= {path.rsplit("/", 1)[-1]} if fresh != data else set()
            elif fresh is not None:
                fresh = self._renamed(self._uncounted(path, fresh))
            if found.path is not None:
                old, new = path.rsplit("/", 1)[-1], found.path.rsplit("/", 1)[-1]
                self._names[key] = new
                if path.startswith("raw/"):
                    self._renames[old.removesuffix(".md")] = new.removesuffix(".md")
            self._blobs[key] = None if fresh is None else oid if fresh == data else self._write("blob", fresh, oid)
        return self._blobs[key]

    def _uncounted(self, path: str, data: bytes) -> bytes:
        """Returns a checkpoint of a changed conversation without the counts of its words. If the request is for the
        conversation or a turn that the checkpoint covers, returns it without all texts, because they quote parts of
        turns. Other files are unchanged."""
        folder, _, rest = path.removeprefix("checkpoints/").partition("/")
        if not path.startswith("checkpoints/") or not rest:
            return data
        try:
            page = parse(data.decode(), path)
        except (Invalid, UnicodeDecodeError):  # edited by hand: cleaned like any other file
            return data
        request = self.request
        quoted = request.session_hash(page.session) in request.sessions or any(
            request.source_hash(page.session, turn) in request.sources
            for turn in range(1, page.turn + 1 if request.turns else 1)
        )
        if quoted:
            return render(without_texts(page)).encode()
        return render(without_counts(page)).encode() if any(f"-{folder}-" in name for name in self._changed) else data

    def _renamed(self, data: bytes) -> bytes:
        if b"\0" in data[:8000]:
            return data
        for old, new in self._renames.items():
            data = data.replace(os.fsencode(old), os.fsencode(new))
        return data

    def path(self, oid: str, path: str) -> str:
        """Returns the new name of a file. Call `blob` for it first."""
        name = self._names.get((oid, path))
        folder, slash, _ = path.rpartition("/")
        return f"{self.request.path(folder)}{slash}{name}" if name else self.request.path(path)

    def _tag(self, oid: str, data: bytes) -> str:
        head, _, message = data.partition(b"\n\n")
        lines: list[bytes] = []
        for line in head.split(b"\n"):
            if line.startswith(b"object "):
                line = b"object " + self.any(line[7:].decode()).encode()
            elif line.startswith(b"tag "):
                line = b"tag " + os.fsencode(self.request.name(os.fsdecode(line[4:])))
            elif who := _WHO.fullmatch(line):
                line = self._who(who)
            lines.append(line)
        fresh = b"\n".join(lines) + b"\n\n" + self._message(message)
        if fresh == data:
            return oid
        unsigned = fresh.split(b"-----BEGIN ", 1)[0] if b"\n-----BEGIN " in fresh else fresh
        new = self._write("tag", unsigned, oid)
        self._commits[oid] = new
        return new

    def _message(self, message: bytes) -> bytes:
        text = message.decode("utf-8", "surrogateescape")
        for old, new in self._renames.items():
            if old in text:  # the subject contains words from the conversation's file name
                text = re.sub(r"\A(conversation: )[^\n]*", rf"\1{NAME}", text.replace(old, new))
        return self.request.clean(text, MARK, names=True).encode("utf-8", "surrogateescape")

    def _who(self, found: re.Match[bytes]) -> bytes:
        role, name, mail, when = found.groups()
        clean = [os.fsencode(self.request.name(os.fsdecode(part))) for part in (name, mail)]
        return b"%s %s <%s> %s" % (role, clean[0], clean[1], when)

    def _write(self, kind: str, data: bytes, like: str) -> str:
        """Stores an object as git does, durably, and returns its hash."""
        oid = object_id(data, like, kind)
        if self.folder is not None:
            store(self.folder, kind, data, oid)
        return oid


def _free(name: bytes, taken: Iterable[bytes]) -> bytes:
    stem, dot, ending = name.rpartition(b".")
    wanted, number = name, 2
    while wanted in set(taken):
        wanted = b"%s-%d%s%s" % ((stem, number, dot, ending) if stem else (name, number, b"", b""))
        number += 1
    return wanted


_QUIET = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.logAllRefUpdates=false")
_MESSAGES = ("COMMIT_EDITMSG", "MERGE_MSG", "SQUASH_MSG", "TAG_EDITMSG", "NOTES_EDITMSG", "context-manager-index.json")
_FETCHED = ("FETCH_HEAD", "ORIG_HEAD")


@dataclass(frozen=True, slots=True)
class Survey:
    """The commits that contain the text: their number, the oldest one with its date, and some of its paths."""

    commits: int
    since: str = ""
    at: datetime | None = None
    paths: tuple[str, ...] = ()
    remotes: tuple[str, ...] = ()


class RepositoryHistory:
    """The history of the repository in `root/.git`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / ".git"
        self._repository = Repository(root)

    def survey(self, request: Forgotten) -> Survey:
        """Returns which commits, tags, stashes and reflogs contain a request's text."""
        if not self._folder.is_dir():
            return Survey(0)
        with objects_of(self._root) as objects:
            writer = Rewriter(objects, request, None)
            order = self._commits(objects)
            for commit in order:
                writer.commit(commit)
            own = [commit for commit in order if commit in writer.holding]
            remotes = tuple(self._repository.text("remote").split())
            if not own:
                return Survey(0, remotes=remotes)
            when = re.search(rb"^committer .*> (-?\d+) [+-]\d+$", objects.read(own[0])[1], re.MULTILINE)
            at = moment_of(when[1].decode()) if when else None
            return Survey(len(own), own[0], at, tuple(writer.holding[own[0]][:5]), remotes)

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yields hash and text of every blob, commit and tag, also of unreachable ones."""
        if not self._folder.is_dir():
            return
        with objects_of(self._root, every=True) as objects:
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
        if any((self._folder / name).exists() for name in BUSY):
            raise Refused("git is in the middle of a merge, rebase or bisect; finish or abort that first")
        if (self._folder / "shallow").exists():
            raise Refused("this is a shallow clone without its older history; run `git fetch --unshallow` first")
        if (self._folder / "objects/info/alternates").exists():
            raise Refused(
                "this repository uses objects of another one (alternates); run `git repack -a -d`, then "
                "delete .git/objects/info/alternates"
            )
        if self._text("config", "--get", "extensions.refStorage", fails=True) not in ("", "files"):
            raise Refused("this repository keeps its refs in a reftable, which cannot be rewritten here yet")
        self._git("worktree", "prune")
        if any((self._folder / "worktrees").glob("*")):
            raise Refused("other worktrees are linked to this repository; run `git worktree remove` on them first")

    def rewrite(self, request: Forgotten) -> list[str]:
        """Removes a request's text from all history. Returns the objects (hashes) and files that still contain it.
        Raises Refused as `check` does, Unavailable if git fails."""
        self.check()
        with objects_of(self._root) as objects:
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
        return list(self._left(request))

    # ------------------------------------------------------------ reading

    def _commits(self, objects: Objects) -> list[str]:
        """Returns every commit that is reachable from a ref, a stash, a reflog or HEAD, parents first."""
        roots = {oid for _, oid, _ in self._refs()}
        named = (part for file in self._reflogs() for line in _lines(file) for part in line.split(" ", 2)[:2])
        roots.update(oid for oid in named if re.fullmatch(r"[0-9a-f]{40,64}", oid) and oid.strip("0"))
        roots.add(self._text("rev-parse", "--quiet", "--verify", "HEAD", fails=True))
        tips = sorted({tip for root in roots if root and (tip := objects.commit_of(root))})
        if not tips:
            return []
        given = "\n".join(tips) + "\n"
        return self._text("rev-list", "--topo-order", "--reverse", "--stdin", stdin=given.encode()).split()

    def _refs(self) -> list[tuple[str, str, str]]:
        """Returns (name, object, target of a symbolic ref or "")."""
        listed = self._text("for-each-ref", "--format=%(refname)%00%(objectname)%00%(symref)")
        rows = (line.split("\0") for line in listed.split("\n") if line)
        return [(name, oid, target) for name, oid, target in rows]

    def _reflogs(self) -> list[Path]:
        return sorted(path for path in (self._folder / "logs").rglob("*") if path.is_file())

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
        entries: list[bytes] = []
        for (mode, oid, stage), path in entries_in(self._git("ls-files", "--stage", "-z")):
            new = oid if int(mode, 8) == _MODULE else writer.blob(oid, path)
            if new is not None:
                entries.append(f"{mode} {new} {stage}\t".encode() + os.fsencode(writer.path(oid, path)))
        given = b"".join(entry + b"\0" for entry in entries)
        lock = self._folder / "index.lock"
        with self._repository.index_of(None) as fresh:
            self._git("read-tree", "--empty", index=fresh)
            self._git("update-index", "-z", "--index-info", stdin=given, index=fresh)
            try:
                os.link(fresh, lock)  # git takes this lock in the same way
            except FileExistsError:
                raise Unavailable("another git command holds the index (.git/index.lock); run this again") from None
            lock.replace(self._folder / "index")
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
        """Yields the objects (such as those of a kept pack) and the files in git's folder that still contain the
        text."""
        with objects_of(self._root, every=True) as objects:
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

    def _text(self, *arguments: str, stdin: bytes = b"", fails: bool = False) -> str:
        return self._git(*arguments, stdin=stdin, fails=fails).decode("utf-8", "surrogateescape").strip()

    def _git(self, *arguments: str, stdin: bytes = b"", index: Path | None = None, fails: bool = False) -> bytes:
        """Runs a git command and returns its output. With `fails`, returns b"" if git fails."""
        try:
            return self._repository.run(*_QUIET, *arguments, stdin=stdin, index=index, who=UNREPLACED)
        except GitFailed:
            if fails:
                return b""
            raise


def _lines(file: Path) -> list[str]:
    """Returns the lines of a reflog. Splits only at line feeds, because a subject may contain other line ends."""
    return file.read_bytes().decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
