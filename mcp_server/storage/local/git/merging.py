"""Merges three trees in a private index, without touching the user's index, and then updates the work tree.

Git merges files that only one side changed; `resolve` merges those that both changed. The work tree is written before
HEAD moves: after a crash in between, the next commit commits the merged files. In the other order, the next commit
would undo the other side's changes. Files that differ from the last commit are merged too, never overwritten.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from mcp_server.errors import Conflict, Refused
from mcp_server.storage.git_process import GitFailed
from mcp_server.storage.history_values import MergePlan, Resolve
from mcp_server.storage.local.files import WorkspaceFiles
from mcp_server.storage.local.git.commits import Committer
from mcp_server.storage.local.git.repository import Repository, diff_in, entries_in, nul

_LINK, _MODULE = "120000", "160000"


class Merger:
    """Merges in one repository. Call it under `locks.git()`, and `apply` also under `locks.files()`."""

    def __init__(self, repository: Repository, committer: Committer, files: WorkspaceFiles) -> None:
        self._repository = repository
        self._committer = committer
        self._files = files

    def base(self, ours: str, theirs: str) -> str | None:
        try:
            return self._repository.text("merge-base", ours, theirs).split("\n")[0] or None
        except GitFailed:
            return None

    def plan(
        self,
        old: str,
        base: str | None,
        theirs: str,
        resolve: Resolve,
        keep: Callable[[str], bool] = lambda path: False,
    ) -> MergePlan:
        """Plans the merge of the commit or tree `theirs` into the commit `old`, with the merge base `base`, if any.

        Symbolic links and paths for which `keep` returns True do not change. Writes only git objects. Raises
        Unavailable.
        """
        with self._repository.index_of(None) as index:
            common = base or self._repository.text("mktree", stdin=b"")
            self._repository.run("read-tree", "-i", "-m", "--aggressive", common, old, theirs, index=index)
            both = self._resolve(index, resolve, common, (old, theirs))
            tree = self._repository.text("write-tree", index=index)
            changed = self._changed(old, tree)
            links = [path for path, entries in changed.items() if any(entry.startswith(_LINK) for entry in entries)]
            kept = {path: entries[0] for path, entries in changed.items() if keep(path) or path in links}
            if kept:
                self._repository.set_entries(index, kept)
                tree = self._repository.text("write-tree", index=index)
                changed = self._changed(old, tree)
        return MergePlan(old, tree, changed, tuple(path for path in both if path in changed), tuple(links))

    def replaced(self, plan: MergePlan, contents: Mapping[str, bytes | None]) -> MergePlan:
        """Returns the plan with these contents for these paths; None removes a file."""
        if not contents:
            return plan
        with self._repository.index_of(plan.tree) as index:
            entries = {
                path: self._stored(path, data, plan.changed.get(path, ("", ""))[1]) for path, data in contents.items()
            }
            self._repository.set_entries(index, entries)
            tree = self._repository.text("write-tree", index=index)
        return MergePlan(plan.old, tree, self._changed(plan.old, tree), plan.both)

    def content(self, path: str, entry: str) -> bytes | None:
        """Returns a file's content by its entry, after git's filters; None if the entry is not a plain file."""
        if not entry.startswith("100"):
            return None
        return self._repository.opened(path, entry.split(" ")[1])

    def staged_by_user(self, plan: MergePlan) -> list[str]:
        """Returns the paths of the plan whose staged version differs from the old commit."""
        staged = self._repository.staged(list(plan.changed))
        return [path for path, (old, _) in plan.changed.items() if staged.get(path, "") != old]

    def apply(self, plan: MergePlan, resolve: Resolve, held: frozenset[str] = frozenset()) -> list[str]:
        """Updates the work tree from the old commit to the plan's tree and returns the written paths.

        Files that differ from the old commit are merged, files in `held` are kept. Raises Conflict if a file changes
        meanwhile: the caller tries again.
        """
        files = self._files
        hidden = self._left_out_here(list(plan.changed)) | held
        wanted = {path: entries for path, entries in plan.changed.items() if path not in hidden}
        written: list[str] = []
        with tempfile.TemporaryDirectory(prefix="merge-", dir=files.local) as folder:
            fresh = Path(folder)
            with self._repository.index_of(plan.tree) as index:
                paths, prefix = nul([path for path, (_, new) in wanted.items() if new]), f"--prefix={fresh}{os.sep}"
                self._repository.run("checkout-index", "-z", "--stdin", prefix, index=index, stdin=paths)
            places = {path: files.resolve(path) for path in wanted}  # checks all before the first is written
            live = {path: _read(place) for path, place in places.items()}
            unchanged = self._as_committed(wanted, live)
            for path, (old, new) in wanted.items():
                if old.startswith(_MODULE) or new.startswith(_MODULE):
                    continue  # a submodule: its owner checks it out
                now = live[path]
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
                    raise Conflict(f"{path} was changed by another program meanwhile; try again")
                written.append(path)
        return written

    def commit(
        self,
        plan: MergePlan,
        parents: Sequence[str],
        message: str,
        forward: str | None = None,
        held: frozenset[str] = frozenset(),
    ) -> str | None:
        """Moves HEAD to a new commit of the plan, or to `forward` if it has the plan's tree. Returns None if HEAD moved
        meanwhile.

        Paths in `held` differ between HEAD and the work tree afterwards; the user's index skips them.
        """
        fits = forward is not None and self._repository.text("rev-parse", f"{forward}^{{tree}}") == plan.tree
        commit = forward if forward and fits else self._committer.put(plan.tree, parents, message)
        hidden = [path for path in self._left_out_here(list(plan.changed)) | held if plan.changed[path][1]]
        subject = message.split("\n", 1)[0]
        if not self._committer.advance(plan.old, commit, plan.changed, f"merge: {subject}"):
            return None
        self._mark("--skip-worktree", hidden)  # keeps a sparse checkout sparse
        return commit

    def committed(self, path: str) -> bytes | None:
        """Returns HEAD's version of a file, after git's filters; None if HEAD lacks it. Raises Unavailable."""
        head = self._repository.head()
        return self.content(path, self._repository.entries_of(head, [path]).get(path, "") if head else "")

    def leave_out(self, paths: Sequence[str]) -> None:
        """Makes the user's index skip these files, as in a sparse checkout. Raises Unavailable."""
        self._mark("--skip-worktree", list(self._repository.staged(paths)) if paths else [])

    def take_in(self, paths: Sequence[str]) -> None:
        """Makes the user's index compare these files with the work tree again. Raises Unavailable."""
        self._mark("--no-skip-worktree", list(self._repository.staged(paths)) if paths else [])

    def remove_leftovers(self) -> None:
        """Deletes the temporary folders of killed merges in `.local/`."""
        for folder in self._files.local.glob("merge-*"):
            shutil.rmtree(folder, ignore_errors=True)

    # ------------------------------------------------------------ inside

    def _mark(self, how: str, paths: Sequence[str]) -> None:
        if paths:
            self._repository.run("update-index", how, "-z", "--stdin", stdin=nul(sorted(paths)))

    def _resolve(self, index: Path, resolve: Resolve, common: str, sides: tuple[str, str]) -> list[str]:
        """Merges every path that both sides changed since `common`, in a private index, and returns the paths."""
        renames = cache(lambda side: self._renames(common, sides[side]))
        stages: dict[str, dict[str, str]] = {}
        for (mode, blob, stage), path in entries_in(self._repository.run("ls-files", "--unmerged", "-z", index=index)):
            stages.setdefault(path, {})[stage] = f"{mode} {blob}"
        settled: dict[str, str] = {}
        for path, versions in stages.items():
            base, ours, theirs = (versions.get(stage, "") for stage in "123")
            if not ours or not theirs:  # deleted on one side: keep the other's change, at its new path if it was moved
                new, moved = (
                    renames(0 if not ours else 1).get(path, ("", "")) if base and (ours or theirs) else ("", "")
                )
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
        self._repository.set_entries(index, settled)
        return list(settled)

    def _renames(self, base: str, side: str) -> dict[str, tuple[str, str]]:
        """Returns new path and entry of each plain file that a side moved since `base`, by old path."""
        found: dict[str, tuple[str, str]] = {}
        wanted = ("-r", "-z", "--find-renames", "--diff-filter=R")
        for (_, mode, _, blob, _), (old, new) in diff_in(self._repository.run("diff-tree", *wanted, base, side)):
            if mode.startswith("100"):
                found[old] = (new, f"{mode} {blob}")
        return found

    def _stored(self, path: str, data: bytes | None, like: str) -> str:
        if data is None:
            return ""
        blob = self._repository.text("hash-object", "-w", f"--path={path}", "--stdin", stdin=data)
        return f"{like.split(' ')[0] if like.startswith('100') else '100644'} {blob}"

    def _changed(self, old: str, new: str) -> dict[str, tuple[str, str]]:
        """Returns the old and the new entry of each changed path."""
        found: dict[str, tuple[str, str]] = {}
        said = self._repository.run("diff-tree", "-r", "-z", "--no-renames", old, new)
        for (old_mode, new_mode, old_blob, new_blob, _), (path,) in diff_in(said):
            sides = (old_mode, old_blob), (new_mode, new_blob)
            before, after = (f"{mode} {blob}" if mode.strip("0") else "" for mode, blob in sides)
            found[path] = (before, after)
        return found

    def _as_committed(self, wanted: Mapping[str, tuple[str, str]], live: Mapping[str, bytes | None]) -> frozenset[str]:
        """Returns the paths whose files have not changed since the old commit."""
        paths = [path for path, data in live.items() if data is not None]
        if any("\n" in path for path in paths):
            raise Refused("a file name contains a line break; rename the file")
        given = "".join(f"{path}\n" for path in paths).encode("utf-8", "surrogateescape")
        blobs = self._repository.text("hash-object", "--stdin-paths", stdin=given).split() if paths else []
        same = {path for path, blob in zip(paths, blobs, strict=True) if wanted[path][0].endswith(f" {blob}")}
        return frozenset(same)

    def _left_out_here(self, paths: Sequence[str]) -> frozenset[str]:
        """Returns the paths that a sparse checkout leaves out of the work tree."""
        listed = self._repository.run("ls-files", "-t", "-z").split(b"\0")
        hidden = {os.fsdecode(line[2:]) for line in listed if line.startswith(b"S ")}
        return frozenset(hidden.intersection(paths))


def _read(place: Path) -> bytes | None:
    try:
        return None if place.is_symlink() else place.read_bytes()
    except FileNotFoundError:
        return None
