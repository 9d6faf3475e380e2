"""The workspace's files: every path checked, every write whole and on disk before it is acknowledged.

Methods are synchronous and short; actions call those that may take over a millisecond through a worker thread.
Paths are POSIX strings relative to the workspace; those under `.local/` may lie elsewhere (a setting moves it off
synchronised drives).
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused, Unavailable
from mcp_server.store import durable
from mcp_server.store.paths import LOCAL, parts_of
from mcp_server.store.walking import FileStat as FileStat  # those who list files know it from here
from mcp_server.store.walking import unusable, walk


class WorkspaceFiles:
    """Reads and writes files below `root` and, for `.local/…`, below `local`. Nothing outside is ever touched."""

    def __init__(self, root: Path, local: Path | None = None) -> None:
        self.root = Path(os.path.realpath(root))
        self.local = Path(os.path.realpath(local)) if local is not None else self.root / LOCAL
        self._seen = _inode(self.root)

    def check_there(self) -> None:
        """Raises Unavailable if the workspace was moved or deleted since: it is not made anew at its old place, where
        nobody would look for what is written. Another workspace in that place (a copy that was restored) will do."""
        now = _inode(self.root)
        if now == self._seen:
            return
        if self._seen and not _holds_more_than_local(self.root):  # the hook command leaves its queue there
            raise Unavailable(
                f"the workspace {self.root} is gone: it was moved or deleted while in use, so nothing is written; put "
                "it back, or start again with --workspace or CONTEXT_MANAGER_HOME naming its new place"
            )
        self._seen = now

    def resolve(self, path: str) -> Path:
        """The real place of `path`. Raises Refused for anything that leaves the workspace, or could on some machine."""
        parts = parts_of(path)
        base, rest = (self.local, parts[1:]) if parts[:1] == [LOCAL] else (self.root, parts)
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
        """`path` in the one form that stands in the index: without `.` and doubled slashes, symbolic links followed."""
        real = self.resolve(path)
        if real == self.local or self.local in real.parents:
            return "/".join((LOCAL, *real.relative_to(self.local).parts))
        return real.relative_to(self.root).as_posix()

    def exists(self, path: str) -> bool:
        """True if there is a file or a folder. Raises Refused as `resolve` does."""
        return self.resolve(path).exists()

    def stat(self, path: str) -> FileStat:
        """Size and time of a file. Raises NotFound with the nearest name."""
        with self._explaining(path, "read"):
            found = self.resolve(path).stat()
            return FileStat(path, found.st_size, found.st_mtime_ns)

    def read_bytes(self, path: str, start: int = 0, size: int = -1) -> bytes:
        """The file, or `size` bytes of it from `start` on. Raises NotFound naming the nearest, Invalid for a folder."""
        real = self.resolve(path)
        with self._explaining(path, "read"), durable.opened(real) as stream:
            stream.seek(start)
            return stream.read(size)

    def read_text(self, path: str) -> str:
        """The file's text, line ends as they are. Raises NotFound with the nearest name, Invalid for a binary file."""
        data = self.read_bytes(path)
        if b"\0" in data:
            raise Invalid(f"{path} is a binary file (it holds NUL bytes); only text can be read")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise Invalid(f"{path}: line {line}: not UTF-8 text (byte {error.start}); save it as UTF-8") from error

    def text_or_none(self, path: str) -> str | None:
        """As `read_text`; None where there is no such file."""
        return self.read_text(path) if self.exists(path) else None

    def readable(self, path: str) -> str | None:
        """As `text_or_none`, and None for a file that holds no text, which `doctor` names: for those who read many, of
        which a broken one stops no other."""
        try:
            return self.text_or_none(path)
        except Invalid:
            return None

    def write_atomic(self, path: str, text: str, expected: str | None = None, *, new: bool = False) -> None:
        """Puts `text` in the file's place, durably and whole: a reader or a crash sees the old file or the new one.

        `expected` is the text that was read before: Conflict if the file is another one by now. `new`: Conflict if
        there is a file at all. Raises Unavailable for a full or read-only disk; then nothing has changed.
        """
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Invalid(
                f"{path}: character {error.start + 1} is half of a surrogate pair and cannot be written"
            ) from error
        self.write_bytes_atomic(path, data, None if expected is None else expected.encode("utf-8", "replace"), new=new)

    def write_bytes_atomic(
        self, path: str, data: bytes, expected: bytes | None = None, *, new: bool = False, mode: int | None = None
    ) -> None:
        """As `write_atomic`. `mode` is the file's new mode: by default its own; a new one is the user's alone."""
        real = self.resolve(path)
        with self._explaining(path, "write"):
            durable.put(real, data, path, expected, new=new, mode=mode)

    def write_all_atomic(self, folder: str, contents: Mapping[str, bytes], *, synced: bool = True) -> None:
        """Writes files of one folder by their names, each as `write_bytes_atomic` does; all are on disk when it
        returns, and of those that a crash cut off each is the old one or the new one. Without `synced` it does not wait
        for the disk: for copies of what is on it."""
        real = self.resolve(folder)
        with self._explaining(folder, "write"):
            durable.put_all(real, {real / _plain(name): data for name, data in contents.items()}, synced=synced)

    def append_durable(self, path: str, data: bytes, at_offset: int) -> int:
        """Writes `data` at byte `at_offset`, where the intact file ends, cuts off what stood after it; returns the
        new size.

        For callers that hold the file's lock and know that nothing after `at_offset` was ever acknowledged. If it
        fails, the file ends at `at_offset`. Raises Refused for a read-only file, Conflict for one that is shorter
        than that.
        """
        real = self.resolve(path)
        with self._explaining(path, "write"):
            return durable.append(real, data, at_offset, path)

    def walk(self, prefix: str = "") -> Iterator[FileStat]:
        """Every file below a folder, in the order of names; none if there is no such folder.

        Hidden files and folders, symbolic links and names that no path here may have are left out.
        """
        clean = self.relative(prefix) if prefix.strip("/") else ""
        top = self.resolve(clean) if clean not in ("", ".") else self.root
        yield from walk(top, "" if clean in ("", ".") else f"{clean}/")

    def unusable(self, prefix: str) -> Iterator[str]:
        """Paths below a folder that `walk` leaves out for their names."""
        yield from unusable(self.resolve(prefix), f"{self.relative(prefix)}/")

    def contents(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Path and bytes of every file below a folder, as `walk` lists them; what cannot be read, or has gone
        meanwhile, is left out. Faster than to read one by one: no link leads out of what `walk` lists."""
        base, top = self.relative(prefix), self.resolve(prefix)
        for found in walk(top, ""):
            with contextlib.suppress(OSError):
                yield f"{base}/{found.path}", (top / found.path).read_bytes()

    def move(self, path: str, to: str) -> None:
        """Renames a file or folder, durably. Raises Conflict if something stands at `to`."""
        source, target = self.resolve(path), self.resolve(to)
        if not source.exists():
            raise self._missing(path)
        if target.exists():
            raise Conflict(f"{to} exists already; move it away or choose another name")
        with self._explaining(to, "write"):
            durable.make_folders(target.parent)
            source.rename(target)
            durable.sync_folder(target.parent)
            durable.sync_folder(source.parent)

    def remove(self, path: str) -> None:
        """Deletes a file, durably. Raises NotFound with the nearest name."""
        real = self.resolve(path)
        with self._explaining(path, "write"):
            durable.delete(real)
            durable.sync_folder(real.parent)

    def remove_all(self, folder: str, names: Iterable[str]) -> None:
        """Deletes files of one folder, durably; those that are not there are passed over."""
        real, removed = self.resolve(folder), False
        with self._explaining(folder, "write"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    durable.delete(real / _plain(name))
                    removed = True
            if removed:
                durable.sync_folder(real)

    def make_folder(self, path: str) -> None:
        """Creates a folder and those above it, for the user alone; one that exists is left as it is."""
        real = self.resolve(path)
        with self._explaining(str(real) if real == self.root else path, "write"):
            durable.make_folders(real)

    def remove_leftovers(self) -> int:
        """Deletes the temporary files that crashed writes left; returns how many."""
        removed = 0
        elsewhere = [] if self.root in self.local.parents else [self.local]
        for folder, folders, names in (entry for base in (self.root, *elsewhere) for entry in os.walk(base)):
            folders[:] = [name for name in folders if name != ".git"]
            if any(durable.TEMPORARY.fullmatch(name) for name in names):
                removed += durable.remove_abandoned(Path(folder))
        return removed

    def free_bytes(self) -> int:
        """What the disk of the workspace still has room for."""
        return shutil.disk_usage(self.root).free

    def nearest(self, path: str) -> str | None:
        """The file whose path or name is most like `path`, if any is."""
        known = [found.path for found in islice(self.walk(), 5_000)]
        by_path = difflib.get_close_matches(path, known, n=1, cutoff=0.75)
        if by_path:
            return by_path[0]
        by_name = {name.rsplit("/", 1)[-1]: name for name in reversed(known)}
        close = difflib.get_close_matches(path.rsplit("/", 1)[-1], list(by_name), n=1, cutoff=0.75)
        return by_name[close[0]] if close else None

    def _missing(self, path: str) -> NotFound:
        try:
            near = self.nearest(path)
        except (OSError, ContextManagerError):
            near = None
        return NotFound(
            f"no file {path!r}" + (f"; did you mean {near!r}?" if near else "; search finds what is stored")
        )

    @contextlib.contextmanager
    def _explaining(self, path: str, doing: str) -> Iterator[None]:
        """Turns the system's errors into ours."""
        if doing == "write":
            self.check_there()
        try:
            yield
        except FileNotFoundError as error:
            raise self._missing(path) from error
        except IsADirectoryError as error:
            raise Invalid(f"{path} is a folder; name a file in it") from error
        except (NotADirectoryError, FileExistsError) as error:
            raise Invalid(f"{path}: a part of this path is a file, not a folder; choose another path") from error
        except OSError as error:
            raise _explained(error, path, doing) from error


def _inode(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0


def _holds_more_than_local(root: Path) -> bool:
    try:
        return any(found.name != LOCAL for found in root.iterdir())
    except OSError:
        return False


def _plain(name: str) -> str:
    """A name within a folder. Raises Refused for one that leads out of it, or could on some machine."""
    if len(parts_of(name)) != 1:
        raise Refused(f"{name!r} is no name of a file in a folder")
    return name


def _explained(error: OSError, path: str, doing: str) -> ContextManagerError:
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
            return Refused(f"{path} is no plain file but a pipe or a device; name another one")
        case errno.ENAMETOOLONG:
            return Refused(f"{path[:60]}… is too long for a file name; choose a shorter one")
        case _:
            return Unavailable(f"cannot {doing} {path}: {error.strerror or error}; check the disk")
