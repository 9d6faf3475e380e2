"""Imports a file or folder: reads it piece by piece, records every piece, accounts for what was left out.

Importing the same thing again adds nothing: turns are known by their source keys, files by their bytes.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from mcp_server.actions.imports import ImportedSession, commit_import, import_markdown_file, record_session
from mcp_server.clients.importers import beam, locomo, markdown
from mcp_server.clients.importers.detect import detect
from mcp_server.clients.importers.imported import Format, Progress, Skipped, Watch, short_name, unwatched
from mcp_server.errors import NotFound
from mcp_server.memory import Memory

NAMED = 1000
"""So many of the things left out are named; the rest is counted."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. `files` count markdown, `sessions` and `turns` conversations.

    `commit` is the id of the commit that holds it, or a sentence why there is none; empty if nothing was new.
    """

    format: Format
    sessions: int = 0
    new_sessions: int = 0
    turns: int = 0
    new_turns: int = 0
    files: int = 0
    new_files: int = 0
    changed_files: int = 0
    redacted: int = 0
    commit: str = ""
    skipped: tuple[Skipped, ...] = ()
    skipped_count: int = 0

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def markdown(self) -> str:
        """What was imported, what was there already, and what was skipped and why."""
        if self.format == "markdown":
            known = self.files - self.new_files - self.changed_files
            lines = [
                f"{self.files} files imported: {self.new_files} new, {self.changed_files} changed, {known} as they were"
            ]
        else:
            known = self.turns - self.new_turns
            lines = [
                f"{self.sessions} sessions, {self.turns} turns imported: {self.new_sessions} sessions and "
                f"{self.new_turns} turns new, {known} turns already recorded"
            ]
        if self.redacted:
            lines.append(f"{self.redacted} turns held secrets, which were redacted before writing")
        if self.skipped_count:
            lines += [f"{self.skipped_count} skipped:", *(f"  {item.name}: {item.why}" for item in self.skipped)]
            if self.skipped_count > len(self.skipped):
                lines.append(f"  … and {self.skipped_count - len(self.skipped)} more")
        return "\n".join(lines)

    def with_skipped(self, item: Skipped) -> ImportReport:
        """The same, with one more thing left out."""
        named = (*self.skipped, item) if len(self.skipped) < NAMED else self.skipped
        return dataclasses.replace(self, skipped=named, skipped_count=self.skipped_count + 1)


async def import_path(
    memory: Memory,
    path: Path,
    *,
    kind: Format | None = None,
    project: str | None = None,
    name: str | None = None,
    watch: Watch = unwatched,
) -> ImportReport:
    """Imports `path` and says what came of it. `name` is the folder that markdown goes to (default: the path's name).

    Raises:
        NotFound, Invalid, Unavailable: what the file or folder is cannot be read; what was recorded before stays.
    """
    path, chosen = await anyio.to_thread.run_sync(_look_at, path, kind)
    if chosen == "markdown":
        return await _import_markdown(
            memory, path, name or short_name(path if path.is_dir() else path.with_suffix("")), watch
        )
    report = ImportReport(chosen)
    files = [path] if chosen == "locomo" else beam.chats(path)
    if not files:
        raise NotFound(f"{path} holds no {beam.CHAT}; give the chat file itself, or another --format")
    sizes = [file.stat().st_size for file in files]
    for place, file in enumerate(files):
        offsets = [0]
        pieces = (locomo if chosen == "locomo" else beam).read(file, project, offsets.append)
        while (piece := await anyio.to_thread.run_sync(next, pieces, None)) is not None:
            if isinstance(piece, ImportedSession):
                report = await _record(memory, piece, report)
                watch(Progress(sum(sizes[:place]) + offsets[-1], sum(sizes), piece.session_id))
            else:
                report = report.with_skipped(piece)
    return await _committed(memory, report, short_name(path), [])


def _look_at(path: Path, kind: Format | None) -> tuple[Path, Format]:
    """`path` made absolute (`.` has no name of its own; a link keeps the name it was given by), and its format."""
    path = Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 - resolve() would follow the link
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give a file or folder that exists")
    return path, kind or detect(path)


async def _record(memory: Memory, session: ImportedSession, report: ImportReport) -> ImportReport:
    recorded = await record_session(memory, session)
    return dataclasses.replace(
        report,
        sessions=report.sessions + 1,
        new_sessions=report.new_sessions + bool(recorded.new_turns and not recorded.repeated_turns),
        turns=report.turns + recorded.new_turns + recorded.repeated_turns,
        new_turns=report.new_turns + recorded.new_turns,
        redacted=report.redacted + recorded.redacted,
    )


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
            if kept.status == "skipped":
                report = report.with_skipped(Skipped(relative, kept.why or "refused"))
            else:
                report = dataclasses.replace(
                    report,
                    files=report.files + 1,
                    new_files=report.new_files + (kept.status == "new"),
                    changed_files=report.changed_files + (kept.status == "changed"),
                )
                if kept.status in ("new", "changed"):
                    written.append(kept.path)
        watch(Progress(place, len(files), relative))
    return await _committed(memory, report, name, written)


async def _committed(memory: Memory, report: ImportReport, name: str, written: list[str]) -> ImportReport:
    """The report, with what git said to one commit of everything that was written."""
    if not (written or report.new_turns):
        return report
    return dataclasses.replace(report, commit=await commit_import(memory, name, written))
