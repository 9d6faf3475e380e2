"""Merging without touching the user's index: three trees become one in a private index, and the work tree follows.

What only one side changed is git's own work; where both did, `resolve` decides. The work tree is written before HEAD
moves: a crash in between leaves merged files on the old commit, which the next commit takes in as they are, while the
other order would make the next commit undo what came from the other side. Files that differ from the last commit are
merged with what comes, never overwritten.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcp_server.errors import Conflict, Refused, Unavailable
from mcp_server.store.files import WorkspaceFiles
from mcp_server.store.git_commits import Committer
from mcp_server.store.git_repository import Failed, Repository, nul

Resolve = Callable[[str, bytes | None, bytes, bytes], bytes]
"""(path, base, ours, theirs) → what the file becomes; base is None where the two have none in common."""

_LINK, _MODULE = "120000", "160000"


@dataclass(frozen=True, slots=True)
class Plan:
    """A merge that can be carried out: from the commit `old` to `tree`, and what changes: path → (entry in `old`, entry
    then), each as `mode blob`, empty where there is none. `both` are the paths that both sides had changed."""

    old: str
    tree: str
    changed: Mapping[str, tuple[str, str]]
    both: tuple[str, ...] = ()


class Merger:
    """Merges in one repository, under `locks.git()`; `apply` under `locks.files()` too."""

    def __init__(self, repository: Repository, committer: Committer) -> None:
        self._repository = repository
        self._committer = committer

    def base(self, ours: str, theirs: str) -> str | None:
        """The commit that both come from; None if there is none."""
        try:
            return self._repository.text("merge-base", ours, theirs).split("\n")[0] or None
        except Failed:
            return None

    def plan(
        self,
        old: str,
        base: str | None,
        theirs: str,
        resolve: Resolve,
        keep: Callable[[str], bool] = lambda path: False,
    ) -> Plan:
        """What merging the commit (or tree) `theirs` into the commit `old` makes, with `base` (None: nothing) as what
        both come from. Paths that `keep` names stay as they are. Writes objects only. Raises Unavailable."""
        try:
            with self._committer.index_of(None) as index:
                common = base or self._repository.text("mktree", stdin=b"")
                self._repository.run("read-tree", "-i", "-m", "--aggressive", common, old, theirs, index=index)
                both = self._resolve(index, resolve, _Renames(self._repository, common, (old, theirs)))
                tree = self._repository.text("write-tree", index=index)
                changed = self._changed(old, tree)
                kept = {path: entries[0] for path, entries in changed.items() if keep(path)}
                if kept:
                    self._set(index, kept)
                    tree = self._repository.text("write-tree", index=index)
                    changed = {path: entries for path, entries in changed.items() if path not in kept}
        except Failed as error:
            raise Unavailable(f"git could not merge: {error}; nothing was changed") from error
        return Plan(old, tree, changed, tuple(path for path in both if path in changed))

    def replaced(self, plan: Plan, contents: Mapping[str, bytes | None]) -> Plan:
        """The plan with other contents of these files (None: without them), new ones among them."""
        if not contents:
            return plan
        with self._committer.index_of(None) as index:
            self._repository.run("read-tree", plan.tree, index=index)
            entries = {
                path: self._stored(path, data, plan.changed.get(path, ("", ""))[1]) for path, data in contents.items()
            }
            self._set(index, entries)
            tree = self._repository.text("write-tree", index=index)
        return Plan(plan.old, tree, self._changed(plan.old, tree), plan.both)

    def content(self, path: str, entry: str) -> bytes | None:
        """A file as it stands in the work tree (after git's filters), by its entry; None if there is none."""
        if not entry.startswith("100"):
            return None
        return self._repository.opened(path, entry.split(" ")[1])

    def staged_by_user(self, plan: Plan) -> list[str]:
        """Paths of the plan that the user has staged otherwise than they stand in the old commit."""
        staged = self._repository.staged(list(plan.changed))
        return [path for path, (old, _) in plan.changed.items() if staged.get(path, "") != old]

    def apply(
        self, plan: Plan, files: WorkspaceFiles, resolve: Resolve, held: frozenset[str] = frozenset()
    ) -> list[str]:
        """Brings the work tree from the old commit to the plan's tree; returns the paths that were written.

        A file that was changed since is merged, one in `held` stays as it is. Raises Conflict if a file changes
        meanwhile: then try again.
        """
        hidden = self._left_out_here(list(plan.changed)) | held
        wanted = {path: entries for path, entries in plan.changed.items() if path not in hidden}
        written: list[str] = []
        with tempfile.TemporaryDirectory(prefix="merge-", dir=files.local) as folder:
            fresh = self._checked_out(plan.tree, [path for path, (_, new) in wanted.items() if new], Path(folder))
            written += self._relinked(wanted, files, fresh)  # first: a folder may take the place of a link
            wanted = {path: entries for path, entries in wanted.items() if not entries[1].startswith(_LINK)}
            places = {path: files.resolve(path) for path in wanted}  # all are looked at before one is written
            live = {path: _read(place) for path, place in places.items()}
            unchanged = self._as_committed(wanted, live)
            for path, (old, new) in wanted.items():
                if old.startswith(_MODULE) or new.startswith(_MODULE):
                    continue  # another repository: its owner checks it out
                now = live[path]
                if old.startswith(_LINK) and not new:
                    continue
                data = (fresh / path).read_bytes() if new else None
                if path not in unchanged and now is not None and now != data:
                    data = now if data is None else resolve(path, self.content(path, old), now, data)
                if data == now:
                    continue
                if data is not None:
                    files.write_bytes_atomic(path, data, now, new=now is None)
                elif _read(places[path]) == now:
                    files.remove(path)
                else:
                    raise Conflict(f"{path} was changed by somebody else in between; try again")
                written.append(path)
        return written

    def commit(
        self,
        plan: Plan,
        parents: Sequence[str],
        message: str,
        forward: str | None = None,
        held: frozenset[str] = frozenset(),
    ) -> str | None:
        """Moves HEAD to a commit of the plan (or to `forward`, which has its tree); None if HEAD moved meanwhile.

        Paths in `held` differ from then on between HEAD and the work tree; the user's index leaves them out here.
        """
        commit = forward or self._committer.put(plan.tree, parents, message)
        hidden = [path for path in self._left_out_here(list(plan.changed)) | held if plan.changed[path][1]]
        subject = message.split("\n", 1)[0]
        if not self._committer.advance(plan.old, commit, plan.changed, f"merge: {subject}"):
            return None
        self._mark("--skip-worktree", hidden)  # a sparse checkout goes on leaving out what it left out
        return commit

    def committed(self, path: str) -> bytes | None:
        """Returns a file as HEAD has it, as it would be in the work tree; None if HEAD has none. Raises Unavailable."""
        try:
            head = self._repository.head()
            entry = self._repository.entries_of(head, [path]).get(path, "") if head else ""
            return self.content(path, entry)
        except Failed as error:
            raise Unavailable(f"git could not read {path}: {error}") from error

    def leave_out(self, paths: Sequence[str]) -> None:
        """Makes the user's index leave these files out here, as in a sparse checkout. Raises Unavailable."""
        self._mark_known("--skip-worktree", paths)

    def take_in(self, paths: Sequence[str]) -> None:
        """Makes the user's index compare these files with the work tree again. Raises Unavailable."""
        self._mark_known("--no-skip-worktree", paths)

    # ------------------------------------------------------------ inside

    def _mark_known(self, how: str, paths: Sequence[str]) -> None:
        try:
            self._mark(how, list(self._repository.staged(paths)) if paths else [])
        except Failed as error:
            raise Unavailable(f"git could not mark {', '.join(paths)}: {error}; try again") from error

    def _mark(self, how: str, paths: Sequence[str]) -> None:
        if paths:
            self._repository.run("update-index", how, "-z", "--stdin", stdin=nul(sorted(paths)))

    def _relinked(self, wanted: Mapping[str, tuple[str, str]], files: WorkspaceFiles, fresh: Path) -> list[str]:
        """Removes and creates the symbolic links themselves, never what they lead to; returns their paths."""
        done: list[str] = []
        for path, (old, new) in wanted.items():
            if not (old.startswith(_LINK) or new.startswith(_LINK)):
                continue
            above, _, name = path.rpartition("/")
            place = (files.resolve(above) if above else files.root) / name
            if old.startswith(_LINK) and place.is_symlink():
                if os.fsencode(place.readlink()) != self._repository.run("cat-file", "blob", old.split(" ")[1]):
                    continue  # changed here meanwhile
                place.unlink()
                done.append(path)
            if new.startswith(_LINK) and not os.path.lexists(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to((fresh / path).readlink())
                done.append(path)
        return done

    def _resolve(self, index: Path, resolve: Resolve, renames: _Renames) -> list[str]:
        """Settles every path that both sides changed, in a private index; returns them."""
        stages: dict[str, dict[str, str]] = {}
        for line in self._repository.run("ls-files", "--unmerged", "-z", index=index).split(b"\0"):
            if line:
                entry, _, name = line.partition(b"\t")
                mode, blob, stage = entry.decode().split(" ")
                stages.setdefault(os.fsdecode(name), {})[stage] = f"{mode} {blob}"
        settled: dict[str, str] = {}
        for path, versions in stages.items():
            base, ours, theirs = (versions.get(stage, "") for stage in "123")
            if not ours or not theirs:  # one side deleted what the other changed: it stays, or goes where it was moved
                new, moved = renames.of(path, side=0 if not ours else 1) if base and (ours or theirs) else ("", "")
                if new and new not in stages and new not in settled:
                    sides = (moved, theirs) if not ours else (ours, moved)
                    one, other = (self.content(path, entry) or b"" for entry in sides)
                    settled[path] = ""
                    settled[new] = self._stored(new, resolve(new, self.content(path, base), one, other), moved)
                else:
                    settled[path] = ours or theirs
            elif not (ours.startswith("100") and theirs.startswith("100")):
                settled[path] = ours
            else:
                one, other = (self.content(path, entry) or b"" for entry in (ours, theirs))
                settled[path] = self._stored(path, resolve(path, self.content(path, base), one, other), ours)
        self._set(index, settled)
        return list(settled)

    def _stored(self, path: str, data: bytes | None, like: str) -> str:
        """The entry of a file with this content, which is stored."""
        if data is None:
            return ""
        blob = self._repository.text("hash-object", "-w", f"--path={path}", "--stdin", stdin=data)
        return f"{like.split(' ')[0] if like.startswith('100') else '100644'} {blob}"

    def _set(self, index: Path, entries: Mapping[str, str]) -> None:
        removed = [path for path, entry in entries.items() if not entry]
        lines = [f"{entry}\t{path}" for path, entry in entries.items() if entry]
        if removed:
            self._repository.run("update-index", "--force-remove", "-z", "--stdin", index=index, stdin=nul(removed))
        if lines:
            self._repository.run("update-index", "-z", "--index-info", index=index, stdin=nul(lines))

    def _changed(self, old: str, new: str) -> dict[str, tuple[str, str]]:
        """path → (old entry, new entry)"""
        found: dict[str, tuple[str, str]] = {}
        parts = iter(self._repository.run("diff-tree", "-r", "-z", "--no-renames", old, new).split(b"\0"))
        for part in parts:
            if part.startswith(b":"):
                modes = part[1:].decode("ascii").split(" ")
                entries = [f"{modes[side]} {modes[side + 2]}" if modes[side].strip("0") else "" for side in (0, 1)]
                found[os.fsdecode(next(parts))] = (entries[0], entries[1])
        return found

    def _checked_out(self, tree: str, paths: Sequence[str], folder: Path) -> Path:
        """These files of a tree as they stand in a work tree, in a folder of their own."""
        with self._committer.index_of(None) as index:
            self._repository.run("read-tree", tree, index=index)
            prefix = f"--prefix={folder}{os.sep}"
            self._repository.run("checkout-index", "-z", "--stdin", prefix, index=index, stdin=nul(paths))
        return folder

    def _as_committed(self, wanted: Mapping[str, tuple[str, str]], live: Mapping[str, bytes | None]) -> frozenset[str]:
        """Paths whose file is as the old commit has it."""
        paths = [path for path, data in live.items() if data is not None]
        if any("\n" in path for path in paths):
            raise Refused("a file's name holds a line end; rename it")
        given = "".join(f"{path}\n" for path in paths).encode("utf-8", "surrogateescape")
        blobs = self._repository.text("hash-object", "--stdin-paths", stdin=given).split() if paths else []
        same = {path for path, blob in zip(paths, blobs, strict=True) if wanted[path][0].endswith(f" {blob}")}
        return frozenset(same)

    def _left_out_here(self, paths: Sequence[str]) -> frozenset[str]:
        """Paths that a sparse checkout keeps out of this work tree."""
        listed = self._repository.run("ls-files", "-t", "-z").split(b"\0")
        hidden = {os.fsdecode(line[2:]) for line in listed if line.startswith(b"S ")}
        return frozenset(hidden.intersection(paths))


class _Renames:
    """What was moved on either side since `base`; git is asked only once somebody wants to know."""

    def __init__(self, repository: Repository, base: str, sides: tuple[str, str]) -> None:
        self._repository = repository
        self._base = base
        self._sides = sides
        self._found: dict[int, dict[str, tuple[str, str]]] = {}

    def of(self, path: str, side: int) -> tuple[str, str]:
        """Where a plain file went to on a side (0: ours, 1: theirs), and its entry there; empty if nowhere."""
        if side not in self._found:
            self._found[side] = dict(self._listed(self._sides[side]))
        return self._found[side].get(path, ("", ""))

    def _listed(self, side: str) -> Iterator[tuple[str, tuple[str, str]]]:
        wanted = ("-r", "-z", "--find-renames", "--diff-filter=R")
        parts = iter(self._repository.run("diff-tree", *wanted, self._base, side).split(b"\0"))
        for part in parts:
            if part.startswith(b":"):
                _, mode, _, blob, _ = part[1:].decode("ascii").split(" ")
                old, new = os.fsdecode(next(parts)), os.fsdecode(next(parts))
                if mode.startswith("100"):
                    yield old, (new, f"{mode} {blob}")


def remove_leftovers(local: Path) -> None:
    """Deletes what a merge that was killed left in `.local/`."""
    for folder in local.glob("merge-*"):
        shutil.rmtree(folder, ignore_errors=True)


def _read(place: Path) -> bytes | None:
    try:
        return None if place.is_symlink() else place.read_bytes()
    except FileNotFoundError:
        return None
