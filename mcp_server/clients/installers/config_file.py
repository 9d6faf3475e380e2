"""A client's configuration file: read as bytes, changed as text, written back whole, with a backup beside it."""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mcp_server.errors import Conflict, ContextManagerError, Invalid, Refused, Unavailable
from mcp_server.store import durable
from mcp_server.store.files import WorkspaceFiles

_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What stood in a file when it was read. `path` as it is named, `real` where symbolic links lead."""

    path: Path
    real: Path
    data: bytes | None
    """Its bytes; None if there is no file."""

    @property
    def text(self) -> str:
        """Its text, without the byte order mark. Raises Invalid for what is no UTF-8."""
        data = (self.data or b"").removeprefix(codecs.BOM_UTF8)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise Invalid(f"{self.path}: line {line}: not UTF-8 text; save the file as UTF-8 and try again") from None

    def encoded(self, text: str) -> bytes:
        """`text` as this file keeps it: with a byte order mark if it has one."""
        mark = codecs.BOM_UTF8 if (self.data or b"").startswith(codecs.BOM_UTF8) else b""
        return mark + text.encode("utf-8")


def read(path: Path) -> ConfigFile:
    """The file as it is, symbolic links followed. Raises Invalid for a folder, Unavailable if it cannot be read."""
    real = Path(os.path.realpath(path))
    try:
        if real.is_dir():
            raise Invalid(f"{path} is a folder, and should be a file; move it away and try again")
        if real.exists() and real.stat().st_size > _LARGEST:
            raise Invalid(f"{path} is larger than any configuration; look what is in it")
        data = real.read_bytes()
    except FileNotFoundError:
        data = None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}; check its permissions") from None
    return ConfigFile(path, real, data)


def refuse_read_only(file: ConfigFile) -> None:
    """Raises Refused if its owner made the file read-only: replacing it would go around that."""
    if file.data is not None and not stat.S_IMODE(file.real.stat().st_mode) & 0o222:
        managed = f" (it is {file.real})" if file.real != file.path else ""
        raise Refused(
            f"{file.path} is read-only{managed}; make it writable, or add the entry yourself where it is made "
            "(install --print shows it)"
        )


def write(file: ConfigFile, data: bytes) -> None:
    """Puts `data` in its place, durably, with the permissions it has; a new file is the user's alone.

    Raises Conflict if the file is another one by now, Unavailable for a full or read-only disk.
    """
    folder = WorkspaceFiles(file.real.parent)
    durable.remove_abandoned(file.real.parent)
    try:
        folder.write_bytes_atomic(file.real.name, data, file.data, new=file.data is None)
    except Conflict:
        raise Conflict(f"{file.path} was just changed by another program; try again") from None
    except ContextManagerError as error:
        raise type(error)(f"{error} (in {file.real.parent})") from None


def back_up(file: ConfigFile) -> Path:
    """A copy beside the file, with the same permissions, under the next free number; returns its path."""
    assert file.data is not None
    mode = stat.S_IMODE(file.real.stat().st_mode)
    folder = WorkspaceFiles(file.real.parent)
    number = 1
    while True:
        name = f"{file.real.name}.context-manager-backup-{number}"
        try:
            folder.write_bytes_atomic(name, file.data, new=True, mode=mode)
        except Conflict:
            number += 1
        except ContextManagerError as error:
            raise type(error)(f"{error} (in {file.real.parent})") from None
        else:
            return file.real.parent / name


def digest(data: bytes | None) -> str:
    """SHA-256 of a file's bytes; empty for none."""
    return "" if data is None else hashlib.sha256(data).hexdigest()
