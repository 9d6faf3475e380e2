"""Git's objects by their hash, and the trees of checkpoints, which are kept as objects.

Objects are read through one `cat-file` that stays open. Each checkpoint tree is held by `refs/memory/checkpoints/{id}`,
outside of all branches; its bytes are stored unchanged (no filter, no line ends), the user's index and work tree are
not touched, and the objects are on disk before the ref is written.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from pathlib import Path
from typing import IO

from mcp_server.errors import Unavailable
from mcp_server.storage.git_process import GitFailed, plain_environment, running_git
from mcp_server.storage.history_values import object_id
from mcp_server.storage.local.git.repository import Repository

REFS = "refs/memory/checkpoints/"
PREFIX = "git:"
UNREPLACED = {"GIT_NO_REPLACE_OBJECTS": "1"}
"""The environment in which git reads the objects themselves, not those that replace them."""

_ON_DISK = ("-c", "core.fsync=loose-object,reference")


class GitTrees:
    """Trees of one repository. Methods raise Unavailable where git is missing or refuses."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        names = self._names(contents)
        asked = "".join(f"{name}\n" for name in dict.fromkeys(names.values())).encode()
        said = self._repository.text("cat-file", "--batch-check", stdin=asked) if asked else ""
        held = {line.split(" ")[0] for line in said.splitlines() if not line.endswith(" missing")}
        return frozenset(path for path, name in names.items() if name in held)

    def put(self, number: str, contents: Mapping[str, bytes], known: Set[str] | None = None) -> str:
        names, known = self._names(contents), self.known(contents) if known is None else known
        self._write({path: (name, contents[path]) for path, name in names.items() if path not in known})
        with self._repository.index_of(None) as index:
            self._repository.set_entries(index, {path: f"100644 {name}" for path, name in names.items()})
            tree = self._repository.text(*_ON_DISK, "write-tree", index=index)
        self._repository.run(*_ON_DISK, "update-ref", REFS + number, tree)
        return f"{PREFIX}{number}"

    def tree_of(self, number: str) -> str | None:
        return f"{PREFIX}{number}" if number in self.numbers() else None

    def names(self, tree: str) -> dict[str, str]:
        """Returns the files of a tree: path -> git's id of the bytes. Raises Unavailable if it is not here."""
        number = tree.removeprefix(PREFIX)
        try:
            entries = self._repository.entries_of(REFS + number, [])
        except GitFailed as error:
            raise Unavailable(
                f"the knowledge of checkpoint {number} is not in this repository; it was made on another machine, or "
                f"was deleted ({error})"
            ) from error
        return {path: entry.split(" ")[1] for path, entry in entries.items()}

    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
        names = self.names(tree)
        wanted = {path: names[path] for path in paths if path in names}
        with objects_of(self._repository.root) as objects:
            found = {path: objects.read(name) for path, name in wanted.items()}
        if lost := [path for path, (kind, _) in found.items() if kind == "missing"]:
            raise Unavailable(
                f"git has lost {lost[0]} of {tree}; `context-manager doctor --repair` repairs what it can"
            )
        return {path: data for path, (_, data) in found.items()}

    def remove(self, number: str) -> None:
        """Deletes the ref of the tree under a number; git deletes its objects when it cleans up."""
        self._repository.run("update-ref", "-d", REFS + number)

    def numbers(self) -> frozenset[str]:
        listed = self._repository.text("for-each-ref", "--format=%(refname)", REFS)
        return frozenset(line.removeprefix(REFS) for line in listed.splitlines())

    def _names(self, contents: Mapping[str, bytes]) -> dict[str, str]:
        return {path: object_id(data, self._empty) for path, data in contents.items()}

    @cached_property
    def _empty(self) -> str:
        """The id of an empty file. Its length shows the repository's hash function."""
        return self._repository.text("hash-object", "-t", "blob", "--stdin", stdin=b"")

    def _write(self, missing: Mapping[str, tuple[str, bytes]]) -> None:
        """Writes blobs: from their files, many at once, or from the bytes read before if a file has changed since."""
        if not missing:
            return
        write = (*_ON_DISK, "hash-object", "-w", "--no-filters")
        paths = b"".join(os.fsencode(path) + b"\n" for path in missing)
        try:
            written = self._repository.text(*write, "--stdin-paths", stdin=paths).split()
        except GitFailed:  # one of the files was deleted meanwhile
            written = []
        for name, data in missing.values():
            if name not in written:
                self._repository.run(*write, "--stdin", stdin=data)


@contextlib.contextmanager
def objects_of(root: Path, *, every: bool = False) -> Iterator[Objects]:
    """Opens the objects of the repository in `root/.git`. With `every`, only `all` may be called."""
    which = ("--batch-all-objects", "--unordered") if every else ()
    environment = plain_environment() | {"GIT_DIR": str(root / ".git"), "GIT_WORK_TREE": str(root)} | UNREPLACED
    with running_git(root, "cat-file", "--batch", *which, environment=environment) as (ask, answers):
        yield Objects(ask, answers)


class Objects:
    """Objects by their hash, from one `cat-file` that stays open."""

    def __init__(self, ask: IO[bytes], answers: IO[bytes]) -> None:
        self._ask = ask
        self._answers = answers

    def read(self, oid: str) -> tuple[str, bytes]:
        """Returns kind and bytes of an object; ("missing", b"") if it does not exist."""
        self._ask.write(oid.encode() + b"\n")
        self._ask.flush()
        found = self._next()
        return ("missing", b"") if found is None else found[1:]

    def all(self) -> Iterator[tuple[str, str, bytes]]:
        while (found := self._next()) is not None:
            yield found

    def exists(self, oid: str) -> bool:
        return bool(oid.strip("0")) and self.read(oid)[0] != "missing"

    def commit_of(self, oid: str) -> str | None:
        """Returns the commit of an object, or of the tag that it is; None for a tree, a blob or a missing object."""
        while oid.strip("0"):
            kind, data = self.read(oid)
            if kind != "tag":
                return oid if kind == "commit" else None
            oid = data.split(b"\n", 1)[0].removeprefix(b"object ").decode()
        return None

    def _next(self) -> tuple[str, str, bytes] | None:
        about = self._answers.readline().decode().split()
        if len(about) != 3:
            return None
        oid, kind, size = about
        data = self._answers.read(int(size))
        self._answers.read(1)
        return oid, kind, data


def tree_entries(data: bytes, size: int) -> Iterator[tuple[int, bytes, bytes]]:
    position = 0
    while position < len(data):
        space = data.index(b" ", position)
        end = data.index(b"\0", space)
        yield int(data[position:space], 8), data[space + 1 : end], data[end + 1 : end + 1 + size]
        position = end + 1 + size


def put(file: Path, data: bytes, mode: int | None = None) -> None:
    temporary = file.with_name(f"tmp_obj_{secrets.token_hex(8)}")  # `git prune` deletes files of such names
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(mode if mode is not None else file.stat().st_mode & 0o777)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def store(folder: Path, kind: str, data: bytes, oid: str) -> None:
    """Stores an object under its hash in `.git/objects`, durably."""
    place = folder / oid[:2] / oid[2:]
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        put(place, zlib.compress(f"{kind} {len(data)}\0".encode() + data, 1), mode=0o444)
