"""Exports of chat services: `conversations.json`, large ones in parts `conversations-000.json`, …, in a zip, in a
folder that was unpacked from one, alone, or in several zips that were downloaded into one folder (claude.ai, since
August 2026). Nothing is ever unpacked: a zip's entries are read as streams, their names only looked at.
"""

from __future__ import annotations

import contextlib
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mcp_server.clients.importers.imported import Skipped
from mcp_server.clients.importers.json_stream import items_in
from mcp_server.errors import Invalid, NotFound, Unavailable

SUFFIX = ".zip"
BOMB_BYTES, BOMB_RATIO = 1024**3, 200
"""An entry that would grow to so many bytes, and to so many times its packed size, is no text that people wrote."""

_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError)
"""What reading an entry that is broken, encrypted or packed in an unknown way raises."""

_CONVERSATIONS = re.compile(r"conversations(-\d+)?\.json", re.IGNORECASE)
_DOCUMENTS = re.compile(
    r"(?:.*[/\\ ])?(?:(projects|memories)(?:-\d+)?\.json|(projects|memories)[/\\][^/\\]+\.json)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Part:
    """One list of conversations: `name` for reports, its `size` in bytes (unpacked), and how to open it."""

    name: str
    size: int
    open: Callable[[], contextlib.AbstractContextManager[IO[bytes]]]


def parts(path: Path) -> list[Part | Skipped]:
    """What `path` holds: the file itself, or everything called `conversations.json` (or a part of it) inside, for a
    folder also what the zips in it hold.

    Raises:
        Unavailable, Invalid: it cannot be read, or is a broken zip.
    """
    try:
        if path.is_dir():
            files = sorted(found for found in path.rglob("*.json") if _CONVERSATIONS.fullmatch(found.name))
            plain = [_file(found, str(found.relative_to(path))) for found in files if found.is_file()]
            return plain + [item for found in sorted(path.glob("*.zip")) for item in _inside(found)]
        if not zipfile.is_zipfile(path):
            return [] if document_kind(path.name) else [_file(path, path.name)]
        return _zipped(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}; check its permissions") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise Invalid(f"{path} is a broken zip ({error}); download it again") from None


def others(path: Path) -> list[Part | Skipped]:
    """Returns every other file of the export: in its zips, and around the `conversations.json` of a folder.

    Raises as `parts` does.
    """
    try:
        if path.is_dir():
            folders = {found.parent for found in path.rglob("*.json") if _CONVERSATIONS.fullmatch(found.name)}
            folders |= {path} if any(_DOCUMENTS.fullmatch(found.name) for found in path.glob("*.json")) else set()
            files = sorted({found for folder in folders for found in folder.rglob("*") if found.is_file()})
            files = [file for file in files if not _CONVERSATIONS.fullmatch(file.name) and file.suffix != SUFFIX]
            plain = [_file(file, file.relative_to(path).as_posix()) for file in files]
            return plain + [
                item for found in sorted(path.glob("*.zip")) for item in _inside(found, conversations=False)
            ]
        if not zipfile.is_zipfile(path):
            return [_file(path, path.name)] if document_kind(path.name) else []
        return _zipped(path, conversations=False)
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}; check its permissions") from None


def document_kind(name: str) -> str:
    """Returns `projects` or `memories` for a file of claude.ai's export that holds those, else nothing."""
    found = _DOCUMENTS.fullmatch(name)
    return (found[1] or found[2]).lower() if found else ""


def holds_zips(path: Path) -> bool:
    """True if there are zips inside of a zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.lower().endswith(SUFFIX) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def is_manifest(path: Path, head: str) -> bool:
    """True for the list of downloads that claude.ai sends instead of an export."""
    return path.name.lower().startswith("manifest") and "https://" in head and SUFFIX in head


def conversations(part: Part, told: Callable[[int], None] = lambda _: None) -> Iterator[Any]:
    """The conversations of one part, one at a time; `told` gets the bytes read.

    Raises:
        Invalid, NotFound, Unavailable: it is not JSON, is damaged or encrypted, is gone.
    """
    try:
        with part.open() as file:
            yield from items_in(file, part.name, told)
    except FileNotFoundError:
        raise NotFound(f"{part.name} is gone; import what is there now") from None
    except _DAMAGED as error:
        raise Invalid(
            f"{part.name} cannot be unpacked ({error}); unpack the zip yourself and import the folder"
        ) from None
    except OSError as error:
        raise Unavailable(f"{part.name} cannot be read: {error.strerror or error}; check its permissions") from None


def head(path: Path, size: int) -> bytes:
    """The first bytes of what `path` holds; empty if it holds nothing that can be read."""
    try:
        for part in (*parts(path), *(other for other in others(path) if document_kind(other.name))):
            if isinstance(part, Part):
                with part.open() as file:
                    return file.read(size)
    except (Invalid, Unavailable, OSError, *_DAMAGED):
        pass
    return b""


def _zipped(path: Path, *, conversations: bool = True) -> list[Part | Skipped]:
    with zipfile.ZipFile(path) as archive:
        entries = [
            entry
            for entry in archive.infolist()
            if (_CONVERSATIONS.fullmatch(_last_part(entry.filename)) is not None) is conversations
            and (conversations or not entry.is_dir())
        ]
    return [_entry(path, entry) for entry in sorted(entries, key=lambda entry: entry.filename)]


def _inside(path: Path, *, conversations: bool = True) -> list[Part | Skipped]:
    """As `_zipped`, of one zip among others: a broken one keeps none of them from being read."""
    try:
        return _zipped(path, conversations=conversations) if path.is_file() else []
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        if not conversations:
            return []  # `parts` names it
        return [Skipped(path.name, f"a broken zip ({error}); download it again")]


def _file(path: Path, name: str) -> Part:
    return Part(name, path.stat().st_size, lambda: path.open("rb"))


def _entry(path: Path, entry: zipfile.ZipInfo) -> Part | Skipped:
    name = f"{path.name}: {entry.filename}"
    if entry.flag_bits & 0x1:
        return Skipped(name, "encrypted")
    if entry.file_size > BOMB_BYTES and entry.file_size > BOMB_RATIO * max(1, entry.compress_size):
        return Skipped(name, f"would grow to {entry.file_size / 1024**3:.0f} GB, {BOMB_RATIO} times its size and more")

    @contextlib.contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive, archive.open(entry) as file:
            yield file

    return Part(name, entry.file_size, opened)


def _last_part(name: str) -> str:
    return PurePosixPath(name.replace("\\", "/")).name
