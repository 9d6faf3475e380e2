"""The knowledge as it is at a moment, committed or not: what a checkpoint keeps of it, in git or as copies.

What goes in is the same for both: every file of `knowledge/` and `topics/`, and `anchors.yaml`. Left out, with the
reason, is what may not be copied or is too large.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.storage.history_ports import History
from mcp_server.storage.ports import Files, Trees
from mcp_server.text.redaction import secrets

FOLDER = ".local/checkpoints"
PREFIX = "copy:"


class CopiedTrees:
    """The copies of one workspace."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """The paths whose bytes are kept already, under whatever name."""
        return frozenset(path for path, data in contents.items() if self._files.exists(_place(_sha(data))))

    def put(self, number: str, contents: Mapping[str, bytes]) -> str:
        """Keeps these files under a number, durably; returns the name of the whole."""
        names = {path: _sha(data) for path, data in contents.items()}
        folders: dict[str, dict[str, bytes]] = {}
        for path, name in names.items():
            if not self._files.exists(_place(name)):
                folder, _, file = _place(name).rpartition("/")
                folders.setdefault(folder, {})[file] = contents[path]
        for folder, some in folders.items():
            self._files.write_all_atomic(folder, some)
        self._files.write_atomic(_list(number), json.dumps(names, ensure_ascii=True, indent=1, sort_keys=True))
        return PREFIX + number

    def tree_of(self, number: str) -> str | None:
        """The name of what is kept under a number; None for nothing."""
        return PREFIX + number if self._files.exists(_list(number)) else None

    def names(self, tree: str) -> dict[str, str]:
        """The files of a whole: path → SHA-256. Raises Unavailable if it is not here."""
        number = tree.removeprefix(PREFIX)
        try:
            listed = json.loads(self._files.read_text(_list(number)))
            return {str(path): str(name) for path, name in listed.items()}
        except (ContextManagerError, ValueError, AttributeError) as error:
            raise Unavailable(
                f"the knowledge of checkpoint {number} is not on this machine; it was made on another one, or was "
                f"deleted ({error})"
            ) from error

    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
        """The bytes of these files of a whole; those that it does not have are left out."""
        names = self.names(tree)
        return {path: self._files.read_bytes(_place(names[path])) for path in paths if path in names}

    def remove(self, number: str) -> None:
        """Lets go of what is kept under a number; `sweep` clears it away."""
        if self._files.exists(_list(number)):
            self._files.remove(_list(number))

    def numbers(self) -> frozenset[str]:
        """The numbers under which something is kept."""
        listed = (stat.path.removeprefix(f"{FOLDER}/") for stat in self._files.walk(f"{FOLDER}/"))
        return frozenset(name.removesuffix(".json") for name in listed if "/" not in name and name.endswith(".json"))

    def sweep(self) -> int:
        """Deletes contents that nothing names any more; returns how many. For one who is alone with the checkpoints."""
        named = {_place(name) for number in self.numbers() for name in self.names(number).values()}
        stale = [stat.path for stat in self._files.walk(f"{FOLDER}/blobs/") if stat.path not in named]
        for path in stale:
            self._files.remove(path)
        return len(stale)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _place(name: str) -> str:
    return f"{FOLDER}/blobs/{name[:2]}/{name[2:]}"


def _list(number: str) -> str:
    return f"{FOLDER}/{number}.json"


FOLDERS = ("knowledge/", "topics/")
ANCHORS = "anchors.yaml"
LARGEST = 5_000_000
"""Bytes of a file that is kept; knowledge is text, and larger files have their own place (`attachments/`)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """A tree that was kept, by its name, and the files that it does not hold, each with the reason."""

    tree: str
    left_out: tuple[tuple[str, str], ...] = ()


class CheckpointTrees:
    """The port. Methods are synchronous: call them in a worker thread. They need no lock: nobody else's files, index or
    branch is touched."""

    def __init__(self, files: Files, git: History) -> None:
        self._files = files
        self._copies = CopiedTrees(files)
        self._git = git

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
        in_git = self._git.trees()
        if in_git is not None:
            yield in_git
        yield self._copies

    def _of(self, tree: str) -> Trees:
        if tree.startswith(PREFIX):
            return self._copies
        in_git = self._git.trees()
        if in_git is None:
            raise Unavailable(
                "the knowledge of this checkpoint is kept in git: git, or the workspace's repository, was not found; "
                "install git (https://git-scm.com), or recover the repository, and try again"
            )
        return in_git

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
