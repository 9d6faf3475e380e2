"""Exports a whole memory to a folder or a zip, and imports such an export.

The export has every conversation and every file of the knowledge, as they are, with the settings of the memory. It has
neither the history in git (`git clone` copies that) nor what belongs to one machine (`.local/`: the index, live
contexts, cold storage).
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from mcp_server.conversations import sessions
from mcp_server.errors import ContextManagerError, Invalid, Refused, Unavailable
from mcp_server.history.committing import OURS, commit_changes
from mcp_server.history.sync import take_in
from mcp_server.memory import Memory
from mcp_server.settings_file import default_document
from mcp_server.storage.templates import SETTINGS, is_untouched_template

MOST_BYTES = 1 << 30
"""The largest file of a zip that is read, in bytes."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An export: its place, and how many files and bytes are in it."""

    path: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of importing an export: the number of new files, and of files that were the same here.

    `kept` files differ here and were not changed. `refused` says which files were left out and why.
    """

    new: int
    same: int
    conversations: int
    kept: tuple[str, ...]
    refused: tuple[str, ...]
    commits: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
        return {"format": "memory", **dataclasses.asdict(self)}

    @property
    def markdown(self) -> str:
        """The result in words."""
        lines = [f"{self.new:,} files imported, {self.conversations:,} conversations; {self.same:,} files are the same"]
        lines += [f"- kept as it is here, the export differs: {path}" for path in self.kept]
        lines += [f"- left out: {said}" for said in self.refused]
        return "\n".join(lines)


def is_export(path: Path) -> bool:
    """Returns whether a folder or a zip is an export of a memory."""
    if path.is_dir():
        return (path / SETTINGS).is_file() and (path / "raw").is_dir()
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as held:
        return SETTINGS in held.namelist()


async def export_memory(memory: Memory, target: Path) -> Exported:
    """Writes all files of the memory to `target`: a zip if its name ends with `.zip`, else a new folder.

    Raises:
        Refused: `target` exists and is not an empty folder, or lies in the memory.
        Invalid: another kind of archive is named.
        Unavailable: it cannot be written.
    """
    await run_sync(_check_free, memory.disk.root, target)
    await sessions.ready(memory)
    async with memory.locks.files():
        return await run_sync(_written, memory, target)


def _check_free(root: Path, target: Path) -> None:
    if target.is_relative_to(root):
        raise Refused(f"{target} lies in the memory itself; name a place outside of it")
    if target.suffix.lower() in (".gz", ".tar", ".tgz", ".7z", ".bz2", ".xz"):
        raise Invalid(f"{target.name}: name a folder or a file that ends with .zip")
    if target.exists() and not (target.is_dir() and not any(target.iterdir()) and target.suffix.lower() != ".zip"):
        raise Refused(f"{target} exists already; name another file or folder")


def _written(memory: Memory, target: Path) -> Exported:
    part = target.with_name(f".{target.name}.part")
    count = size = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            archive = None
            if target.suffix.lower() == ".zip":
                archive = stack.enter_context(zipfile.ZipFile(part, "x", zipfile.ZIP_DEFLATED))
            else:
                part.mkdir()
            for stat in memory.files.walk():
                data = memory.files.read_bytes(stat.path)
                count, size = count + 1, size + len(data)
                if archive is not None:
                    archive.writestr(stat.path, data)
                    continue
                (part / stat.path).parent.mkdir(parents=True, exist_ok=True)
                (part / stat.path).write_bytes(data)
        if target.is_dir():
            target.rmdir()
        part.rename(target)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
        raise Unavailable(f"{target} cannot be written: {error.strerror or error}") from None
    return Exported(str(target), count, size)


async def import_memory(memory: Memory, path: Path) -> Restored:
    """Imports an export. Files that exist here with other content stay, except for templates that nobody filled in.

    Raises Unavailable if the export cannot be read.
    """
    await sessions.ready(memory)
    new, same, kept, refused = 0, 0, list[str](), list[str]()
    async with memory.locks.files():
        for name, data in await run_sync(lambda: list(_held(path, refused))):
            try:
                done = await run_sync(_import_file, memory, name, data)
            except ContextManagerError as error:
                refused.append(str(error))
                continue
            new, same = new + (done == "new"), same + (done == "same")
            kept += [name] if done == "kept" else []
    taken = await take_in(memory)
    swept = await commit_changes(memory)
    return Restored(new, same, taken, tuple(kept), tuple(refused), tuple(swept.commits))


def _held(path: Path, refused: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yields the files of an export that belong to a memory; names the others in `refused`."""
    try:
        if path.is_dir():
            for found in sorted(path.rglob("*")):
                name = found.relative_to(path).as_posix()
                if found.is_file() and not found.is_symlink() and _ours(name, refused):
                    yield name, found.read_bytes()
            return
        with zipfile.ZipFile(path) as held:
            for info in held.infolist():
                if info.is_dir() or not _ours(info.filename, refused):
                    continue
                if info.file_size > MOST_BYTES:
                    refused.append(f"{info.filename} is too large")
                    continue
                yield info.filename, held.read(info)
    except (OSError, zipfile.BadZipFile) as error:
        raise Unavailable(f"{path} cannot be read: {error}") from None


def _ours(name: str, refused: list[str]) -> bool:
    if any(name == place or name.startswith(f"{place}/") for place in OURS):
        return True
    if not any(part.startswith(".") for part in name.split("/")):
        refused.append(f"{name} is not a file of a memory")
    return False


def _import_file(memory: Memory, name: str, data: bytes) -> str:
    """Writes one file and returns "new", or returns "same" or "kept"."""
    if memory.files.exists(name):
        here = memory.files.read_bytes(name)
        if here == data:
            return "same"
        text = here.decode("utf-8", "replace")
        if not (is_untouched_template(name, text) or (name == SETTINGS and text == default_document())):
            return "kept"
    try:
        clean = memory.forgotten.document(name, data.decode("utf-8"))
    except UnicodeDecodeError:  # an attachment
        memory.files.write_bytes_atomic(name, data)
        return "new"
    if clean is None:
        raise Refused(f"{name} was forgotten on request")
    memory.files.write_atomic(name, clean)
    return "new"
