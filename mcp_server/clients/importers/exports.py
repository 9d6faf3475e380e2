"""Exports of chat services: `conversations.json`, or `conversations-000.json`, … if it is large.

The file may be alone, in a zip, in an unpacked folder, or in several zips in one folder (claude.ai, since August 2026).
Zips are not unpacked: their entries are read as streams.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mcp_server.clients.importers.imported import Skipped
from mcp_server.errors import Invalid, NotFound, Unavailable

CHUNK = 64 * 1024
CUT_SHORT = 16
"""A parsing error within this many characters of the end means that the item may continue: read more, then retry."""

CUT_NUMBER = 2
"""A number is complete only if more than this many characters follow: `1` may be the beginning of `1e+5`."""

LARGEST_ITEM = 256 * 1024 * 1024
"""Characters of one item; a larger one is refused, because it would fill the memory."""

_OPEN_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z', re.DOTALL)
"""A string whose end has not been read yet."""
_BETWEEN = " \t\r\n,"


def _chunks(file: IO[bytes], at: Callable[[int], None]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK):
        at(file.tell())
        yield chunk


class _ItemReader:
    """Reads the items of a JSON array from chunks, and keeps only the text from the current item on.

    The fast backend of `ijson` replaces lone surrogates, which exports contain, refuses integers over 64 bits, and
    reports errors without a line number.
    """

    def __init__(self, path: str, chunks: Iterator[bytes]) -> None:
        self._path = path
        self._chunks = chunks
        self._text = ""
        self._place = 0
        self._line = 1
        self._ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def items(self) -> Iterator[Any]:
        opening = self._next_character()
        if opening != "[":
            yield self._item()
            return
        self._place += 1
        while (character := self._next_character()) != "]":
            if not character:
                raise Invalid(f"{self._path}: the list is not closed; the file seems to be cut short")
            yield self._item()

    def _more(self, wanted: int) -> None:
        """Drops the consumed text and reads until at least `wanted` new characters are held, or the file ends."""
        self._line += self._text.count("\n", 0, self._place)
        parts, have = [self._text[self._place :]], 0
        self._place = 0
        while have < wanted and not self._ended:
            chunk = next(self._chunks, b"")
            self._ended = not chunk
            parts.append(self._decoder.decode(chunk, final=self._ended))
            have += len(parts[-1])
        self._text = "".join(parts)

    def _next_character(self) -> str:
        while True:
            while self._place < len(self._text):
                if self._text[self._place] not in _BETWEEN:
                    return self._text[self._place]
                self._place += 1
            if self._ended:
                return ""
            self._more(CHUNK)

    def _item(self) -> Any:
        decoder = json.JSONDecoder()
        while True:
            try:
                value, end = decoder.raw_decode(self._text, self._place)
                if self._ended or isinstance(value, dict | list | str) or end < len(self._text) - CUT_NUMBER:
                    self._place = end
                    return value
            except json.JSONDecodeError as error:
                near_end = error.pos >= len(self._text) - CUT_SHORT
                unfinished = near_end or _OPEN_STRING.match(self._text, error.pos) is not None
                if self._ended or not unfinished:
                    line = self._line + error.lineno - 1
                    raise Invalid(f"{self._path}, line {line}: not JSON ({error.msg}); fix the file") from None
            except RecursionError:
                raise Invalid(f"{self._path}, line {self._line}: JSON nested too deeply") from None
            if len(self._text) - self._place > LARGEST_ITEM:
                size = f"{LARGEST_ITEM // 1024**2} MB"
                raise Invalid(f"{self._path}, line {self._line}: an item of more than {size}; split the file")
            self._more(max(CHUNK, len(self._text) - self._place))


SUFFIX = ".zip"
BOMB_BYTES, BOMB_RATIO = 1024**3, 200
"""An entry above this size and this ratio to its packed size is skipped as a zip bomb."""

_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError)
"""Errors that reading a broken or encrypted entry raises, or one with an unknown compression."""

_CONVERSATIONS = re.compile(r"conversations(-\d+)?\.json", re.IGNORECASE)
_DOCUMENTS = re.compile(
    r"(?:.*[/\\ ])?(?:(projects|memories)(?:-\d+)?\.json|(projects|memories)[/\\][^/\\]+\.json)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Part:
    """A file of an export: `name` for reports, unpacked `size` in bytes, and a function that opens it."""

    name: str
    size: int
    open: Callable[[], contextlib.AbstractContextManager[IO[bytes]]]


ExportFiles = tuple[list[Part | Skipped], list[Part | Skipped]]
"""The files with conversations, and all other files of an export."""


def files(path: Path) -> ExportFiles:
    """Returns the files with conversations, and the other files of the export.

    Files with conversations are `path` itself, or those in its folder or zip, or in the folder's zips. The other files
    are those in the zips, and those in folders that have a `conversations.json`.

    Raises:
        Unavailable, Invalid: it cannot be read, or is a broken zip.
    """
    try:
        if path.is_dir():
            return _in_folder(path)
        if zipfile.is_zipfile(path):
            return _zipped(path)
        alone: list[Part | Skipped] = [_file(path, path.name)]
        return ([], alone) if document_kind(path.name) else (alone, [])
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror or error}; check its permissions") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise Invalid(f"{path} is a broken zip ({error}); download it again") from None


def _in_folder(path: Path) -> ExportFiles:
    """Returns the files in a folder and in its zips. A broken zip is skipped and does not stop the import."""
    listed = {found for found in path.rglob("*.json") if _CONVERSATIONS.fullmatch(found.name)}
    folders = {found.parent for found in listed}
    folders |= {path} if any(_DOCUMENTS.fullmatch(found.name) for found in path.glob("*.json")) else set()
    around = {found for folder in folders for found in folder.rglob("*") if found.suffix != SUFFIX} - listed
    found: ExportFiles = ([], [])
    for of_kind, place in zip(found, (listed, around), strict=True):
        of_kind += [_file(file, file.relative_to(path).as_posix()) for file in sorted(place) if file.is_file()]
    for archive in filter(Path.is_file, sorted(path.glob("*.zip"))):
        try:
            for of_kind, inside in zip(found, _zipped(archive), strict=True):
                of_kind += inside
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            found[0].append(Skipped(archive.name, f"a broken zip ({error}); download it again"))
    return found


def document_kind(name: str) -> str:
    """Returns `projects` or `memories` if a file of claude.ai's export contains them, else ""."""
    found = _DOCUMENTS.fullmatch(name)
    return (found[1] or found[2]).lower() if found else ""


def holds_zips(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.lower().endswith(SUFFIX) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def conversations(part: Part, on_bytes: Callable[[int], None] = lambda _: None) -> Iterator[Any]:
    """Yields the items of the JSON array in one part, one at a time. A part with one object yields that object.

    `on_bytes` is called with the number of bytes read.

    Raises:
        NotFound, Unavailable: there is no such file, or it cannot be read or unpacked.
        Invalid: it is not UTF-8 or not JSON; the items before the broken place have been yielded.
    """
    try:
        with part.open() as file:
            yield from _ItemReader(part.name, _chunks(file, on_bytes)).items()
    except UnicodeDecodeError as error:
        raise Invalid(f"{part.name} is not UTF-8 ({error.reason}); convert it first") from None
    except FileNotFoundError:
        raise NotFound(f"there is no file {part.name}; if it was deleted during the import, import again") from None
    except _DAMAGED as error:
        raise Invalid(
            f"{part.name} cannot be unpacked ({error}); unpack the zip yourself and import the folder"
        ) from None
    except OSError as error:
        raise Unavailable(f"{part.name} cannot be read: {error.strerror or error}; check its permissions") from None


def head(path: Path, size: int) -> bytes:
    """Returns the first bytes of the export's first file; empty if no file can be read."""
    try:
        parts, others = files(path)
        for part in (*parts, *(other for other in others if document_kind(other.name))):
            if isinstance(part, Part):
                with part.open() as file:
                    return file.read(size)
    except (Invalid, Unavailable, OSError, *_DAMAGED):
        pass
    return b""


def _zipped(path: Path) -> ExportFiles:
    found: ExportFiles = ([], [])
    with zipfile.ZipFile(path) as archive:
        for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
            name = PurePosixPath(entry.filename.replace("\\", "/")).name
            if not entry.is_dir():
                found[not _CONVERSATIONS.fullmatch(name)].append(_entry(path, entry))
    return found


def _file(path: Path, name: str) -> Part:
    return Part(name, path.stat().st_size, lambda: path.open("rb"))


def _entry(path: Path, entry: zipfile.ZipInfo) -> Part | Skipped:
    name = f"{path.name}: {entry.filename}"
    if entry.flag_bits & 0x1:
        return Skipped(name, "encrypted")
    if entry.file_size > BOMB_BYTES and entry.file_size > BOMB_RATIO * max(1, entry.compress_size):
        return Skipped(name, f"would unpack to {entry.file_size / 1024**3:.0f} GB, over {BOMB_RATIO} times its size")

    @contextlib.contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive, archive.open(entry) as file:
            yield file

    return Part(name, entry.file_size, opened)
