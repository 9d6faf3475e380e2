"""Git's objects by their hash: read through one `cat-file` that stays open, written as git writes them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

from mcp_server.errors import Unavailable
from mcp_server.storage.local.git.repository import NEEDS_GIT, plain_environment


class Objects:
    """Objects by their hash, from one `cat-file` that stays open."""

    def __init__(self, root: Path, every: bool = False) -> None:
        which = ("--batch-all-objects", "--unordered") if every else ()
        try:
            self._process = subprocess.Popen(
                command("cat-file", "--batch", *which),
                cwd=root,
                env=environment(root, {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except FileNotFoundError as error:
            raise Unavailable(NEEDS_GIT) from error
        self._kinds: dict[str, str] = {}

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()

    def read(self, oid: str) -> tuple[str, bytes]:
        """Returns kind and bytes of an object; ("missing", b"") if it does not exist."""
        assert self._process.stdin is not None
        self._process.stdin.write(oid.encode() + b"\n")
        self._process.stdin.flush()
        found = self._next()
        return ("missing", b"") if found is None else found[1:]

    def all(self) -> Iterator[tuple[str, str, bytes]]:
        """Yields all objects; only if opened with `every`."""
        while (found := self._next()) is not None:
            yield found

    def exists(self, oid: str) -> bool:
        """Returns whether an object exists."""
        if not oid.strip("0"):
            return False
        if oid not in self._kinds:
            self._kinds[oid] = self.read(oid)[0]
        return self._kinds[oid] != "missing"

    def commit_of(self, oid: str) -> str | None:
        """Returns the commit of an object, or of the tag that it is; None for a tree, a blob or a missing object."""
        while oid.strip("0"):
            kind, data = self.read(oid)
            if kind != "tag":
                return oid if kind == "commit" else None
            oid = data.split(b"\n", 1)[0].removeprefix(b"object ").decode()
        return None

    def _next(self) -> tuple[str, str, bytes] | None:
        stream = self._process.stdout
        assert stream is not None
        about = stream.readline().decode().split()
        if len(about) != 3:
            return None
        oid, kind, size = about
        data = stream.read(int(size))
        stream.read(1)
        return oid, kind, data


def command(*arguments: str) -> list[str]:
    settings = ("core.quotePath=false", f"core.hooksPath={os.devnull}", "core.logAllRefUpdates=false")
    return ["git", *(part for setting in settings for part in ("-c", setting)), *arguments]


def environment(root: Path, more: dict[str, str]) -> dict[str, str]:
    """Returns the environment for git in this repository: without the variables of a hook, and without replaced
    objects."""
    ours = {"GIT_DIR": str(root / ".git"), "GIT_WORK_TREE": str(root), "GIT_NO_REPLACE_OBJECTS": "1"}
    return {**plain_environment(), **ours, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **more}


def tree_entries(data: bytes, size: int) -> Iterator[tuple[int, bytes, bytes]]:
    position = 0
    while position < len(data):
        space = data.index(b" ", position)
        end = data.index(b"\0", space)
        yield int(data[position:space], 8), data[space + 1 : end], data[end + 1 : end + 1 + size]
        position = end + 1 + size


def put(file: Path, data: bytes, mode: int | None = None) -> None:
    temporary = file.with_name(f"tmp_obj_{secrets.token_hex(8)}")  # a name that `git prune` clears away
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(mode if mode is not None else file.stat().st_mode & 0o777)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def hash_of(kind: str, data: bytes, like: str) -> str:
    """Returns the id of an object, in the hash format of the id `like`."""
    whole = f"{kind} {len(data)}\0".encode() + data
    return (hashlib.sha256 if len(like) == 64 else hashlib.sha1)(whole).hexdigest()


def store(folder: Path, kind: str, data: bytes, oid: str) -> None:
    """Stores an object under its hash in `.git/objects`, durably."""
    place = folder / oid[:2] / oid[2:]
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        put(place, zlib.compress(f"{kind} {len(data)}\0".encode() + data, 1), mode=0o444)
