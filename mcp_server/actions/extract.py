"""Extract: conversations become knowledge: people, decisions, lessons, procedures, facts, the day's journal (S4 §8.3).

Every line names the turn that it comes from. Doing it again changes nothing; a conversation that was read by the same
versions of the extractors is not read again. What a person or an agent wrote stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import perf_counter
from typing import Any

import anyio
from anyio.to_thread import run_sync

from mcp_server.actions import sessions
from mcp_server.actions.closed_sessions import PENDING_EXTRACTION
from mcp_server.actions.deriving import Derived, chosen, derive, versions
from mcp_server.actions.despite_editors import despite_editors
from mcp_server.actions.editing import difference, stamped
from mcp_server.core.lifecycle.indexes import PEOPLE_INDEX, PROJECT_INDEX
from mcp_server.core.lifecycle.lines import Line
from mcp_server.core.lifecycle.merging import merged
from mcp_server.core.lifecycle.places import by_file
from mcp_server.core.text.markdown import split_front_matter
from mcp_server.core.text.remembering import Place
from mcp_server.core.text.transcript import Transcript
from mcp_server.errors import ContextManagerError
from mcp_server.memory import Memory
from mcp_server.store.changes import Change
from mcp_server.store.files import WorkspaceFiles

log = logging.getLogger(__name__)

EXTRACTED = "extracted"
"""Namespace of the state: path of a transcript → the versions that read it and how many turns it had."""

FOLDERS = (
    "knowledge/people/",
    "knowledge/projects/",
    "knowledge/procedures/",
    "knowledge/reference/",
    "knowledge/journal/",
)
"""Where extractors write, and so where reading a conversation anew takes out what an earlier reading wrote."""

FLUSHED = ("Decision:", "Lesson:", "To-do:")
"""Beginnings of journal lines that the flush before a drop writes: nobody else does."""

BATCH = 20
"""So many transcripts are read, then written: a crash loses no more, and that is done again."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """What became of one file: lines added, and the change as a diff."""

    path: str
    added: int
    diff: str


@dataclass(slots=True)
class Extracted:
    """An extraction: transcripts read, those that were read before, lines found and files changed, by their paths."""

    dry_run: bool = False
    read: int = 0
    known: int = 0
    lines: int = 0
    by_model: int = 0
    fell_back: int = 0
    files: dict[str, ChangedFile] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """What a program reads."""
        return {
            "dry_run": self.dry_run,
            "read": self.read,
            "known": self.known,
            "lines": self.lines,
            "added": sum(file.added for file in self.files.values()),
            "by_model": self.by_model,
            "fell_back": self.fell_back,
            "files": [{"path": one.path, "added": one.added, "diff": one.diff} for one in self.files.values()],
            "notes": self.notes,
        }


async def extract(
    memory: Memory,
    session: str | None = None,
    names: Sequence[str] = (),
    *,
    anew: bool = False,
    dry_run: bool = False,
    show: Callable[[float, float, str], None] = lambda done, total, label: None,
) -> Extracted:
    """Reads the closed conversations, or `session`, open or not, by the extractors of these `names` (all without any).

    `anew` reads again what was read, and takes out what only the earlier reading says.

    Raises:
        Invalid: no extractor of that name. NotFound: no such session.
    """
    extractors = chosen(names)
    done = Extracted(dry_run)
    paths = await _paths(memory, session)
    used = versions(extractors)
    known = await memory.state.entries(EXTRACTED)
    waiting: list[tuple[Derived, str]] = []
    for number, path in enumerate(paths, start=1):
        show(number - 1, len(paths), path.rsplit("/", 1)[-1])
        try:
            transcript = await run_sync(memory.transcripts.read, path)
        except ContextManagerError as error:
            done.notes.append(f"left out: {error}")
            continue
        if transcript.head.ended is None and session is None:
            continue
        seen = _mark(used, transcript)
        if not anew and not names and known.get(path) == seen:
            done.known += 1
            continue
        try:
            waiting.append((await derive(memory, path, transcript, extractors), seen))
        except ContextManagerError:
            raise
        except Exception as error:  # what stands in one conversation must not keep the others from being read
            done.notes.append(f"left out: {path} cannot be read by the rules ({type(error).__name__}: {error})")
            continue
        if len(waiting) == BATCH:
            await _finish(memory, waiting, done, anew and not names, bool(names))
            waiting = []
    await _finish(memory, waiting, done, anew and not names, bool(names))
    show(len(paths), max(1, len(paths)), "")
    return done


async def is_waiting(memory: Memory) -> bool:
    """Whether `extract_pending` has something to read."""
    if memory.settings.lifecycle.extraction_trigger == "manual":
        return False
    return bool(await memory.state.keys_of(PENDING_EXTRACTION))


async def extract_pending(memory: Memory, rest: float = 0.0) -> int:
    """Reads the conversations that were closed since; returns how many. After each it rests `rest` times as long as
    that took, for whoever does it beside other work."""
    if not await is_waiting(memory):
        return 0
    extractors = chosen(())
    known = await memory.state.entries(EXTRACTED)
    done = Extracted()
    for path in await memory.state.keys_of(PENDING_EXTRACTION):
        try:
            transcript = await run_sync(memory.transcripts.read, path)
        except ContextManagerError:  # gone, or broken: `status` names it, and `extract` reads it once it is mended
            await memory.state.remove(PENDING_EXTRACTION, path)
            continue
        seen = _mark(versions(extractors), transcript)
        if known.get(path) == seen:
            await memory.state.remove(PENDING_EXTRACTION, path)
            continue
        began = perf_counter()
        try:
            derived = await derive(memory, path, transcript, extractors)
        except ContextManagerError:
            raise
        except Exception as error:  # the same: `extract` names it again
            log.warning("%s cannot be read by the rules: %s: %s", path, type(error).__name__, error)
            await memory.state.remove(PENDING_EXTRACTION, path)
            continue
        await _finish(memory, [(derived, seen)], done, False, False)
        await anyio.sleep(rest * (perf_counter() - began))
    return done.read


async def _paths(memory: Memory, session: str | None) -> list[str]:
    if session is None:
        return await run_sync(lambda: sorted(memory.transcripts.all()))
    return list((await sessions.show_session(memory, session)).paths)


def _mark(used: str, transcript: Transcript) -> str:
    return f"{used}; {len(transcript.turns)} turns"


async def _finish(
    memory: Memory, waiting: Sequence[tuple[Derived, str]], done: Extracted, anew: bool, partly: bool
) -> None:
    """Writes what was derived, and notes that it was."""
    if not waiting:
        return
    derived = [one for one, _ in waiting]
    done.read += len(derived)
    done.lines += sum(len(one.lines) for one in derived)
    done.by_model += sum(one.model for one in derived)
    done.fell_back += sum(one.fell_back for one in derived)
    for changed in await write_lines(memory, derived, anew=anew, dry_run=done.dry_run):
        before = done.files.get(changed.path)
        added, diff = (before.added, before.diff + "\n") if before else (0, "")
        done.files[changed.path] = ChangedFile(changed.path, added + changed.added, diff + changed.diff)
    if done.dry_run:
        return
    for one, seen in waiting:
        if not partly:
            await memory.state.put(EXTRACTED, one.path, seen)
            await memory.state.remove(PENDING_EXTRACTION, one.path)


async def write_lines(
    memory: Memory, derived: Sequence[Derived], *, anew: bool = False, dry_run: bool = False
) -> list[ChangedFile]:
    """Writes lines into their files, durably, each file whole; returns what changed. `dry_run` only says so."""
    lines = [(line, one.title) for one in derived for line in one.lines]
    by_day = _sessions_by_journal(derived)
    stale = frozenset(one.path for one in derived) if anew else frozenset()
    placed = await run_sync(by_file, lines)

    def work() -> list[ChangedFile]:
        paths = {*placed, *(_holding(memory.files, stale) if stale else ())}
        changed = [
            _written(memory.files, path, placed.get(path, []), stale, by_day.get(path, ()), memory.clock(), dry_run)
            for path in sorted(paths)
        ]
        return [one for one in changed if one is not None]

    if dry_run:
        return await run_sync(work)
    async with memory.locks.files():
        changed = await run_sync(work)
    for one in changed:
        memory.changes.publish(Change("file", one.path))
    return changed


def _sessions_by_journal(derived: Iterable[Derived]) -> dict[str, list[str]]:
    """The sessions that a journal names."""
    found: dict[str, list[str]] = {}
    for one in derived:
        for path in dict.fromkeys(f"knowledge/journal/{line.said}.md" for line in one.lines if line.file == "journal"):
            found.setdefault(path, []).append(one.session)
    return found


def _holding(files: WorkspaceFiles, transcripts: frozenset[str]) -> list[str]:
    """The files in which a line names one of these transcripts as its source; not the indexes, which only repeat it."""
    marks = [f"[src: {path}#" for path in transcripts]
    found = []
    for folder in FOLDERS:
        for stat in files.walk(folder):
            if not stat.path.endswith(".md") or stat.path in (PEOPLE_INDEX, PROJECT_INDEX):
                continue
            text = files.readable(stat.path)
            if text is not None and any(mark in text for mark in marks):
                found.append(stat.path)
    return found


def _written(
    files: WorkspaceFiles,
    path: str,
    placed: list[tuple[Place, Line]],
    stale: frozenset[str],
    named: Sequence[str],
    now: datetime,
    dry_run: bool,
) -> ChangedFile | None:
    def write() -> ChangedFile | None:
        before = files.text_or_none(path)
        after = rewritten(path, before, placed, stale, named, now)
        if after is None:
            return None
        if not dry_run:
            files.write_atomic(path, after, before, new=before is None)
        added = max(0, after.count("[src: ") - (before or "").count("[src: "))
        return ChangedFile(path, added, difference(before or "", after, path))

    return despite_editors(write)


def rewritten(
    path: str,
    before: str | None,
    placed: Sequence[tuple[Place, Line]],
    stale: frozenset[str],
    named: Sequence[str],
    now: datetime,
) -> str | None:
    """The file with these lines, and without those that come from `stale` transcripts alone; None if nothing changes.

    A new file begins with its place's template. `named` are sessions for a journal's front matter.
    """
    text = before if before is not None else placed[0][0].template
    start = split_front_matter(text)
    body = merged(start.body, placed, stale, FLUSHED)
    if body == start.body and before is not None:
        return None
    after = text[: len(text) - len(start.body)] + body
    for session in named or (None,):
        after = stamped(path, after, now, session)
    return after
