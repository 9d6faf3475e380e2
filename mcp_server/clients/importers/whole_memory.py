"""Exports a whole memory to a folder or a zip, and imports such an export.

An export contains every file of the memory under its own path, and a folder `.memory/`: `state.jsonl` (rows of the
state), `history.bundle` (the history, in git's format), and `files.jsonl` (time, mode and SHA-256 of each file). It
does not contain the index, which can be rebuilt, or what belongs to one machine (its settings, installed clients).
Exports of equal memories have equal bytes, whichever storage engine they come from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mcp_server.errors import Invalid, Refused, Unavailable
from mcp_server.storage.whole import EXPORT, PART_BYTES, TABLES, MovedFile, MovedHistory

FORMAT = 1
_STATE, _HISTORY, _FILES = (f"{EXPORT}/{name}" for name in ("state.jsonl", "history.bundle", "files.jsonl"))


@dataclass(frozen=True, slots=True)
class Exported:
    """A finished export: its path, the number of its files and bytes, and the files that were left out."""

    path: str
    files: int
    bytes: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """A whole memory that was imported into an empty one."""

    workspace: str
    files: int
    bytes: int

    @property
    def markdown(self) -> str:
        return f"{self.files:,} files, {self.bytes / 1e6:,.1f} MB, with state and history: {self.workspace}"


def is_export(path: Path) -> bool:
    """Returns whether a folder or a zip is an export of a memory."""
    if path.is_dir():
        return (path / _FILES).is_file()
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as held:
        return _FILES in held.namelist()


def check_free(target: Path, root: Path | None) -> None:
    """Raises if an export cannot be written to `target`. `root` is the folder of the memory, if it has one.

    Raises:
        Refused: `target` exists and is not an empty folder, or is inside the memory.
        Invalid: another kind of archive is named.
    """
    if root is not None and target.is_relative_to(root):
        raise Refused(f"{target} is inside the memory itself; name a place outside of it")
    if target.suffix.lower() in (".gz", ".tar", ".tgz", ".7z", ".bz2", ".xz"):
        raise Invalid(f"{target.name}: name a folder or a file that ends with .zip")
    if target.exists() and not (target.is_dir() and not any(target.iterdir()) and target.suffix.lower() != ".zip"):
        raise Refused(f"{target} exists already; name another file or folder")


@contextlib.contextmanager
def writing(target: Path) -> Iterator[Export]:
    """Yields an export to fill, which gets its name `target` when the block ends. First deletes the rest of an
    interrupted one.

    Raises Unavailable if it cannot be written.
    """
    part = target.with_name(f".{target.name}.part")
    try:
        _delete(part)
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            archive = None
            if target.suffix.lower() == ".zip":
                archive = stack.enter_context(zipfile.ZipFile(part, "x", zipfile.ZIP_DEFLATED))
            else:
                part.mkdir(mode=0o700)
            export = Export(part, archive)
            stack.callback(export.end_state)
            yield export
            export.close()
        if part.is_file():
            with part.open("rb+") as stream:
                os.fsync(stream.fileno())
        if target.is_dir():
            target.rmdir()
        part.rename(target)
    except OSError as error:
        _delete(part)
        raise Unavailable(f"{target} cannot be written: {error.strerror or error}") from None
    except BaseException:
        _delete(part)
        raise


def _delete(part: Path) -> None:
    shutil.rmtree(part, ignore_errors=True)
    part.unlink(missing_ok=True)


class Export:
    """An export that is being written. Parts of files are written at once, so that large files do not fill memory."""

    def __init__(self, part: Path, archive: zipfile.ZipFile | None) -> None:
        self._part = part
        self._archive = archive
        self._state = self._opened(_STATE)
        self._about: list[dict[str, Any]] = []
        self._branch: str | None = None
        self.bytes = 0

    @property
    def files(self) -> int:
        return len(self._about)

    def row(self, table: str, values: tuple[Any, ...]) -> None:
        self._state.write(json.dumps([table, *values]).encode() + b"\n")

    def history(self, branch: str, parts: Iterable[bytes]) -> None:
        self._branch = branch
        self._write(_HISTORY, parts)

    def file(self, found: MovedFile, parts: Iterable[bytes]) -> None:
        size, digest = self._write(found.path, parts)
        self.bytes += size
        about = {"path": found.path, "mtime_ns": found.mtime_ns, "sealed": found.sealed, "sha256": digest}
        self._about.append(about)

    def end_state(self) -> None:
        """Ends the rows of the state. Does nothing if they have ended."""
        self._state.close()

    def close(self) -> None:
        lines = [{"format": FORMAT, "branch": self._branch, "files": len(self._about)}, *self._about]
        self._write(_FILES, (json.dumps(line).encode() + b"\n" for line in lines))

    def _write(self, name: str, parts: Iterable[bytes]) -> tuple[int, str]:
        self.end_state()
        size, digest = 0, hashlib.sha256()
        with self._opened(name) as stream:
            for part in parts:
                stream.write(part)
                digest.update(part)
                size += len(part)
        return size, digest.hexdigest()

    def _opened(self, name: str) -> IO[bytes]:
        if self._archive is not None:
            about = zipfile.ZipInfo(name)  # dated 1980, so that equal exports have equal bytes
            about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
            return self._archive.open(about, "w", force_zip64=True)
        place = self._part / name
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("xb")


class Import:
    """An export that is read. Raises Unavailable if it cannot be read, Invalid if it is damaged or incomplete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._archive = None if path.is_dir() else zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise Unavailable(f"{path} cannot be read: {error}") from None
        first, *self._about = self._lines(_FILES)
        if first.get("format") != FORMAT or first.get("files") != len(self._about):
            raise Invalid(f"{path} is incomplete or of a newer version; export again, or update this program")
        self._branch = first["branch"]
        self.bytes = 0

    @property
    def count(self) -> int:
        return len(self._about)

    def rows(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yields table and values of each row of the state."""
        for line in self._lines(_STATE):
            table, *values = line
            if table not in TABLES or len(values) != len(TABLES[table]):
                raise Invalid(f"{self._path}: {_STATE} has a row of an unknown table {table!r}; update this program")
            yield table, tuple(values)

    def history(self, folder: Path) -> MovedHistory | None:
        if self._branch is None:
            return None
        bundle = folder / "imported"
        with bundle.open("wb") as stream:
            for part in self._parts(_HISTORY):
                stream.write(part)
        return MovedHistory(bundle, self._branch)

    def files(self) -> Iterator[tuple[MovedFile, Iterator[bytes]]]:
        for about in self._about:
            found = MovedFile(about["path"], about["mtime_ns"], about["sealed"])
            yield found, self._checked(found.path, about["sha256"])

    def _checked(self, path: str, wanted: str) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for part in self._parts(path):
            digest.update(part)
            self.bytes += len(part)
            yield part
        if digest.hexdigest() != wanted:
            raise Invalid(f"{self._path}: {path} differs from the exported file; nothing was imported")

    def _parts(self, name: str) -> Iterator[bytes]:
        with self._opened(name) as stream:
            while part := stream.read(PART_BYTES):
                yield part

    def _lines(self, name: str) -> Iterator[Any]:
        with self._opened(name) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    yield json.loads(line)
                except ValueError:
                    raise Invalid(f"{self._path}: {name}: line {number} is not JSON; export again") from None

    def _opened(self, name: str) -> IO[bytes]:
        try:
            if self._archive is not None:
                return self._archive.open(name)
            return (self._path / name).open("rb")
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise Unavailable(f"{self._path}: {name} cannot be read: {error}") from None
