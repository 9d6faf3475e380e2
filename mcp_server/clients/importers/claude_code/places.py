"""Where transcripts lie, and what a place says about session and project."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from mcp_server.clients.importers.claude_code.lines import lines
from mcp_server.clients.importers.imported import Skipped

SUFFIX = ".jsonl"
SUBAGENTS = "subagents"
CONFIG_VARIABLE = "CLAUDE_CONFIG_DIR"

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SESSION_ID = re.compile(r"[^\x00-\x20\x7f-\x9f\ud800-\udfff][^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,99}")
_LOOKED_AT = 200  # lines


def projects_folder(environ: Mapping[str, str]) -> Path:
    """Where Claude Code keeps its transcripts: `$CLAUDE_CONFIG_DIR/projects`, else `~/.claude/projects`."""
    configured = environ.get(CONFIG_VARIABLE)
    return (Path(configured).expanduser() if configured else Path.home() / ".claude") / "projects"


def transcripts(path: Path) -> Iterator[Path | Skipped]:
    """The transcript files that `path` means, the one that was written to first (a copy comes after what it copies):
    itself, those of a project's folder, or of all projects. Links are not followed out of the folder."""
    if path.is_file():
        yield path
        yield from subagents(path)
        return
    root = path.resolve()
    found: list[tuple[int, str, Path]] = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            file = Path(folder, name)
            if file.suffix != SUFFIX:
                continue
            if not file.resolve().is_relative_to(root):
                yield Skipped(str(file.relative_to(path)), "a link that leads out of the folder")
            elif file.is_file():
                found.append((file.stat().st_mtime_ns, str(file), file))
    yield from (file for _, _, file in sorted(found))


def subagents(transcript: Path) -> list[Path]:
    """The transcripts of the subagents that a session started, beside it in a folder of its name."""
    folder = transcript.with_suffix("") / SUBAGENTS
    found = sorted(folder.rglob(f"*{SUFFIX}")) if folder.is_dir() else []
    return [file for file in found if file.is_file() and file.resolve().is_relative_to(folder.resolve())]


def session_of(path: Path, file: BinaryIO) -> str:
    """The session that a file belongs to: the one it is named by, else the one that its lines name."""
    if _UUID.fullmatch(path.stem):
        return path.stem
    for line in islice(lines(file, 0), _LOOKED_AT):
        named = line.fields.get("sessionId") if line.fields else None
        if isinstance(named, str) and _SESSION_ID.fullmatch(named):
            return named
    return re.sub(r"[^\w-]+", "-", path.stem)[:64].strip("-_") or "session"


@dataclass(frozen=True, slots=True)
class ProjectPlace:
    """What tells the project of a conversation: a folder that is there, or a name where it is gone."""

    folder: str | None = None
    name: str | None = None


def project_place(cwd: str | None) -> ProjectPlace:
    """The folder a conversation was in. A worktree that was removed counts as the repository it stood in; another
    folder that is gone, or was on another machine, gives its name."""
    if not cwd:
        return ProjectPlace()
    folder = Path(cwd)
    if folder.is_dir():
        return ProjectPlace(folder=cwd)
    if folder.is_absolute():
        there = next((parent for parent in folder.parents if parent.is_dir()), folder)
        if any(
            (place / marker).exists() for place in (there, *there.parents) for marker in (".git", ".context-manager")
        ):
            return ProjectPlace(folder=str(there))
        if any(folder.is_relative_to(place) for place in (tempfile.gettempdir(), "/tmp")):
            return ProjectPlace()
    name = PurePosixPath(cwd.replace("\\", "/")).name
    return ProjectPlace(name=name or None)
