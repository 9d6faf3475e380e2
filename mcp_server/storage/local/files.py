"""The workspace's files: every path is checked, every write is atomic and on disk before it is acknowledged.

`.local/` may be outside the workspace: a setting moves it away from synchronized drives.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused, Unavailable
from mcp_server.storage.files import Files, file_name, is_usable, parts_of
from mcp_server.storage.local import durable
from mcp_server.storage.sqlite import inode_of
from mcp_server.storage.values import LOCAL, FileStat


def _walk(folder: Path, prefix: str) -> Iterator[FileStat]:
    """Yields every file below `folder`, ordered by name, with `prefix` before its path; nothing if the folder is
    missing."""
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:  # the folder is missing or not readable
        return
    for entry in entries:
        if entry.name.startswith(".") or not is_usable(entry.name):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield FileStat(prefix + entry.name, found.st_size, found.st_mtime_ns, not found.st_mode & 0o222)
        except OSError:  # deleted since it was listed
            continue


SETTLED_NS = 2_000_000_000
"""Nanoseconds. If a folder changed less than this before it was listed, its listing is not cached, because another
change may leave the mtime equal."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """The names of the subfolders and markdown files of a folder whose mtime was `mtime_ns`."""

    mtime_ns: int
    folders: tuple[str, ...]
    names: tuple[str, ...]


class WorkspaceFiles(Files):
    """Reads and writes files below `root` and, for `.local/…`, below `local`, and never outside of them."""

    def __init__(self, root: Path, local: Path | None = None) -> None:
        self.root = Path(os.path.realpath(root))
        self.local = Path(os.path.realpath(local)) if local is not None else self.root / LOCAL
        self._seen = inode_of(self.root)
        self._folders: dict[str, _Listed] = {}

    def check_there(self) -> None:
        """Raises Unavailable if the workspace was moved or deleted while in use, instead of creating it again.

        Another workspace in its place, such as a restored copy, is accepted.
        """
        now = inode_of(self.root)
        if now == self._seen:
            return
        if self._seen and not _holds_more_than_local(self.root):  # the hook command leaves its queue there
            raise Unavailable(
                f"the workspace {self.root} is gone: it was moved or deleted while in use, so nothing is written; move "
                "it back, or start again with its new place in --workspace or CONTEXT_MANAGER_HOME"
            )
        self._seen = now

    def resolve(self, path: str) -> Path:
        """Returns the absolute path of `path`, links resolved. Raises Refused if it leads out of the workspace, or
        could on some system."""
        parts = parts_of(path)
        base, rest = (self.local, parts[1:]) if parts[:1] == (LOCAL,) else (self.root, parts)
        try:
            real = Path(os.path.realpath(base.joinpath(*rest)))
        except (OSError, ValueError) as error:  # a loop of symbolic links
            raise Refused(f"{path!r} cannot be followed: {error}; use a path inside the workspace") from error
        if real != base and base not in real.parents:
            raise Refused(
                f"{path!r} leads out of the workspace through a symbolic link; only files inside it can be used"
            )
        if base is self.root and any(part.lower() == ".git" for part in real.relative_to(base).parts):
            raise Refused(f"{path!r} leads into git's own folder; use the history tools instead")
        return real

    def relative(self, path: str) -> str:
        """Returns `path` as the index stores it: without `.` and doubled slashes, symbolic links resolved."""
        real = self.resolve(path)
        if real == self.local or self.local in real.parents:
            return "/".join((LOCAL, *real.relative_to(self.local).parts))
        return real.relative_to(self.root).as_posix()

    def exists(self, path: str) -> bool:
        return self.resolve(path).exists()

    def stat(self, path: str) -> FileStat:
        try:
            found = self.resolve(path).stat()
        except OSError as error:
            raise self._explained(error, path, "read") from error
        return FileStat(path, found.st_size, found.st_mtime_ns, not found.st_mode & 0o222)

    def version(self, path: str) -> tuple[int, int, int] | None:
        try:
            found = (self.root / path).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def is_folder(self, path: str) -> bool:
        return self.resolve(path).is_dir()

    def read_bytes(self, path: str, start: int = 0, size: int = -1) -> bytes:
        real = self.resolve(path)
        try:
            with durable.opened(real) as stream:
                stream.seek(start)
                return stream.read(size)
        except OSError as error:
            raise self._explained(error, path, "read") from error

    def bytes_or_none(self, path: str) -> bytes | None:
        real = self.resolve(path)
        try:
            return durable.content(real)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._explained(error, path, "read") from error

    def write_bytes_atomic(
        self,
        path: str,
        data: bytes,
        expected: bytes | None = None,
        *,
        new: bool = False,
        sealed: bool = False,
        mode: int | None = None,
    ) -> None:
        """Replaces the file's bytes. `mode` is as in `durable.put`."""
        real = self.resolve(path)
        with self._writing(path):
            durable.put(real, data, path, expected, new=new, mode=0o444 if sealed else mode)

    def write_all_atomic(self, folder: str, contents: Mapping[str, bytes], *, synced: bool = True) -> None:
        real = self.resolve(folder)
        with self._writing(folder):
            durable.put_all(real, {real / file_name(name): data for name, data in contents.items()}, synced=synced)

    def append_durable(self, path: str, data: bytes, at_offset: int) -> int:
        real = self.resolve(path)
        with self._writing(path):
            return durable.append(real, data, at_offset, path)

    def append_log(self, path: str, line: bytes, most: int) -> None:
        place = self.resolve(path)
        with self._writing(path):
            durable.make_folders(place.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(place, flags, 0o600), "ab", buffering=0) as log:
                log.write(line)
                is_full = log.tell() > most
            if is_full:
                place.replace(place.with_name(f"{place.stem}.1{place.suffix}"))

    def walk(self, prefix: str = "") -> Iterator[FileStat]:
        clean = self.relative(prefix) if prefix.strip("/") else ""
        top = self.resolve(clean) if clean not in ("", ".") else self.root
        yield from _walk(top, "" if clean in ("", ".") else f"{clean}/")

    def unusable(self, prefix: str) -> Iterator[str]:
        top, base = self.resolve(prefix), f"{self.relative(prefix)}/"
        for here, folders, names in os.walk(top):
            kept = [name for name in folders if not name.startswith(".")]
            odd = [name for name in (*kept, *names) if not name.startswith(".") and not is_usable(name)]
            folders[:] = sorted(name for name in kept if name not in odd)
            yield from (base + Path(here, name).relative_to(top).as_posix() for name in sorted(odd))

    def everything(self) -> Iterator[str]:
        for base, prefix in ((self.root, ""), (self.local, f"{LOCAL}/")):
            for folder, names, found in os.walk(base):
                here = Path(folder)
                names[:] = sorted(name for name in names if name != ".git" and here / name != self.local)
                for name in sorted(found):
                    if _is_file(here / name):
                        yield prefix + (here / name).relative_to(base).as_posix()

    def unnamed(self, path: str, most: int) -> bytes | None:
        if all(map(is_usable, path.split("/"))) or path.startswith(f"{LOCAL}/"):
            return None
        try:
            with durable.opened(self.root / path) as stream:
                return stream.read(most)
        except OSError:
            return None

    def names(self, prefix: str, part: str) -> list[str]:
        # Folders that have not changed are not listed again.
        found: list[str] = []
        waiting = [prefix.rstrip("/") + "/"]
        while waiting:
            folder = waiting.pop()
            listed = self._listed_folder(folder)
            if listed is not None:
                found += [folder + name for name in listed.names if part in name]
                waiting += [f"{folder}{name}/" for name in listed.folders]
        return found

    def _listed_folder(self, folder: str) -> _Listed | None:
        real = self.root / folder
        try:
            mtime_ns = real.stat().st_mtime_ns
            known = self._folders.get(folder)
            if known is not None and known.mtime_ns == mtime_ns:
                return known
            now = time.time_ns()
            with os.scandir(real) as entries:
                shown = [entry for entry in entries if not entry.name.startswith(".")]
                folders = tuple(entry.name for entry in shown if entry.is_dir(follow_symlinks=False))
                names = tuple(
                    entry.name for entry in shown if entry.name.endswith(".md") and entry.is_file(follow_symlinks=False)
                )
        except OSError:
            self._folders.pop(folder, None)
            return None
        listed = _Listed(mtime_ns, folders, names)
        if 0 <= mtime_ns < now - SETTLED_NS:
            self._folders[folder] = listed
        return listed

    def contents(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        # Faster than calling `read_bytes` for each file, because paths from `_walk` need no check for links.
        base, top = self.relative(prefix), self.resolve(prefix)
        for found in _walk(top, ""):
            with contextlib.suppress(OSError):
                yield f"{base}/{found.path}", (top / found.path).read_bytes()

    def move(self, path: str, to: str) -> None:
        source, target = self.resolve(path), self.resolve(to)
        if not source.exists():
            raise self.missing(path)
        if target.exists():
            raise Conflict(f"{to} exists already; move it away or choose another name")
        with self._writing(to):
            durable.make_folders(target.parent)
            source.rename(target)
            durable.sync_folder(target.parent)
            durable.sync_folder(source.parent)

    def remove(self, path: str) -> None:
        real = self.resolve(path)
        with self._writing(path):
            durable.delete(real)
            durable.sync_folder(real.parent)

    def remove_all(self, folder: str, names: Iterable[str]) -> None:
        real, removed = self.resolve(folder), False
        with self._writing(folder):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    durable.delete(real / file_name(name))
                    removed = True
            if removed:
                durable.sync_folder(real)

    def remove_folder(self, path: str) -> None:
        shutil.rmtree(self.resolve(path), ignore_errors=True)

    def remove_empty(self, folder: str) -> None:
        real = self.resolve(folder)
        while real != self.root and self.root in real.parents:
            try:
                real.rmdir()
            except OSError:
                return
            real = real.parent

    def erase(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            with self.resolve(path).open("r+b") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(0)
                stream.write(b"\0" * size)
                stream.flush()
                os.fsync(stream.fileno())
            self.remove(path)

    def make_folder(self, path: str) -> None:
        """Creates a folder and its parents, for this user only. Does nothing if it exists."""
        real = self.resolve(path)
        with self._writing(str(real) if real == self.root else path):
            durable.make_folders(real)

    def remove_leftovers(self) -> None:
        elsewhere = [] if self.root in self.local.parents else [self.local]
        for folder, folders, names in (entry for base in (self.root, *elsewhere) for entry in os.walk(base)):
            folders[:] = [name for name in folders if name != ".git"]
            if any(durable.TEMPORARY.fullmatch(name) for name in names):
                durable.remove_abandoned(Path(folder))

    def missing(self, path: str) -> NotFound:
        try:
            return super().missing(path)
        except (OSError, ContextManagerError):  # not a path in the workspace, or a folder that cannot be listed
            return NotFound(f"no file {path!r}; use search to find stored texts")

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        """Checks that the workspace exists, and turns each OSError of the body into a ContextManagerError."""
        self.check_there()
        try:
            yield
        except OSError as error:
            raise self._explained(error, path, "write") from error

    def _explained(self, error: OSError, path: str, doing: str) -> ContextManagerError:
        match error:
            case FileNotFoundError():
                return self.missing(path)
            case IsADirectoryError():
                return Invalid(f"{path} is a folder; name a file in it")
            case NotADirectoryError() | FileExistsError():
                return Invalid(f"{path}: a part of this path is a file, not a folder; choose another path")
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                return Unavailable(f"the disk is full, {path} was not written; free some space and try again")
            case errno.EROFS:
                return Unavailable(
                    f"the disk is read-only, {path} was not written; mount it writable or move the workspace"
                )
            case errno.EACCES | errno.EPERM:
                return Unavailable(f"not allowed to {doing} {path}; check the permissions of the file and its folder")
            case errno.EINVAL | errno.ENXIO if doing == "read":
                return Refused(f"{path} is a pipe or a device, not a plain file; name another one")
            case errno.ENAMETOOLONG:
                return Refused(f"{path[:60]}… is too long for a file name; choose a shorter one")
            case _:
                return Unavailable(f"cannot {doing} {path}: {error.strerror or error}; check the disk")


def _is_file(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        return False


def _holds_more_than_local(root: Path) -> bool:
    try:
        return any(found.name != LOCAL for found in root.iterdir())
    except OSError:
        return False
