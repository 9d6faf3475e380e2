"""Checkpoint trees in git's object store, each held by `refs/memory/checkpoints/{id}`, outside of all branches.

Bytes are stored unchanged (no filter, no line ends). The user's index and work tree are not touched. The objects are on
disk before the ref is written.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping

from mcp_server.errors import Unavailable
from mcp_server.storage.local.git.repository import Failed, Repository, nul

REFS = "refs/memory/checkpoints/"
PREFIX = "git:"
_ON_DISK = ("-c", "core.fsync=loose-object,reference")


class GitTrees:
    """Trees of one repository. Methods raise Unavailable where git is missing or refuses."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def known(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        """Returns the paths whose bytes git has already, under any name."""
        try:
            names = self._names(contents)
            held = self._held(names.values())
        except Failed as error:
            raise Unavailable(f"git could not look for the knowledge as it is: {error}") from error
        return frozenset(path for path, name in names.items() if name in held)

    def put(self, number: str, contents: Mapping[str, bytes]) -> str:
        """Stores these files under a number, replacing those before. Returns the name of the tree."""
        try:
            names = self._names(contents)
            held = self._held(names.values())
            missing = [path for path, name in names.items() if name not in held]
            self._write({path: (names[path], contents[path]) for path in missing})
            tree = self._tree(names)
            self._repository.run(*_ON_DISK, "update-ref", REFS + number, tree)
        except Failed as error:
            raise Unavailable(f"git could not keep the knowledge as it is: {error}") from error
        return f"{PREFIX}{number}"

    def tree_of(self, number: str) -> str | None:
        """Returns the name of the tree under a number; None if there is none."""
        return f"{PREFIX}{number}" if number in self.numbers() else None

    def names(self, tree: str) -> dict[str, str]:
        """Returns the files of a tree: path -> git's id of the bytes. Raises Unavailable if it is not here."""
        number = tree.removeprefix(PREFIX)
        try:
            entries = self._repository.entries_of(REFS + number, [])
        except Failed as error:
            raise Unavailable(
                f"the knowledge of checkpoint {number} is not in this repository; it was made on another machine, or "
                f"was deleted ({error})"
            ) from error
        return {path: entry.split(" ")[1] for path, entry in entries.items()}

    def read(self, tree: str, paths: Iterable[str]) -> dict[str, bytes]:
        """Returns the bytes of these files of a tree; missing ones are left out."""
        names = self.names(tree)
        wanted = {path: names[path] for path in paths if path in names}
        if not wanted:
            return {}
        blobs = dict.fromkeys(wanted.values())
        try:
            said = self._repository.run("cat-file", "--batch", stdin="".join(f"{name}\n" for name in blobs).encode())
        except Failed as error:
            raise Unavailable(f"git could not read the knowledge of a checkpoint: {error}") from error
        found, place = {}, 0
        for name in blobs:
            end = said.index(b"\n", place)
            size = int(said[place:end].rsplit(b" ", 1)[1])
            found[name] = said[end + 1 : end + 1 + size]
            place = end + 1 + size + 1
        return {path: found[name] for path, name in wanted.items()}

    def remove(self, number: str) -> None:
        """Lets go of what is kept under a number; git clears it away when it cleans up."""
        try:
            self._repository.run("update-ref", "-d", REFS + number)
        except Failed as error:
            raise Unavailable(f"git could not delete the checkpoint's tree: {error}") from error

    def numbers(self) -> frozenset[str]:
        """Returns the numbers of all trees."""
        try:
            listed = self._repository.text("for-each-ref", "--format=%(refname)", REFS)
        except Failed as error:
            raise Unavailable(f"git could not list the checkpoints' trees: {error}") from error
        return frozenset(line.removeprefix(REFS) for line in listed.splitlines())

    def _names(self, contents: Mapping[str, bytes]) -> dict[str, str]:
        empty = self._repository.text("hash-object", "-t", "blob", "--stdin", stdin=b"")
        kind = hashlib.sha256 if len(empty) == 64 else hashlib.sha1
        return {path: kind(b"blob %d\0" % len(data) + data).hexdigest() for path, data in contents.items()}

    def _held(self, names: Iterable[str]) -> frozenset[str]:
        asked = "".join(f"{name}\n" for name in dict.fromkeys(names)).encode()
        said = self._repository.text("cat-file", "--batch-check", stdin=asked) if asked else ""
        return frozenset(line.split(" ")[0] for line in said.splitlines() if not line.endswith(" missing"))

    def _write(self, missing: Mapping[str, tuple[str, bytes]]) -> None:
        """Writes blobs: many at once from their files, and what was changed there meanwhile from what was read."""
        if not missing:
            return
        write = (*_ON_DISK, "hash-object", "-w", "--no-filters")
        paths = b"".join(os.fsencode(path) + b"\n" for path in missing)
        try:
            written = self._repository.text(*write, "--stdin-paths", stdin=paths).split()
        except Failed:  # one of them is gone by now
            written = []
        for name, data in missing.values():
            if name not in written:
                self._repository.run(*write, "--stdin", stdin=data)

    def _tree(self, names: Mapping[str, str]) -> str:
        index = self._repository.folder() / f"context-manager-{secrets.token_hex(8)}.index"
        try:
            lines = [f"100644 {name}\t{path}" for path, name in names.items()]
            self._repository.run("update-index", "-z", "--index-info", index=index, stdin=nul(lines))
            return self._repository.text(*_ON_DISK, "write-tree", index=index)
        finally:
            for leftover in (index, index.with_name(index.name + ".lock")):
                leftover.unlink(missing_ok=True)
