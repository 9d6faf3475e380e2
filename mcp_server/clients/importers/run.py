"""Imports a file or folder: reads it piece by piece, records every piece, and reports what was left out.

Importing the same file again adds nothing: turns are compared by their source keys, files by their bytes. A file that
has not changed since its import is not read again.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

import anyio

from mcp_server.clients.importers import chatgpt, claude_ai, exports, markdown
from mcp_server.clients.importers.claude_code import reading
from mcp_server.clients.importers.claude_code import recording as claude_code
from mcp_server.clients.importers.claude_code.messages import lines
from mcp_server.clients.importers.claude_code.reading import transcripts
from mcp_server.clients.importers.imported import (
    Format,
    ImportReport,
    Progress,
    Skipped,
    Watch,
    in_parts,
    short_name,
    unwatched,
)
from mcp_server.conversations.closed_sessions import commit_together
from mcp_server.conversations.imports import ImportedFile, ImportedSession, import_markdown_file, record_session
from mcp_server.errors import ContextManagerError, Invalid, NotFound, Unavailable
from mcp_server.memory import Memory

HEAD = 256 * 1024
"""Bytes that are read: a long first message may come before the first key that identifies the format."""

_LINES, _FILES = 50, 20
"""Lines of a transcript, and transcripts of a folder, that are read."""


def detect(path: Path) -> Format:
    """Returns the format of `path`.

    Raises:
        NotFound: there is nothing at `path`.
        Invalid: the format is unknown; the message says what to do.
    """
    if path.is_dir():
        if found := _by_marks(exports.head(path, HEAD)):
            return found
        if any(is_claude_code(file) for file in islice(_jsonl(path), _FILES)):
            return "claude-code"
        if any(found.suffix.lower() in markdown.SUFFIXES for found, _ in markdown.listing(path)):
            return "markdown"
        raise Invalid(f"{path}: no file in it has a known format; give a folder of transcripts or notes, or --format")
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give a file or folder that exists")
    if path.suffix.lower() in markdown.SUFFIXES:
        return "markdown"
    if path.suffix == reading.SUFFIX and is_claude_code(path):
        return "claude-code"
    if path.suffix.lower() == exports.SUFFIX:
        exports.parts(path)  # raises for a broken one
        if found := _by_marks(exports.head(path, HEAD)):
            return found
        if exports.holds_zips(path):
            raise Invalid(f"{path} contains other zips: unpack it, and import the folder with those zips")
        raise Invalid(f"{path} contains no known export; unpack it, or give its format with --format")
    head = _head(path)
    if found := _by_marks(head):
        return found
    if exports.is_manifest(path, head.decode("utf-8", "ignore")):
        raise Invalid(
            f"{path} is only a list of downloads: open it, save every file that it names into one folder, and import "
            "that folder"
        )
    raise Invalid(f"{path} is neither markdown nor a known conversation file; give its format with --format")


def is_claude_code(path: Path) -> bool:
    """Returns True if one of the first lines has a session id and a type, as Claude Code's lines do."""
    try:
        with path.open("rb") as file:
            return any(
                line.fields is not None and "sessionId" in line.fields and "type" in line.fields
                for line in islice(lines(file, 0), _LINES)
            )
    except OSError:
        return False


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise Unavailable(f"{path} cannot be read: {error.strerror}; check its permissions") from None


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

Pieces = Iterator[ImportedSession | Skipped]


async def import_path(
    memory: Memory,
    path: Path,
    *,
    kind: Format | None = None,
    project: str | None = None,
    name: str | None = None,
    anew: bool = False,
    watch: Watch = unwatched,
) -> ImportReport:
    """Imports `path` and returns a report. `name` is the folder for markdown (default: the path's name).

    `anew` also reads files that have not changed since their import.

    Raises:
        NotFound, Invalid, Unavailable: the file or folder cannot be read. Pieces that were recorded before stay.
    """
    path, chosen = await anyio.to_thread.run_sync(_look_at, path, kind)
    match chosen:
        case "markdown":
            name = name or short_name(path if path.is_dir() else path.with_suffix(""))
            return await _import_markdown(memory, path, name, watch)
        case "claude-code":
            report = await _import_claude_code(memory, path, project, anew, watch)
        case "claude-ai" | "chatgpt":
            report, written = await _import_export(memory, path, chosen, project, anew, watch)
            return await _committed(memory, report, short_name(path), written)
    return await _committed(memory, report, short_name(path), [])


def _look_at(path: Path, kind: Format | None) -> tuple[Path, Format]:
    """Returns the absolute path, with symbolic links kept, and its format."""
    path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - resolve() would follow the link
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give a file or folder that exists")
    return path, kind or detect(path)


async def _import_export(
    memory: Memory, path: Path, kind: Format, project: str | None, anew: bool, watch: Watch
) -> tuple[ImportReport, list[str]]:
    """Imports a chat service's export; returns the report and the knowledge files that it wrote.

    An export that was imported whole and did not change is recognized by its size and time.
    """
    real, before = await anyio.to_thread.run_sync(lambda: (path.resolve(), path.stat()))
    key, is_file = str(real), stat.S_ISREG(before.st_mode)
    stamp = [kind, before.st_size, before.st_mtime_ns]
    stored = await memory.state.get(IMPORTED, key) if is_file and not anew else None
    if isinstance(stored, dict) and stored.get("stamp") == stamp:
        watch(Progress(before.st_size, before.st_size, path.name))
        return _remembered(kind, stored), []
    found = await anyio.to_thread.run_sync(exports.parts, path)
    parts = [part for part in found if isinstance(part, exports.Part)]
    report = ImportReport(kind)
    for item in found:
        report = report.with_skipped(item) if isinstance(item, Skipped) else report
    others = await anyio.to_thread.run_sync(exports.others, path)
    documents = [other for other in others if kind == "claude-ai" and exports.document_kind(other.name)]
    if not parts and not documents and not report.skipped_count:
        raise NotFound(f"{path} holds no conversations.json; give the export as it was downloaded, or another --format")
    read = chatgpt.session if kind == "chatgpt" else claude_ai.session
    done, total = 0, sum(part.size for part in parts)
    for part in parts:
        offsets = [0]

        def pieces(part: exports.Part = part, offsets: list[int] = offsets) -> Pieces:
            for place, conversation in enumerate(exports.conversations(part, offsets.append), start=1):
                yield from read(conversation, place, project)

        report = await _pieces(memory, pieces(), report, _shown(watch, done, total, offsets))
        done += part.size
        watch(Progress(done, total, part.name))
    report, written = await _import_documents(memory, documents, report)
    for other in others:
        if other not in documents:
            report = report.with_skipped(_not_imported(other))
    if is_file:
        kept = {"stamp": stamp, "sessions": report.sessions, "turns": report.turns, "reasons": dict(report.reasons)}
        await memory.state.put(IMPORTED, key, kept)
    return report, written


DOCUMENTS = "claude-ai"
"""The folder under `knowledge/reference/` that projects and memories go to."""


async def _import_documents(
    memory: Memory, parts: list[exports.Part | Skipped], report: ImportReport
) -> tuple[ImportReport, list[str]]:
    """Writes the projects and memories of an export, projects first: memories name them."""
    known: dict[str, str] = {}
    counts: Counter[str] = Counter()
    written: list[str] = []
    for part in sorted(parts, key=lambda part: (exports.document_kind(part.name) != "projects", part.name)):
        if isinstance(part, Skipped):
            report = report.with_skipped(part)
            continue
        kind = exports.document_kind(part.name)
        read = claude_ai.project if kind == "projects" else claude_ai.memories

        def items(part: exports.Part = part) -> list[object]:
            return list(exports.conversations(part))

        for item in await anyio.to_thread.run_sync(items):
            counts[kind] += 1
            for made in read(item, counts[kind], known):
                if isinstance(made, Skipped):
                    report = report.with_skipped(made)
                    continue
                kept = await import_markdown_file(memory, DOCUMENTS, made.path, made.text.encode())
                report = _with_file(report, kept, made.path)
                if kept.status in ("new", "changed"):
                    written.append(kept.path)
    return report, written


def _not_imported(file: exports.Part | Skipped) -> Skipped:
    """Returns the entry of the report for a file without conversations, projects or memories."""
    if isinstance(file, Skipped):
        return file
    name = PurePosixPath(file.name.replace("\\", "/")).name.rpartition(": ")[2]
    if name.lower().endswith(".json"):
        return Skipped(file.name, f"{re.sub(r'[0-9a-f-]{8,}', '…', name)} is not imported")
    return Skipped(file.name, f"file of type {PurePosixPath(name).suffix or 'unknown'} is not imported")


def _with_file(report: ImportReport, kept: ImportedFile, name: str) -> ImportReport:
    """Returns the report with one more markdown file."""
    if kept.status == "skipped":
        return report.with_skipped(Skipped(name, kept.why or "refused"))
    return dataclasses.replace(
        report,
        files=report.files + 1,
        new_files=report.new_files + (kept.status == "new"),
        changed_files=report.changed_files + (kept.status == "changed"),
    )


def _remembered(kind: Format, stored: dict[str, object]) -> ImportReport:
    sessions, turns, reasons = stored.get("sessions"), stored.get("turns"), stored.get("reasons")
    report = ImportReport(
        kind,
        sessions=sessions if isinstance(sessions, int) else 0,
        turns=turns if isinstance(turns, int) else 0,
        unchanged=1,
    )
    return report.with_counted(reasons) if isinstance(reasons, dict) else report


async def _pieces(memory: Memory, pieces: Pieces, report: ImportReport, watch: Callable[[str], None]) -> ImportReport:
    while (piece := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
        if isinstance(piece, Skipped):
            report = report.with_skipped(piece)
        else:
            report = await _record(memory, piece, report)
            watch(piece.session_id)
    return report


def _shown(watch: Watch, done: int, total: int, offsets: list[int]) -> Callable[[str], None]:
    return lambda label: watch(Progress(done + offsets[-1], total, label))


async def _record(memory: Memory, session: ImportedSession, report: ImportReport) -> ImportReport:
    new = repeated = redacted = 0
    for part in in_parts(session):
        recorded = await record_session(memory, part)
        new, repeated = new + recorded.new_turns, repeated + recorded.repeated_turns
        redacted += recorded.redacted
    return dataclasses.replace(
        report,
        sessions=report.sessions + 1,
        new_sessions=report.new_sessions + bool(new and not repeated),
        turns=report.turns + new + repeated,
        new_turns=report.new_turns + new,
        redacted=report.redacted + redacted,
    )


async def _import_claude_code(
    memory: Memory, path: Path, project: str | None, anew: bool, watch: Watch
) -> ImportReport:
    report = ImportReport("claude-code")
    found = await anyio.to_thread.run_sync(lambda: list(transcripts(path)))
    files = [item for item in found if isinstance(item, Path)]
    for item in found:
        report = report.with_skipped(item) if isinstance(item, Skipped) else report
    if not files and not report.skipped_count:
        raise NotFound(f"{path} holds no transcript (.jsonl); give the folder of one project, or of all projects")
    sizes = await anyio.to_thread.run_sync(lambda: [_size(file) for file in files])
    done, total = 0, sum(sizes)
    for file, size in zip(files, sizes, strict=True):
        skipped: Counter[str] = Counter()

        def reading(offset: int, done: int = done, label: str = file.name) -> None:
            watch(Progress(done + offset, total, label))

        try:
            came = await claude_code.import_file(memory, file, project, skipped, anew=anew, told=reading)
        except ContextManagerError as error:
            report = report.with_skipped(Skipped(file.name, str(error)))
        else:
            report = dataclasses.replace(
                report,
                sessions=report.sessions + came.sessions,
                new_sessions=report.new_sessions + came.new_sessions,
                turns=report.turns + came.turns,
                new_turns=report.new_turns + came.new_turns,
                copied=report.copied + came.copied,
                redacted=report.redacted + came.redacted,
                unchanged=report.unchanged + came.unchanged,
            ).with_counted(skipped)
        done += size
        watch(Progress(done, total, file.name))
    return report


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


async def _import_markdown(memory: Memory, path: Path, name: str, watch: Watch) -> ImportReport:
    report = ImportReport("markdown")
    files = await anyio.to_thread.run_sync(markdown.listing, path)
    written: list[str] = []
    for place, (found, relative) in enumerate(files, start=1):
        file = await anyio.to_thread.run_sync(markdown.read_one, found, relative)
        if isinstance(file, Skipped):
            report = report.with_skipped(file)
        else:
            kept = await import_markdown_file(memory, name, file.relative, file.content)
            report = _with_file(report, kept, relative)
            if kept.status in ("new", "changed"):
                written.append(kept.path)
        watch(Progress(place, len(files), relative))
    return await _committed(memory, report, name, written)


async def _committed(memory: Memory, report: ImportReport, name: str, written: list[str]) -> ImportReport:
    """Commits everything that was written, and returns the report with the commit's id."""
    if not (written or report.new_turns):
        return report
    committed, why_not = await commit_together(memory, f"import {name}", written)
    return dataclasses.replace(report, commit=committed or why_not or "nothing to commit")
