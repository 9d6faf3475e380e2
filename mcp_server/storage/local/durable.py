"""Durable, atomic writes: a crash leaves the old file or the new one, and an acknowledged write is on disk.

The caller resolves and checks the paths; `path` is the file's name in messages. OSErrors are not translated.
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
"""Names of temporary files; `remove_abandoned` deletes those that a crash left."""

NEW_SECONDS = 10.0
"""A temporary file younger than this is never deleted, because its writer may not have locked it yet."""

LONGEST_WRITE_SECONDS = 3600.0
"""If files cannot be locked, a temporary file older than this is abandoned."""

BUSY_SECONDS = 2.0
"""Seconds for which a replacement is retried while Windows refuses it because another program reads the file."""

_BINARY = getattr(os, "O_BINARY", 0)


def opened(real: Path) -> BinaryIO:
    """Opens a plain file for reading. Raises OSError; EINVAL for a pipe or device, which could block or never end."""
    handle = os.open(real, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(real))
        raise OSError(errno.EINVAL, "it is not a plain file", str(real))
    return os.fdopen(handle, "rb")


def content(real: Path) -> bytes:
    """Returns the bytes of a plain file. Raises OSError as `opened` does."""
    with opened(real) as stream:
        return stream.read()


def put(real: Path, data: bytes, path: str, expected: bytes | None = None, *, new: bool, mode: int | None) -> None:
    """Replaces the file atomically. Raises Conflict if its content is not `expected`, or with `new` if it exists.

    `mode` is the file's new mode; by default it keeps its mode, and only this user can read a new file.
    """
    make_folders(real.parent)
    with _written(real.parent, data, mode if mode is not None else _mode_of(real)) as temporary:
        if new:
            _put_if_absent(temporary, real, path)
        else:
            if expected is not None and (not real.exists() or content(real) != expected):
                raise Conflict(f"{path} was changed by another program meanwhile; read it again and repeat")
            replace(temporary, real)
    sync_folder(real.parent)


def put_all(folder: Path, places: Mapping[Path, bytes], *, synced: bool) -> None:
    """Replaces each file of `folder` atomically; the folder is synced once, at the end.

    Without `synced`, nothing is synced: a crash of the machine (not of the process) may leave files empty or missing.
    """
    make_folders(folder)
    for real, data in places.items():
        with _written(folder, data, 0o600, synced=synced) as temporary:
            replace(temporary, real)
    if synced:
        sync_folder(folder)


def append(real: Path, data: bytes, at_offset: int, path: str) -> int:
    """Writes `data` at byte `at_offset`, truncates the file after it, and returns the new size.

    If it fails, the file ends at `at_offset`. Raises Conflict if the file is shorter than that.
    """
    handle = os.open(real, os.O_WRONLY | _BINARY)
    try:
        found = os.fstat(handle)
        if found.st_size < at_offset:
            raise Conflict(f"{path} has {found.st_size} bytes, but {at_offset} were expected; another program cut it")
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
    """Creates a folder and its parents with mode 0700. Syncs the name of a new folder before files are put into it."""
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
    """Renames a file over another one atomically. Call `sync_folder` to make it durable."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            temporary.replace(real)
        except PermissionError:  # Windows: the file is read-only, or another program reads it
            if os.name != "nt" or time.monotonic() > deadline:
                raise
            with contextlib.suppress(OSError):
                real.chmod(0o600)
            time.sleep(0.01)
        else:
            return


def delete(real: Path) -> None:
    """Deletes a file, also a read-only one, which Windows otherwise refuses."""
    if os.name == "nt":
        real.chmod(0o600)
    real.unlink()


def _mode_of(real: Path) -> int:
    try:
        return stat.S_IMODE(real.stat().st_mode)
    except OSError:
        return 0o600


def remove_abandoned(folder: Path) -> None:
    """Deletes the temporary files of crashed writes in a folder."""
    with contextlib.suppress(OSError):
        for found in folder.iterdir():
            if TEMPORARY.fullmatch(found.name) and _is_abandoned(found):
                with contextlib.suppress(OSError):
                    found.unlink()


def _is_abandoned(temporary: Path) -> bool:
    """Returns whether no running process is writing a temporary file. Its writer keeps it locked."""
    try:
        age = time.time() - temporary.stat().st_mtime
        if age < NEW_SECONDS:
            return False
        handle = os.open(temporary, os.O_RDONLY | _BINARY)
    except OSError:
        return False
    try:
        locked = _lock(handle)
    finally:
        os.close(handle)
    return age > LONGEST_WRITE_SECONDS if locked is None else locked


def _lock(handle: int) -> bool | None:
    """Locks an open file. Returns False if another process has locked it, None if files cannot be locked."""
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
def _written(folder: Path, data: bytes, mode: int, *, synced: bool = True) -> Iterator[Path]:
    """Writes a temporary file and yields its path. Keeps it locked while the body renames it, so that
    `remove_abandoned` skips it. Deletes it if anything fails."""
    temporary = folder / f".cm-{secrets.token_hex(8)}.tmp"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        try:
            locked = _lock(handle)
            _write_all(handle, data)
            if mode != 0o600 and hasattr(os, "fchmod"):
                os.fchmod(handle, mode)
            if synced:
                _sync(handle)
            if locked:
                yield temporary
        finally:
            os.close(handle)
        if not locked:
            yield temporary  # Windows cannot rename an open file
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _put_if_absent(temporary: Path, real: Path, path: str) -> None:
    """Renames a file if the new name is free. Uses a hard link, because only that is atomic."""
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
    """Waits until the data is on disk. On macOS, fsync is not enough: it leaves the data in the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
        except OSError:  # the file system does not support it
            pass
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Syncs a folder, so that new names in it are on disk. Windows does not need that."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _sync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems
            raise
    finally:
        os.close(handle)
