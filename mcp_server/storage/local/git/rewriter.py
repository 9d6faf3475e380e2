"""New git objects for those that hold a forgotten text; all others stay as they are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mcp_server.checkpoints.document import parse, render, without_counts
from mcp_server.errors import Invalid
from mcp_server.forgetting.cleaning import cleaned
from mcp_server.storage.local.git.objects import Objects, hash_of, store, tree_entries
from mcp_server.text.forgotten import MARK, NAME, Forgotten

_WHO = re.compile(rb"(author|committer|tagger) (.*) <(.*)> (-?\d+ [+-]\d+)")
_BRANCH, _MODULE = 0o40000, 0o160000


@dataclass(slots=True)
class Rewriter:
    """New objects for old ones. `folder` is where they are written; None: only their hashes are wanted."""

    objects: Objects
    request: Forgotten
    folder: Path | None
    holding: dict[str, list[str]] = field(default_factory=dict)
    """Commits that hold the text themselves, and the first paths that do."""
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
        for line in _headers(head):
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
        said = self._message(message)
        own = own or said != message
        if own:
            self.holding[oid] = list(dict.fromkeys(self._met)) or ["its message"]
        if changed or own:
            # A signature is of the old bytes; it would be wrong.
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
        # Conversations first: what else names them by the words of their files then knows the new ones.
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
        """Returns a checkpoint of a changed conversation without counts of its words; other files unchanged."""
        folder, _, rest = path.removeprefix("checkpoints/").partition("/")
        if not path.startswith("checkpoints/") or not rest or not any(f"-{folder}-" in name for name in self._changed):
            return data
        try:
            return render(without_counts(parse(data.decode(), path))).encode()
        except (Invalid, UnicodeDecodeError):  # edited by hand: cleaned as any other file
            return data

    def _renamed(self, data: bytes) -> bytes:
        """Returns a file with the new names of conversations."""
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
            if old in text:  # the subject names a conversation by the words of its file
                text = re.sub(r"\A(conversation: )[^\n]*", rf"\1{NAME}", text.replace(old, new))
        return self.request.clean(text, MARK, names=True).encode("utf-8", "surrogateescape")

    def _who(self, found: re.Match[bytes]) -> bytes:
        role, name, mail, when = found.groups()
        clean = [os.fsencode(self.request.name(os.fsdecode(part))) for part in (name, mail)]
        return b"%s %s <%s> %s" % (role, clean[0], clean[1], when)

    def _write(self, kind: str, data: bytes, like: str) -> str:
        """Stores an object as git does, durably, and returns its hash."""
        oid = hash_of(kind, data, like)
        if self.folder is not None:
            store(self.folder, kind, data, oid)
        return oid


def _headers(head: bytes) -> list[bytes]:
    """Returns the headers of a commit, each with its continuation lines."""
    return re.sub(rb"\n(?! )", b"\0", head).split(b"\0")


def _free(name: bytes, taken: Iterable[bytes]) -> bytes:
    stem, dot, ending = name.rpartition(b".")
    wanted, number = name, 2
    while wanted in set(taken):
        wanted = b"%s-%d%s%s" % ((stem, number, dot, ending) if stem else (name, number, b"", b""))
        number += 1
    return wanted
