"""Condense: brings journals, indexes and MEMORY.md up to date with the other pages. Repeating it changes nothing.

daily    extracts knowledge from closed conversations
weekly   renews the derived lines of MEMORY.md, keeps it within its cap, and renews the indexes of people and projects
monthly  weekly, and moves old journals and old plans to archive/
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from anyio.to_thread import run_sync

from mcp_server.knowledge import summaries
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.pages import without_emptied
from mcp_server.knowledge.prune_knowledge import archive_journals, last_day, prune_memory
from mcp_server.knowledge.writing import ChangedFile, bodies_of, edit_body, markdown_in, renew, write_changes
from mcp_server.memory import Memory
from mcp_server.text import entries
from mcp_server.text.destinations import (
    ARCHIVE,
    MEMORY,
    PEOPLE_INDEX,
    PROJECT_INDEX,
    PROJECTS,
    archived_path,
    link_to_project,
)
from mcp_server.text.markdown import split_front_matter
from mcp_server.text.transcript_head import stem_of

Period = Literal["daily", "weekly", "monthly"]

PEOPLE = "knowledge/people/"
OLD_PLANS_DAYS = 180
"""A derived plan that is older than this number of days moves to archive/."""

ACTIVE_DAYS = 30
"""A project is listed as active if its newest decision or open item is at most this many days old."""


@dataclass(slots=True)
class Condensed:
    """The result: changed files by path, and sentences for people. A dry run has changed nothing."""

    period: Period
    dry_run: bool
    files: dict[str, ChangedFile] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
        return {**asdict(self), "files": [asdict(one) for one in self.files.values()]}


async def condense(memory: Memory, period: Period, *, dry_run: bool = False, with_indexes: bool = True) -> Condensed:
    """Condenses the workspace. A dry run writes nothing. Without `with_indexes` the indexes are not renewed: they
    repeat lines of other pages, so comparisons of two memories leave them out."""
    done = Condensed(period, dry_run)
    if period == "daily":
        await _daily(memory, done)
        return done
    changed = await renew(memory, dry_run)
    await _within_cap(memory, done)
    if period == "monthly":
        await _journals(memory, done)
        changed += await write_changes(memory, partial(_outdated, memory, dry_run), dry_run)
    if with_indexes:
        changed += await write_changes(memory, partial(_indexes, memory, dry_run), dry_run)
    done.files |= {one.path: one for one in changed}
    return done


async def _daily(memory: Memory, done: Condensed) -> None:
    if memory.settings.lifecycle.extraction_trigger == "manual":
        done.notes.append("conversations are read only by `context-manager extract` (lifecycle.extraction_trigger)")
    else:
        found = await extract(memory, dry_run=done.dry_run)
        done.files.update(found.files)
        done.notes += found.notes
        if found.read:
            done.notes.append(f"{found.read} conversations read: {found.lines} lines found")


async def _within_cap(memory: Memory, done: Condensed) -> None:
    lines = (await run_sync(memory.files.text_or_none, MEMORY) or "").count("\n")
    cap = memory.settings.lifecycle.memory_line_cap
    if lines > cap:
        pruned = await prune_memory(memory, cap, done.dry_run)
        done.notes += [f"{len(pruned.of_fate('gone'))} entries of {MEMORY} moved to {ARCHIVE}"]
        done.notes += [f"bring back: recover {one}" for one in pruned.undo]


async def _journals(memory: Memory, done: Condensed) -> None:
    moved = await archive_journals(memory, done.dry_run)
    if moved.changes:
        would = "would move" if done.dry_run else "moved"
        done.notes.append(f"{len(moved.of_fate('gone'))} journals {would} to archive/journal/")
        done.notes += [f"bring back: recover {one}" for one in moved.undo]


def _indexes(memory: Memory, dry_run: bool) -> list[ChangedFile]:
    changed: list[ChangedFile] = []
    for path, lines in ((PEOPLE_INDEX, _people(memory)), (PROJECT_INDEX, _projects(memory))):
        if memory.files.readable(path) is not None or (lines and not memory.files.exists(path)):
            changed += edit_body(memory, path, partial(summaries.index_with, lines=lines), dry_run)
    return changed


def _outdated(memory: Memory, dry_run: bool) -> list[ChangedFile]:
    """Moves old plans, and the oldest events of pages that are too long, to the file of the same name in archive/. That
    file is written first."""
    before = (last_day(memory) - timedelta(days=OLD_PLANS_DAYS)).isoformat()
    changed: list[ChangedFile] = []
    for path in markdown_in(memory.files, PEOPLE, PROJECTS):
        text = memory.files.readable(path) or ""
        if leaving := summaries.outdated(split_front_matter(text).body, before):
            template = f"# Archived: {stem_of(path)}\n"
            changed += edit_body(memory, archived_path(path), partial(_with, added=leaving), dry_run, template)
            changed += edit_body(memory, path, partial(_without, leaving=leaving), dry_run)
    return changed


def _without(body: str, leaving: Sequence[entries.Entry]) -> str:
    return without_emptied(body, entries.without(body, leaving))


def _with(body: str, added: Sequence[entries.Entry]) -> str:
    """Returns the body of an archived page with these entries, each in its section. Skips entries that the page already
    has."""
    for one in added:
        if entries.same_entry(body, one.text) is None:
            body = entries.appended(body, one.section, one.text)
    return body


def _people(memory: Memory) -> dict[str, summaries.Summary]:
    bodies = bodies_of(memory.files, markdown_in(memory.files, PEOPLE))
    found = {stem_of(path): summaries.of_person(body) for path, body in bodies.items()}
    return {f"[[{name}]]": line for name, line in found.items() if line is not None and name[0] != "_"}


def _projects(memory: Memory) -> dict[str, summaries.Summary]:
    """Returns a line for each project with an item of the last ACTIVE_DAYS days, by its name."""
    bodies: dict[str, list[str]] = {}
    for path, body in bodies_of(memory.files, markdown_in(memory.files, PROJECTS)).items():
        parts = path.split("/")
        if len(parts) == 4:
            bodies.setdefault(parts[2], []).append(body)
    since = (last_day(memory) - timedelta(days=ACTIVE_DAYS)).isoformat()
    found = {link_to_project(slug): summaries.of_project(texts) for slug, texts in bodies.items()}
    return {label: line for label, line in found.items() if line is not None and line.day >= since}
