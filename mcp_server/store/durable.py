"""Writing so that a crash at any moment leaves the old file or the new one, and what was acknowledged is on disk.

Paths are real ones that the caller has checked; `path` is how a person calls the file. OSErrors come as they are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from mcp_server.errors import Conflict

TEMPORARY = re.compile(r"\.cm-[0-9a-f]{16}\.tmp")
"""Names of files that are being written; `remove_abandoned` deletes those that a crash left."""

NEW_SECONDS = 10.0
"""A temporary file younger than this may belong to a writer that has not locked it yet."""

LONGEST_WRITE_SECONDS = 3600.0
"""Where files cannot be locked, a temporary file older than this has no writer any more."""

BUSY_SECONDS = 2.0
"""So long Windows may refuse to replace a file that somebody is just reading."""

_BINARY = getattr(os, "O_BINARY", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)


def opened(real: Path) -> BinaryIO:
    """A plain file, for reading. Raises OSError, with EINVAL for what is none: a pipe would never be opened, and a
    device never end."""
    handle = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY | _CLOSE_ON_EXEC)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(real))
        raise OSError(errno.EINVAL, "it is no plain file", str(real))
    return os.fdopen(handle, "rb")


def put(real: Path, data: bytes, path: str, expected: bytes | None = None, *, new: bool, mode: int | None) -> None:
    """Puts `data` in the file's place as a whole. Conflict if it is not as `expected`, or with `new` is there at all.

    `mode` is the file's new mode; by default it keeps its own, a new one is the user's alone.
    """
    make_folders(real.parent)
    temporary = real.parent / f".cm-{secrets.token_hex(8)}.tmp"
    try:
        with _written(temporary, data, mode if mode is not None else _mode_of(real)):
            if new:
                _put_if_absent(temporary, real, path)
            else:
                if expected is not None and (not real.exists() or _content(real) != expected):
                    raise Conflict(f"{path} was changed by somebody else in between; read it again and repeat")
                replace(temporary, real)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(real.parent)


def put_all(folder: Path, places: Mapping[Path, bytes], *, synced: bool) -> None:
    """Puts each file of `folder` in its place as a whole; the folder waits for the disk once, at the end. Without
    `synced` nothing waits: a crash of the machine, not of the process, may leave files of it empty or missing."""
    make_folders(folder)
    for real, data in places.items():
        temporary = folder / f".cm-{secrets.token_hex(8)}.tmp"
        try:
            with _written(temporary, data, 0o600, synced=synced):
                replace(temporary, real)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    if synced:
        sync_folder(folder)


def append(real: Path, data: bytes, at_offset: int, path: str) -> int:
    """Writes `data` at byte `at_offset` and cuts off what stood after it; returns the new size.

    If it fails, the file ends at `at_offset`. Raises Conflict for a file that is shorter than that.
    """
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


def make_folders(folder: Path) -> None:
    """As `mkdir -p` with mode 0700; a new folder's name is on disk before anything is put into it."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        sync_folder(folder.parent)


def replace(temporary: Path, real: Path) -> None:
    """Puts one file in the place of another, as a whole. Not durable by itself: `sync_folder` is."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            temporary.replace(real)
        except PermissionError:  # Windows, where the file is read-only, or somebody is reading it
            if os.name != "nt" or time.monotonic() > deadline:
                raise
            with contextlib.suppress(OSError):
                real.chmod(0o600)
            time.sleep(0.01)
        else:
            return


def delete(real: Path) -> None:
    """Deletes a file, also a read-only one, which Windows alone would refuse."""
    if os.name == "nt":
        real.chmod(0o600)
    real.unlink()


def _content(real: Path) -> bytes:
    with opened(real) as stream:
        return stream.read()


def _mode_of(real: Path) -> int:
    try:
        return stat.S_IMODE(real.stat().st_mode)
    except OSError:
        return 0o600


def remove_abandoned(folder: Path) -> int:
    """Deletes the temporary files in a folder that crashed writes left; returns how many."""
    removed = 0
    with contextlib.suppress(OSError):
        for found in folder.iterdir():
            if TEMPORARY.fullmatch(found.name) and _is_abandoned(found):
                with contextlib.suppress(OSError):
                    found.unlink()
                    removed += 1
    return removed


def _is_abandoned(temporary: Path) -> bool:
    """Returns whether no living process is writing a temporary file: its writer locks it until it is in its place."""
    try:
        age = time.time() - temporary.stat().st_mtime
        if age < NEW_SECONDS:
            return False
        handle = os.open(temporary, os.O_RDONLY | _BINARY | _CLOSE_ON_EXEC)
    except OSError:
        return False
    try:
        locked = _lock(handle)
    finally:
        os.close(handle)
    return age > LONGEST_WRITE_SECONDS if locked is None else locked


def _lock(handle: int) -> bool | None:
    """Locks an open file for this process; False if another one has locked it, None where files cannot be locked."""
    if sys.platform == "win32":
        return None  # a locked file could not be renamed
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems
        return None
    return True


@contextlib.contextmanager
def _written(temporary: Path, data: bytes, mode: int, *, synced: bool = True) -> Iterator[None]:
    """Writes a new file and keeps it locked while the body puts it into its place (`remove_abandoned` skips it)."""
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY | _CLOSE_ON_EXEC, 0o600)
    try:
        locked = _lock(handle)
        _write_all(handle, data)
        if mode != 0o600 and hasattr(os, "fchmod"):
            os.fchmod(handle, mode)
        if synced:
            _sync(handle)
        if locked:
            yield
    finally:
        os.close(handle)
    if not locked:
        yield  # Windows renames no open file


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
        replace(temporary, real)
    else:
        temporary.unlink()


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


def sync_folder(folder: Path) -> None:
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
