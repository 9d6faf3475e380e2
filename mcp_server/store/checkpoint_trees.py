"""The knowledge as it is at a moment, committed or not: what a checkpoint keeps of it, in git or as copies.

What goes in is the same for both: every file of `knowledge/` and `topics/`, and `anchors.yaml`. Left out, with the
reason, is what may not be copied or is too large.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from mcp_server.core.text.redaction import secrets
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.store import copied_trees, git_repository
from mcp_server.store.copied_trees import CopiedTrees
from mcp_server.store.files import WorkspaceFiles
from mcp_server.store.git_repository import Repository
from mcp_server.store.git_trees import GitTrees

FOLDERS = ("knowledge/", "topics/")
ANCHORS = "anchors.yaml"
LARGEST = 5_000_000
"""Bytes of a file that is kept; knowledge is text, and larger files have their own place (`attachments/`)."""

log = logging.getLogger(__name__)


class Trees(Protocol):
    """Where files are kept under a number, and given back byte for byte."""

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]: ...
    def put(self, number: str, contents: Mapping[str, bytes]) -> str: ...
    def tree_of(self, number: str) -> str | None: ...
    def names(self, tree: str) -> dict[str, str]: ...
    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]: ...
    def remove(self, number: str) -> None: ...
    def numbers(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A tree that was kept, by its name, and the files that it does not hold, each with the reason."""

    tree: str
    left_out: tuple[tuple[str, str], ...] = ()


class CheckpointTrees:
    """The port. Methods are synchronous: call them in a worker thread. They need no lock: nobody else's files, index or
    branch is touched."""

    def __init__(self, files: WorkspaceFiles) -> None:
        self._files = files
        self._copies = CopiedTrees(files)
        self._repository = Repository(files.root)

    def take(self, number: str, more: Iterable[str] = ()) -> Taken:
        """Keeps the knowledge as it is now under a checkpoint's number, and the files `more` beside it. With git in its
        store, else (or where git refuses) as copies. Raises Unavailable if the disk takes neither."""
        contents, left_out = self._contents(more)
        for trees in self._places():
            try:
                secret = _with_secrets(trees, contents)
                wanted = {path: data for path, data in contents.items() if path not in secret}
                return Taken(trees.put(number, wanted), tuple(sorted({**left_out, **secret}.items())))
            except Unavailable as error:
                if trees is self._copies:
                    raise
                log.warning("the checkpoint's knowledge is kept as copies: %s", error)
        raise AssertionError  # the copies are always asked

    def refused(self) -> dict[str, str]:
        """The files that `take` would leave out now, each with the reason."""
        contents, left_out = self._contents(())
        for trees in self._places():
            try:
                return {**left_out, **_with_secrets(trees, contents)}
            except Unavailable:  # then `take` makes copies
                continue
        return left_out

    def clean(self, number: str, clean: Callable[[str, bytes], bytes | None]) -> bool:
        """Keeps under a checkpoint's number what `clean` (path, bytes) makes of its files, None for none, in the place
        of what is there; False if that is the same."""
        changed = False
        for trees in self._places():
            tree = trees.tree_of(number)
            if tree is None:
                continue
            before = trees.read(tree, trees.names(tree))
            after = {path: data for path, raw in before.items() if (data := clean(path, raw)) is not None}
            if after != before:
                trees.put(number, after)
                changed = True
        return changed

    def names(self, tree: str) -> dict[str, str]:
        """The files of a tree: path → name of the bytes, comparable within one tree's kind. Raises Unavailable."""
        return self._of(tree).names(tree)

    def read(self, tree: str, paths: Iterable[str] | None = None) -> dict[str, bytes]:
        """The bytes of these files of a tree, by default of all; those that it does not have are left out."""
        return self._of(tree).read(tree, self.names(tree) if paths is None else paths)

    def remove(self, number: str) -> None:
        """Lets go of a checkpoint's tree; nothing happens where there is none. What git keeps, `sweep` finds later."""
        for trees in self._places():
            try:
                trees.remove(number)
            except Unavailable as error:
                log.warning("the tree of %s was not cleared away: %s", number, error)

    def sweep(self, kept: frozenset[str]) -> int:
        """Lets go of every tree but those of these checkpoints; returns how many. For one who is alone with them."""
        stale = 0
        for trees in self._places():
            try:
                for number in trees.numbers() - kept:
                    trees.remove(number)
                    stale += 1
            except Unavailable as error:  # a broken repository: the copies are cleared away all the same
                log.warning("trees without a checkpoint were not cleared away: %s", error)
        self._copies.sweep()
        return stale

    def current(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of these files as they are on disk; those that are not there are left out."""
        return {path: data for path in paths if (data := self._bytes(path)) is not None}

    def paths(self) -> list[str]:
        """Every file of the knowledge as it is on disk."""
        listed = [stat.path for folder in FOLDERS for stat in self._files.walk(folder)]
        return listed + ([ANCHORS] if self._files.exists(ANCHORS) else [])

    def _contents(self, more: Iterable[str]) -> tuple[dict[str, bytes], dict[str, str]]:
        contents: dict[str, bytes] = {}
        left_out: dict[str, str] = {}
        for path in dict.fromkeys((*self.paths(), *more)):
            data = self._bytes(path)
            if data is None:
                continue
            if "\n" in path or "\t" in path:
                left_out[path] = "has a name with a line break or a tab"
            elif len(data) > LARGEST:
                left_out[path] = f"has {len(data):,} bytes, over {LARGEST:,}"
            else:
                contents[path] = data
        return contents, left_out

    def _places(self) -> Iterator[Trees]:
        if git_repository.version() is not None and self._repository.exists():
            yield GitTrees(self._repository)
        yield self._copies

    def _of(self, tree: str) -> Trees:
        if tree.startswith(copied_trees.PREFIX):
            return self._copies
        if git_repository.version() is None:
            raise Unavailable(git_repository.NEEDS_GIT)
        return GitTrees(self._repository)

    def _bytes(self, path: str) -> bytes | None:
        try:
            return self._files.read_bytes(path) if self._files.exists(path) else None
        except ContextManagerError:  # gone since it was listed, or not ours to read
            return None


def _with_secrets(trees: Trees, contents: Mapping[str, bytes]) -> dict[str, str]:
    """The files that hold a secret, and which kind. What is kept already tells nothing new."""
    kinds = {
        path: sorted({found.kind for found in secrets(contents[path].decode("utf-8", "replace"))})
        for path in sorted(contents.keys() - trees.known(contents))
    }
    return {path: f"holds a secret ({', '.join(some)})" for path, some in kinds.items() if some}
