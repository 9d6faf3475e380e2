"""Checks whether a repository is damaged, and repairs it without loss.

Everything that a repair replaces (HEAD, a branch, the index, damaged objects) is kept in a folder in git's own folder.
Files in the work tree are only read.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mcp_server.storage.git_process import GitFailed
from mcp_server.storage.local.git.commits import Committer
from mcp_server.storage.local.git.refs import NETWORK_SECONDS, Remote
from mcp_server.storage.local.git.repository import Repository, nul

TRIAL = "refs/memory/trial"
"""The ref of a trial commit; it is deleted at once."""

_MISSING = re.compile(r"\b(?:missing|to) +(blob|tree|commit|tag) ([0-9a-f]{40,64})")
_DAMAGED = re.compile(r"(?:object file|stored in) (\S*objects/[0-9a-f]{2}/[0-9a-f]{38,62})")
_WORDS = {"blob": "file version", "tree": "folder version", "commit": "commit", "tag": "tag"}
_ROUNDS = 20
"""Most runs of fsck to find damaged objects: fsck stops at the first one."""


class Health:
    """Checks and repairs one repository. Call `repair` under `locks.git()`. `full` writes only a trial commit."""

    def __init__(self, repository: Repository, committer: Committer, remote: Remote) -> None:
        self._repository = repository
        self._committer = committer
        self._remote = remote

    def quick(self) -> str:
        """Returns the problem with HEAD, its branch, or the last commit's list of files; empty if there is none.

        Runs at most a few git commands, for a history of any size.
        """
        if not self._repository.exists():
            return ""
        if found := self._repository.head_problem():
            return found
        head = self._repository.head()
        if head is None:
            return ""
        try:
            self._repository.run("ls-tree", "-r", "-z", head)
        except GitFailed:
            return f"the last commit ({head[:10]}) is damaged: git cannot list its files"
        return ""

    def full(self) -> list[str]:
        """Returns all problems: those of `quick`, missing and damaged objects, and whether a commit works."""
        if not self._repository.exists():
            return []
        found = [said] if (said := self.quick()) else []
        missing, damaged = self._lost()
        if missing:
            counts = Counter(_WORDS[kind] for kind, _ in missing)
            listed = ", ".join(f"{number} {word}{'s' if number > 1 else ''}" for word, number in counts.items())
            found.append(f"git's history has lost {listed} (git fsck lists them)")
        if damaged:
            found.append(f"objects of git are damaged: {len(damaged)}, such as .git/objects/{damaged[0]}")
        if not (found and self._repository.head_problem()):
            trouble = self._trial()
            found += [f"nothing can be committed: {trouble}"] if trouble else []
        return found

    def large_files(self) -> str:
        """Returns the problem with attachments that git-lfs should keep; empty if there is none."""
        root = self._repository.root
        folder = root / "attachments"
        if shutil.which("git-lfs") is not None or not folder.is_dir():
            return ""
        try:
            attributes = (root / ".gitattributes").read_text("utf-8", "replace")
        except OSError:
            return ""
        if "filter=lfs" not in attributes or not any(file.is_file() for file in folder.rglob("*")):
            return ""
        return "git-lfs is not installed: attachments are stored in git itself; install it, then run `git lfs install`"

    def repair(self) -> list[str]:
        """Makes all repairs that lose no data, and returns a sentence for each.

        Raises Unavailable if git refuses a step; the steps before it are complete.
        """
        done: list[str] = []
        kept = self._repository.folder() / f"context-manager-before-repair-{secrets.token_hex(4)}"
        for mend in (self._mend_head, self._mend_objects, self._mend_branch, self._mend_last_commit):
            done += mend(kept)
        if kept.exists():
            done.append(f"the replaced files are kept in {kept}")
        return done

    # ------------------------------------------------------------ checks

    def _lost(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Returns missing objects as (kind, id), and the files of damaged ones."""
        said = ""
        try:
            self._repository.run("fsck", "--connectivity-only", "--no-dangling", "--no-progress")
        except GitFailed as error:
            said = f"{error.output}\n{error.said}"
        objects = self._repository.common_folder() / "objects"
        # fsck finds only some of these.
        empty = [place for place in objects.glob("[0-9a-f][0-9a-f]/*") if place.stat().st_size == 0]
        damaged = {name.split("objects/")[1] for name in _DAMAGED.findall(said)}
        damaged |= {f"{place.parent.name}/{place.name}" for place in empty}
        gone = {name.replace("/", "") for name in damaged}
        return sorted({one for one in _MISSING.findall(said) if one[1] not in gone}), sorted(damaged)

    def _trial(self) -> str:
        """Returns why a commit of all files of the last commit fails; empty if it works."""
        try:
            head = self._repository.head()
            entries = self._repository.entries_of(head, []) if head else {}
            with self._index_of(entries) as index:  # without git's cache of trees, so that git reads each blob
                tree = self._repository.text("write-tree", index=index)
            commit = self._committer.put(tree, [head] if head else [], "trial")
            self._repository.run("update-ref", TRIAL, commit)
            self._repository.run("update-ref", "-d", TRIAL)
        except GitFailed as error:
            return " ".join(error.said.split())[:200]
        except OSError as error:  # a read-only or full disk
            return f"nothing can be written to .git: {error.strerror}"
        return ""

    # ------------------------------------------------------------ repairs

    def _mend_head(self, kept: Path) -> list[str]:
        """Points a damaged HEAD to its likely branch."""
        if not self._repository.head_is_garbage():
            return []
        folder = self._repository.folder()
        name = self._likely_branch()
        _keep(folder / "HEAD", kept)
        fresh = folder / "HEAD.context-manager"
        fresh.write_text(f"ref: refs/heads/{name}\n", "utf-8")
        fresh.replace(folder / "HEAD")
        return [f"HEAD was damaged; it is on the branch {name} again"]

    def _likely_branch(self) -> str:
        """Returns `main` or `master`, else the branch that changed last."""
        common = self._repository.common_folder()
        known = {
            path.relative_to(base).as_posix(): path.stat().st_mtime
            for base in (common / "refs" / "heads", common / "logs" / "refs" / "heads")
            for path in base.rglob("*")
            if path.is_file()
        }
        with contextlib.suppress(OSError):
            lines = (common / "packed-refs").read_text("utf-8", "replace").splitlines()
            known |= {line.split(" ")[1][11:]: 0.0 for line in lines if " refs/heads/" in line}
        ours = [name for name in known if not name.startswith(("explore/", "extract/"))]
        usual = [name for name in ("main", "master") if name in ours]
        return usual[0] if usual else max(ours, key=known.__getitem__, default="main")

    def _mend_objects(self, kept: Path) -> list[str]:
        """Moves damaged objects aside and restores missing ones from the work tree or a remote."""
        done: list[str] = []
        moved = 0
        for _ in range(_ROUNDS):
            missing, damaged = self._lost()
            objects = self._repository.common_folder() / "objects"
            present = [place for name in damaged if (place := objects / name).exists()]
            for place in present:
                _keep(place, kept)
                place.chmod(0o600)
                place.unlink()
            moved += len(present)
            if not present:
                break
        if moved:
            done.append(f"damaged objects were moved aside: {moved}")
        if not (missing or moved):
            return done
        before = len(missing)
        self._rewrite_from_files()
        for name in self._remote.names() if self._lost()[0] else []:
            with contextlib.suppress(GitFailed):
                self._repository.run("fetch", "--quiet", "--refetch", name, seconds=NETWORK_SECONDS)
        after = len(self._lost()[0])
        if after < max(before, moved):
            done.append("lost objects were restored from the current files or a remote")
        if after:
            back = "`git fetch --refetch` from a copy on another machine restores them"
            done.append(f"objects that are still lost: {after}; {back}")
        return done

    def _rewrite_from_files(self) -> None:
        """Writes the blobs and trees of git's index from the files that have not changed."""
        with contextlib.suppress(GitFailed):
            entries = self._repository.staged([])
            root = self._repository.root
            plain = [path for path in entries if (root / path).is_file() and "\n" not in path]
            if plain:
                given = "".join(f"{path}\n" for path in plain).encode("utf-8", "surrogateescape")
                self._repository.run("hash-object", "-w", "--stdin-paths", stdin=given)
            with self._index_of(entries) as index:
                self._repository.run("write-tree", index=index)

    def _mend_branch(self, kept: Path) -> list[str]:
        """Moves a branch whose last commit is lost to its newest intact commit."""
        branch = self._repository.branch()
        if branch is None or self._repository.head() is not None or not self._repository.head_problem():
            return []
        common = self._repository.common_folder()
        for found in self._former_commits(branch):
            try:
                self._repository.run("ls-tree", "-r", "-z", found)
            except GitFailed:
                continue
            loose = common / "refs" / "heads" / branch
            if loose.exists():
                _keep(loose, kept)
                loose.unlink()
            self._repository.run("update-ref", "-m", "repair", f"refs/heads/{branch}", found)
            self._reset_index(found, kept)
            return [f"the branch {branch} had lost its last commit; it is at {found[:10]} now, and no file has changed"]
        return []

    def _former_commits(self, branch: str) -> Iterator[str]:
        """Yields the branch's former commits from the reflogs, newest first, then those of remotes and our tags."""
        common = self._repository.common_folder()
        for log in (common / "logs" / "refs" / "heads" / branch, self._repository.folder() / "logs" / "HEAD"):
            with contextlib.suppress(OSError):
                for line in reversed(log.read_text("utf-8", "replace").splitlines()):
                    yield from reversed(line.split(" ")[:2])
        with contextlib.suppress(GitFailed):
            yield from self._repository.text(
                "for-each-ref", "--sort=-committerdate", "--format=%(objectname)", "refs/remotes/", "refs/tags/memory/"
            ).split()

    def _mend_last_commit(self, kept: Path) -> list[str]:
        """Commits the current files on top of a last commit that is damaged."""
        head = self._repository.head()
        if head is None or not self._trial():
            return []
        root = self._repository.root
        there = [path for path in self._repository.staged([]) if os.path.lexists(root / path)]
        with self._repository.index_of(None) as index:
            self._repository.run("update-index", "--add", "-z", "--stdin", index=index, stdin=nul(there))
            tree = self._repository.text("write-tree", index=index)
        commit = self._committer.put(tree, [head], "maintenance: the current files, after a repair")
        self._repository.run("update-ref", "-m", "repair", "HEAD", commit, head)
        self._reset_index(commit, kept)
        return [f"the last commit was damaged; the commit {commit[:10]} has all current files"]

    def _reset_index(self, commit: str, kept: Path) -> None:
        """Resets git's index to the commit, so that differing files are shown as changed, not as staged."""
        _keep(self._repository.folder() / "index", kept)
        with contextlib.suppress(FileNotFoundError):
            (self._repository.folder() / "index").unlink()
        self._repository.run("read-tree", commit)

    @contextlib.contextmanager
    def _index_of(self, entries: dict[str, str]) -> Iterator[Path]:
        with self._repository.index_of(None) as index:
            known = {path: entry for path, entry in entries.items() if entry != "conflict"}
            self._repository.set_entries(index, known)
            yield index


def _keep(place: Path, kept: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        kept.mkdir(exist_ok=True)
        shutil.copy2(place, kept / place.name)
