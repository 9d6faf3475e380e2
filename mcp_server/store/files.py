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
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused, Unavailable

LOCAL = ".local"
_TEMPORARY = re.compile(r"\.cm-[0-9a-f]{16}\.tmp")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\:]")
_BINARY = getattr(os, "O_BINARY", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file as the folder lists it. Sizes in bytes."""

    path: str
    size: int
    mtime_ns: int


class WorkspaceFiles:
    """Reads and writes files below `root` and, for `.local/…`, below `local`. Nothing outside is ever touched."""

    def __init__(self, root: Path, local: Path | None = None) -> None:
        self.root = Path(os.path.realpath(root))
        self.local = Path(os.path.realpath(local)) if local is not None else self.root / LOCAL

    def resolve(self, path: str) -> Path:
        """The real place of `path`. Raises Refused for anything that leaves the workspace, or could on some machine."""
        parts = _parts(path)
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
        with self._explaining(path, "read"), real.open("rb") as stream:
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
        """As `write_atomic`. `mode` is the file's new mode; by default it keeps its own, a new one is the user's
        alone."""
        real = self.resolve(path)
        with self._explaining(path, "write"):
            _make_folders(real.parent)
            temporary = real.parent / f".cm-{secrets.token_hex(8)}.tmp"
            try:
                _write_new(temporary, data, mode if mode is not None else _mode_of(real))
                if new:
                    _put_if_absent(temporary, real, path)
                else:
                    if expected is not None and (not real.exists() or real.read_bytes() != expected):
                        raise Conflict(f"{path} was changed by somebody else in between; read it again and repeat")
                    _replace(temporary, real)
            except BaseException:
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            _sync_folder(real.parent)

    def append_durable(self, path: str, data: bytes, at_offset: int) -> int:
        """Writes `data` at byte `at_offset`, where the intact file ends, cuts off what stood after it; returns the
        new size.

        For callers that hold the file's lock and know that nothing after `at_offset` was ever acknowledged. If it
        fails, the file ends at `at_offset`. Raises Refused for a read-only file, Conflict for one that is shorter
        than that.
        """
        real = self.resolve(path)
        with self._explaining(path, "write"):
            handle = os.open(real, os.O_WRONLY | _BINARY | _CLOSE_ON_EXEC)
            try:
                found = os.fstat(handle)
                if found.st_size < at_offset:
                    raise Conflict(f"{path} has {found.st_size} bytes, {at_offset} were expected; somebody cut it")
                if found.st_size > at_offset:
                    os.ftruncate(handle, at_offset)
                try:
                    os.lseek(handle, at_offset, os.SEEK_SET)
                    _write_all(handle, data)
                    _sync(handle)
                except OSError:
                    with contextlib.suppress(OSError):
                        os.ftruncate(handle, at_offset)
                        _sync(handle)
                    raise
            finally:
                os.close(handle)
        return at_offset + len(data)

    def walk(self, prefix: str = "") -> Iterator[FileStat]:
        """Every file below a folder, in the order of names; none if there is no such folder.

        Hidden files and folders, symbolic links and names that are no text are left out.
        """
        clean = self.relative(prefix) if prefix.strip("/") else ""
        top = self.resolve(clean) if clean not in ("", ".") else self.root
        yield from _walk(top, "" if clean in ("", ".") else f"{clean}/")

    def move(self, path: str, to: str) -> None:
        """Renames a file or folder, durably. Raises Conflict if something stands at `to`."""
        source, target = self.resolve(path), self.resolve(to)
        if not source.exists():
            raise self._missing(path)
        if target.exists():
            raise Conflict(f"{to} exists already; move it away or choose another name")
        with self._explaining(to, "write"):
            _make_folders(target.parent)
            source.rename(target)
            _sync_folder(target.parent)
            _sync_folder(source.parent)

    def remove(self, path: str) -> None:
        """Deletes a file, durably. Raises NotFound with the nearest name."""
        real = self.resolve(path)
        with self._explaining(path, "write"):
            real.unlink()
            _sync_folder(real.parent)

    def make_folder(self, path: str) -> None:
        """Creates a folder and those above it, for the user alone; one that exists is left as it is."""
        real = self.resolve(path)
        with self._explaining(str(real) if real == self.root else path, "write"):
            _make_folders(real)

    def remove_leftovers(self, older_than_ns: int) -> int:
        """Deletes temporary files last written before `older_than_ns` (epoch), that crashed writes left; returns
        how many."""
        removed = 0
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name != ".git"]
            for name in names:
                if _TEMPORARY.fullmatch(name):
                    leftover = Path(folder, name)
                    with contextlib.suppress(OSError):
                        if leftover.stat().st_mtime_ns < older_than_ns:
                            leftover.unlink()
                            removed += 1
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
        case errno.ENAMETOOLONG:
            return Refused(f"{path[:60]}… is too long for a file name; choose a shorter one")
        case _:
            return Unavailable(f"cannot {doing} {path}: {error.strerror or error}; check the disk")


def _parts(path: str) -> list[str]:
    """The parts of a relative path that means the same file on every system."""
    if not path.strip():
        raise Refused("the path is empty; name a file inside the workspace, such as knowledge/memory/MEMORY.md")
    found = _FORBIDDEN.search(path)
    if found:
        raise Refused(
            f"{path!r} holds {found.group()!r}, which no path here may; use letters, digits, '-', '_', '.' and '/'"
        )
    if path.startswith(("/", "~")):
        raise Refused(f"{path!r} is absolute; give a path relative to the workspace")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for part in parts:
        if part == "..":
            raise Refused(f"{path!r} leaves the workspace ('..'); give a path inside it")
        if part.lower() == ".git":
            raise Refused(f"{path!r} leads into git's own folder; use the history tools instead")
        if _DEVICE.fullmatch(part) or part.endswith((".", " ")):
            raise Refused(f"{path!r} holds {part!r}, a name that Windows reserves; choose another one")
        if len(part.encode()) > 255:
            raise Refused(f"{part[:60]}… is too long for a file name; choose a shorter one")
    return parts


def _walk(folder: Path, prefix: str) -> Iterator[FileStat]:
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:  # no such folder, or one that we may not read
        return
    for entry in entries:
        if entry.name.startswith(".") or not _is_text(entry.name):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield FileStat(prefix + entry.name, found.st_size, found.st_mtime_ns)
        except OSError:  # gone since it was listed
            continue


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8
        return False
    return True


def _make_folders(folder: Path) -> None:
    """As `mkdir -p` with mode 0700; a new folder's name is on disk before anything is put into it."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        _sync_folder(folder.parent)


def _mode_of(real: Path) -> int:
    try:
        return stat.S_IMODE(real.stat().st_mode)
    except OSError:
        return 0o600


def _write_new(temporary: Path, data: bytes, mode: int) -> None:
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY | _CLOSE_ON_EXEC, 0o600)
    try:
        _write_all(handle, data)
        if mode != 0o600 and hasattr(os, "fchmod"):
            os.fchmod(handle, mode)
        _sync(handle)
    finally:
        os.close(handle)


def _put_if_absent(temporary: Path, real: Path, path: str) -> None:
    """A hard link is the one way to name a file only if nobody else has done so."""
    taken = Conflict(f"{path} exists already; read it first, or choose another name")
    try:
        os.link(temporary, real)
    except FileExistsError:
        raise taken from None
    except OSError:  # a file system without hard links
        if real.exists():
            raise taken from None
        _replace(temporary, real)
    else:
        temporary.unlink()


def _replace(temporary: Path, real: Path) -> None:
    if sys.platform == "win32" and real.exists():  # Windows refuses to replace a read-only file
        real.chmod(0o600)
    temporary.replace(real)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _sync(handle: int) -> None:
    """Returns once the disk has it. macOS's fsync leaves it in the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
        except OSError:  # a file system that does not know it
            pass
    os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    """A new name is only on disk once its folder is. Windows has no such call and needs none."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY | _CLOSE_ON_EXEC)
    try:
        _sync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems
            raise
    finally:
        os.close(handle)
