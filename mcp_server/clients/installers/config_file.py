"""A client's configuration file: read as bytes, changed as text, written back whole, with a backup beside it."""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from mcp_server.errors import Conflict, ContextManagerError, Invalid, Refused, Unavailable
from mcp_server.storage.local import durable
from mcp_server.storage.local.files import WorkspaceFiles

_LARGEST = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file as it was read. `real` is `path` with symbolic links resolved; `data` is None if there is no file."""

    path: Path
    real: Path
    data: bytes | None

    @property
    def text(self) -> str:
        """The file's text without the byte order mark. Raises Invalid if it is not UTF-8."""
        data = (self.data or b"").removeprefix(codecs.BOM_UTF8)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise Invalid(f"{self.path}: line {line}: not UTF-8 text; save the file as UTF-8 and try again") from None

    def encoded(self, text: str) -> bytes:
        """Returns the bytes of `text`, with a byte order mark if the file has one."""
        mark = codecs.BOM_UTF8 if (self.data or b"").startswith(codecs.BOM_UTF8) else b""
        return mark + text.encode("utf-8")


def read(path: Path) -> ConfigFile:
    """Reads a file, following symbolic links. Raises Invalid for a folder, Unavailable if it cannot be read."""
    real = Path(os.path.realpath(path))
    try:
        if real.is_dir():
            raise Invalid(f"{path} is a folder, and should be a file; move it away and try again")
        if real.exists() and real.stat().st_size > _LARGEST:
            raise Invalid(f"{path} is larger than 64 MB, so not a configuration; check its content")
        data = real.read_bytes()
    except FileNotFoundError:
        data = None
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}; check its permissions") from None
    return ConfigFile(path, real, data)


def refuse_read_only(file: ConfigFile) -> None:
    """Raises Refused if the file is read-only, because replacing it would circumvent that."""
    if file.data is not None and not stat.S_IMODE(file.real.stat().st_mode) & 0o222:
        managed = f" (it is {file.real})" if file.real != file.path else ""
        raise Refused(
            f"{file.path} is read-only{managed}; make it writable, or add the entry (install --print shows it) "
            "to the file that it is generated from"
        )


def write(file: ConfigFile, data: bytes) -> None:
    """Replaces the file's content durably and keeps its permissions. Only this user can read a new file.

    Raises Conflict if the file has changed since it was read, Unavailable for a full or read-only disk.
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
    """Copies the file to the next free backup name, with the same permissions, and returns the copy's path."""
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
    """Returns the SHA-256 of a file's bytes; "" if there is no file."""
    return "" if data is None else hashlib.sha256(data).hexdigest()
