"""Imports a file or folder: reads it in pieces, records each piece, and reports the items that were left out.

Importing the same file again adds nothing: turns are compared by their source keys, files by their bytes. A file that
has not changed since its import is not read again.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from anyio.to_thread import run_sync

from mcp_server.clients.adapters import ADAPTERS
from mcp_server.clients.adapters.adapter import Adapter
from mcp_server.clients.importers import chatgpt, claude_ai, exports, reading, recording
from mcp_server.clients.importers.imported import Format, ImportReport, Skipped, Watch, in_parts, short_name
from mcp_server.clients.importers.reading import lines, transcripts
from mcp_server.conversations.closed_sessions import commit_together
from mcp_server.conversations.imports import import_markdown_file, record_session
from mcp_server.errors import ContextManagerError, Invalid, NotFound, Unavailable
from mcp_server.memory import Memory

SUFFIXES = frozenset({".md", ".markdown", ".mdown", ".mkd", ".mdx"})
LARGEST = 20 * 1024 * 1024
"""Bytes; a larger file is not text that a person wrote."""


def listing(path: Path) -> list[tuple[Path, str]]:
    """Returns the files and hidden folders below `path` with relative paths, sorted; or the file `path` itself."""
    if not path.is_dir():
        return [(path, path.name)]
    found: list[tuple[Path, str]] = []
    for folder, folders, files in os.walk(path):
        here = Path(folder)
        hidden = [name for name in folders if name.startswith(".") or (here / name).is_symlink()]
        folders[:] = sorted(set(folders) - set(hidden))
        found += [(here / name, (here / name).relative_to(path).as_posix()) for name in hidden + files]
    return sorted(found, key=lambda item: item[1])


def read_one(path: Path, relative: str) -> bytes | Skipped:
    """Returns the bytes of a listed file, or why it is left out. Links out of the folder are not followed."""
    if path.is_dir():
        return Skipped(relative + "/", "a link to a folder" if path.is_symlink() else "a hidden folder")
    if path.suffix.lower() not in SUFFIXES:
        return Skipped(relative, f"not markdown ({path.suffix or 'no suffix'})")
    if path.is_symlink() and not path.resolve().is_relative_to(path.parents[relative.count("/")].resolve()):
        return Skipped(relative, "a link that leads out of the folder")
    try:
        if not path.is_file():
            return Skipped(relative, "not a regular file" if path.exists() else "a link that leads nowhere")
        if (size := path.stat().st_size) > LARGEST:
            return Skipped(relative, f"{size / 1024**2:.0f} MB, more than {LARGEST // 1024**2} MB")
        return path.read_bytes()
    except OSError as error:
        return Skipped(relative, f"cannot be read: {error.strerror}")


HEAD = 256 * 1024
"""Bytes that are read: a long first message may come before the first key that identifies the format."""

DATABASE = ADAPTERS["opencode"].file_names

_LINES, _FILES = 50, 20
"""Lines of a transcript, and transcripts of a folder, that are read."""


def detect(path: Path) -> Format:
    """Returns the format of an existing file or folder. Raises Invalid, with advice, if it is unknown."""
    if path.name == DATABASE or (path / DATABASE).is_file():
        return "opencode"
    if path.is_dir():
        if found := _by_marks(exports.head(path, HEAD)):
            return found
        for file in islice(_jsonl(path), _FILES):
            if client := transcript_client(file):
                return client
        if any(found.suffix.lower() in SUFFIXES for found, _ in listing(path)):
            return "markdown"
        raise Invalid(f"{path} has no file of a known format; give a folder of transcripts or notes, or use --format")
    if path.suffix.lower() in SUFFIXES:
        return "markdown"
    if path.suffix == reading.SUFFIX and (client := transcript_client(path)):
        return client
    if path.suffix.lower() == exports.SUFFIX:
        exports.files(path)  # raises for a broken one
        if found := _by_marks(exports.head(path, HEAD)):
            return found
        if exports.holds_zips(path):
            raise Invalid(f"{path} contains other zips: unpack it, and import the folder with those zips")
        raise Invalid(f"{path} contains no known export; unpack it, or give its format with --format")
    try:
        with path.open("rb") as opened:
            head = opened.read(HEAD)
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}; check its permissions") from None
    if found := _by_marks(head):
        return found
    if path.name.lower().startswith("manifest") and b"https://" in head and exports.SUFFIX.encode() in head:
        raise Invalid(
            f"{path} is only a list of downloads: open it, save every file that it names into one folder, and import "
            "that folder"
        )
    raise Invalid(f"{path} is neither markdown nor a known conversation file; give its format with --format")


def transcript_client(path: Path) -> Format | None:
    """Returns the client that wrote a transcript, by its first lines; None if it is not a transcript."""
    try:
        with path.open("rb") as file:
            first = [line.fields for line in islice(lines(file, 0), _LINES) if line.fields is not None]
    except OSError:
        return None
    found = next((each for each in ADAPTERS.values() if any(map(each.is_line, first))), None)
    return found.client if found else None


def _by_marks(head: bytes) -> Format | None:
    """Returns the format of a JSON file by the keys at its start, or None if it is unknown."""
    text = head.decode("utf-8", "ignore")
    if not text.lstrip("\ufeff \t\r\n").startswith(("[", "{")):
        return None
    if any(mark in text for mark in claude_ai.MARKS):
        return "claude-ai"
    return "chatgpt" if any(mark in text for mark in chatgpt.MARKS) else None


def _jsonl(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(reading.SUFFIX))


IMPORTED = "imported"
"""Namespace of the state: real path of an export → the result of its import."""


async def import_path(
    memory: Memory,
    path: Path,
    *,
    kind: Format | None = None,
    project: str | None = None,
    name: str | None = None,
    anew: bool = False,
    watch: Watch = lambda done, total, label: None,
) -> ImportReport:
    """Imports `path`, commits the new files and transcripts, and returns a report.

    `name` is the folder for markdown (default: the path's name). `anew` also reads files that have not changed since
    their import.

    Raises:
        NotFound, Invalid, Unavailable: the file or folder cannot be read. Pieces that were recorded before stay.
    """
    path, chosen = await run_sync(_look_at, path, kind)
    label, run = short_name(path), _Import(memory, path, project, anew, watch, ImportReport(chosen))
    match chosen:
        case "markdown":
            label = name or short_name(path if path.is_dir() else path.with_suffix(""))
            await run.import_markdown(label)
        case "claude-ai" | "chatgpt":
            await run.import_export()
        case "opencode":
            database = path / DATABASE if path.is_dir() else path
            await recording.import_database(memory, database, project, run.report, anew=anew)
        case client:
            await run.import_transcripts(ADAPTERS[client])
    if run.written or run.report.new_turns:
        committed, why_not = await commit_together(memory, f"import {label}", run.written)
        run.report.commit = committed or why_not or "nothing to commit"
    return run.report


def _look_at(path: Path, kind: Format | None) -> tuple[Path, Format]:
    """Returns the absolute path, with symbolic links kept, and its format."""
    path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - resolve() would follow the link
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give a file or folder that exists")
    return path, kind or detect(path)


DOCUMENTS = "claude-ai"
"""The folder under `knowledge/reference/` that projects and memories go to."""


@dataclass(slots=True)
class _Import:
    """Imports the conversations of one path. `written` are the knowledge files that the import has written so far."""

    memory: Memory
    path: Path
    project: str | None
    anew: bool
    watch: Watch
    report: ImportReport
    written: list[str] = field(default_factory=list)

    async def import_export(self) -> None:
        """Imports a chat service's export. Skips one that was imported completely before, if its size and time are the
        same."""
        path, report, kind = self.path, self.report, self.report.format
        real, before = await run_sync(lambda: (path.resolve(), path.stat()))
        key, is_file = str(real), stat.S_ISREG(before.st_mode)
        stamp = [kind, before.st_size, before.st_mtime_ns]
        stored = await self.memory.state.get(IMPORTED, key) if is_file and not self.anew else None
        if stored and stored["stamp"] == stamp:
            self.watch(before.st_size, before.st_size, path.name)
            report.sessions, report.turns, report.unchanged = stored["sessions"], stored["turns"], 1
            report.skip_counted(stored["reasons"])
            return
        found, others = await run_sync(exports.files, path)
        parts = list(report.kept(found))
        documents = [other for other in others if kind == "claude-ai" and exports.document_kind(other.name)]
        if not parts and not documents and not report.skipped_count:
            raise NotFound(
                f"{path} contains no conversations.json; give the export as it was downloaded, or another --format"
            )
        read = chatgpt.session if kind == "chatgpt" else claude_ai.session
        done, total = 0, sum(part.size for part in parts)
        for part in parts:
            offsets = [0]
            conversations = enumerate(exports.conversations(part, offsets.append), start=1)
            pieces = chain.from_iterable(read(one, place, self.project) for place, one in conversations)
            while (piece := await run_sync(next, pieces, None)) is not None:
                if isinstance(piece, Skipped):
                    report.skip(piece)
                else:
                    for number, session in enumerate(in_parts(piece)):
                        report.add_session(await record_session(self.memory, session), is_first=number == 0)
                    self.watch(done + offsets[-1], total, piece.session_id)
            done += part.size
            self.watch(done, total, part.name)
        await self._import_documents(documents)
        for other in others:
            if other not in documents:
                report.skip(_not_imported(other))
        if is_file:
            kept = {"stamp": stamp, "sessions": report.sessions, "turns": report.turns, "reasons": report.reasons}
            await self.memory.state.put(IMPORTED, key, kept)

    async def _import_documents(self, parts: list[exports.Part | Skipped]) -> None:
        """Writes the projects and memories of an export, projects first, because memories refer to them."""
        known: dict[str, str] = {}
        counts: Counter[str] = Counter()
        by_kind = sorted(parts, key=lambda part: (exports.document_kind(part.name) != "projects", part.name))
        for part in self.report.kept(by_kind):
            kind = exports.document_kind(part.name)
            read = claude_ai.project if kind == "projects" else claude_ai.memories
            for item in await run_sync(lambda part: list(exports.conversations(part)), part):
                counts[kind] += 1
                for relative, text in self.report.kept(read(item, counts[kind], known)):
                    await self._write_file(DOCUMENTS, relative, text.encode())

    async def import_transcripts(self, adapter: Adapter) -> None:
        """Imports the transcripts of a client."""
        path, report = self.path, self.report
        found = await run_sync(lambda: list(transcripts(path, adapter)))
        files = [(file, file.stat().st_size if file.exists() else 0) for file in report.kept(found)]
        if not files and not report.skipped_count:
            raise NotFound(
                f"{path} has no transcript ({adapter.file_names}); give the folder of one project, or of all projects"
            )
        done, total = 0, sum(size for _, size in files)
        for file, size in files:

            def on_bytes(offset: int, done: int = done, label: str = file.name) -> None:
                self.watch(done + offset, total, label)

            try:
                await recording.import_file(
                    self.memory, file, self.project, report, adapter=adapter, anew=self.anew, on_bytes=on_bytes
                )
            except ContextManagerError as error:
                report.skip(Skipped(file.name, str(error)))
            done += size
            self.watch(done, total, file.name)

    async def import_markdown(self, name: str) -> None:
        """Imports a folder of markdown files, or one, into the folder `name`."""
        files = await run_sync(listing, self.path)
        for place, (file, relative) in enumerate(files, start=1):
            read = await run_sync(read_one, file, relative)
            if isinstance(read, Skipped):
                self.report.skip(read)
            else:
                await self._write_file(name, relative, read)
            self.watch(place, len(files), relative)

    async def _write_file(self, name: str, relative: str, data: bytes) -> None:
        kept = await import_markdown_file(self.memory, name, relative, data)
        if self.report.add_file(kept, relative):
            self.written.append(kept.path)


def _not_imported(file: exports.Part | Skipped) -> Skipped:
    """Returns the entry of the report for a file without conversations, projects or memories."""
    if isinstance(file, Skipped):
        return file
    name = PurePosixPath(file.name.replace("\\", "/")).name.rpartition(": ")[2]
    if name.lower().endswith(".json"):
        return Skipped(file.name, f"{re.sub(r'[0-9a-f-]{8,}', '…', name)} is not imported")
    return Skipped(file.name, f"file of type {PurePosixPath(name).suffix or 'unknown'} is not imported")


def conversations_in(folder: Path, adapter: Adapter) -> tuple[int, int]:
    """Returns the number of a client's conversations in its folder, without subagents', and their bytes."""
    if adapter.is_database:
        database = folder / DATABASE
        return (recording.count_sessions(database), database.stat().st_size) if database.is_file() else (0, 0)
    found = [file for file in transcripts(folder, adapter) if isinstance(file, Path)]
    sizes = [file.stat().st_size for file in found if reading.SUBAGENTS not in file.parts]
    return len(sizes), sum(sizes)
