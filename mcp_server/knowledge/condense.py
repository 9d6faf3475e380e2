"""Condense: journals, indexes and MEMORY.md follow the other pages. Doing it again at once changes nothing.

daily    closed conversations become knowledge
weekly   MEMORY.md gets its derived lines (`core/lifecycle/core_memory.py`) and is kept within its cap; the indexes of
         people and projects are written anew
monthly  weekly; old journals and old plans go to archive/
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Literal

from anyio.to_thread import run_sync

from mcp_server.knowledge import page_indexes
from mcp_server.knowledge import page_indexes as decide
from mcp_server.knowledge.archive import archive_journals
from mcp_server.knowledge.core_memory import standing_of
from mcp_server.knowledge.editing import despite_editors, stamped
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.prune_knowledge import prune_memory
from mcp_server.knowledge.writing import ChangedFile, renew_memory
from mcp_server.memory import Memory
from mcp_server.storage.values import Change
from mcp_server.text import entries
from mcp_server.text.derived_lines import Source
from mcp_server.text.destinations import ARCHIVE, MEMORY
from mcp_server.text.markdown import split_front_matter

Period = Literal["daily", "weekly", "monthly"]

PROJECTS = "knowledge/projects/"
OLD_PLANS_DAYS = 180
"""A derived plan that old leaves the file of its person or project for the same file in archive/."""
ACTIVE_DAYS = 30
"""A project of which nothing was said for so long is not listed as active by us."""


@dataclass(slots=True)
class Condensed:
    """What was done, or would be: changed files by path, and sentences."""

    period: Period
    dry_run: bool
    files: dict[str, ChangedFile] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, path: str, before: str, after: str) -> None:
        """Notes a change of a file."""
        if before != after:
            self.files[path] = ChangedFile.of(path, before, after)

    def as_dict(self) -> dict[str, Any]:
        """What a program reads."""
        return {
            "period": self.period,
            "dry_run": self.dry_run,
            "files": [
                {"path": one.path, "added": one.added, "removed": one.removed, "diff": one.diff}
                for one in self.files.values()
            ],
            "notes": self.notes,
        }


async def condense(memory: Memory, period: Period, *, dry_run: bool = False, with_indexes: bool = True) -> Condensed:
    """Condenses; see above. A dry run says what would happen to what is there now. Indexes repeat lines of the files:
    whoever compares two memories leaves them out."""
    done = Condensed(period, dry_run)
    if period == "daily":
        await _daily(memory, done)
        return done
    await _weekly(memory, done)
    if period == "monthly":
        await _monthly(memory, done)
    if with_indexes:
        await _indexes(memory, done)
    return done


# ------------------------------------------------------------ daily


async def _daily(memory: Memory, done: Condensed) -> None:
    if memory.settings.lifecycle.extraction_trigger == "manual":
        done.notes.append("conversations are read only by `context-manager extract` (lifecycle.extraction_trigger)")
    else:
        found = await extract(memory, dry_run=done.dry_run)
        done.files.update(found.files)
        done.notes += found.notes
        if found.read:
            done.notes.append(f"{found.read} conversations read: {found.lines} lines found")


# ------------------------------------------------------------ weekly


async def _weekly(memory: Memory, done: Condensed) -> None:
    changed = await renew_memory(memory, done.dry_run)
    if changed is not None:
        done.files[MEMORY] = changed
    lines = (await run_sync(memory.files.text_or_none, MEMORY) or "").count("\n")
    cap = memory.settings.lifecycle.memory_line_cap
    if lines > cap:
        pruned = await prune_memory(memory, cap, done.dry_run)
        done.notes += [f"{len(pruned.of_fate('gone'))} entries of {MEMORY} moved to {ARCHIVE}"]
        done.notes += [f"bring back: recover {one}" for one in pruned.undo]


# ------------------------------------------------------------ monthly


async def _monthly(memory: Memory, done: Condensed) -> None:
    moved = await archive_journals(memory, done.dry_run)
    if moved.changes:
        would = "would move" if done.dry_run else "moved"
        done.notes.append(f"{len(moved.of_fate('gone'))} journals {would} to archive/journal/")
        done.notes += [f"bring back: recover {one}" for one in moved.undo]
    today = date.fromisoformat(memory.local_date(memory.clock()))

    await _locked(memory, done, lambda: list(_old_plans(memory, today, done)))


async def _indexes(memory: Memory, done: Condensed) -> None:
    today = date.fromisoformat(memory.local_date(memory.clock()))

    def write() -> list[str]:
        changed = []
        for path, lines in (
            (page_indexes.PEOPLE_INDEX, _people(memory)),
            (page_indexes.PROJECT_INDEX, _projects(memory, today)),
        ):
            if memory.files.readable(path) is None and (not lines or memory.files.exists(path)):
                continue
            if _edit(memory, path, lambda body, lines=lines: page_indexes.rewritten(body, lines), done):  # type: ignore[misc]
                changed.append(path)
        return changed

    await _locked(memory, done, write)


def _old_plans(memory: Memory, today: date, done: Condensed) -> Iterator[str]:
    """Derived plans that are old, and what happened longest ago in a long file, move to the file of the same name in
    archive/, which gets them first."""
    before = (today - timedelta(days=OLD_PLANS_DAYS)).isoformat()
    for folder in ("knowledge/people/", PROJECTS):
        for stat in list(memory.files.walk(folder)):
            text = memory.files.readable(stat.path) if stat.path.endswith(".md") else None
            if text is None:
                continue
            body = split_front_matter(text).body
            leaving = decide.cold(body, before)
            if not leaving:
                continue
            cold = stat.path.replace("knowledge/", "archive/", 1)
            title = stat.path.rsplit("/", 1)[-1].removesuffix(".md")

            def added(archived: str, leaving: Sequence[decide.Left] = leaving) -> str:
                for left in leaving:
                    if entries.same_entry(archived, left.entry.text) is None:
                        archived = entries.appended(archived, left.entry.section, left.entry.text)
                return archived

            def taken(body: str, leaving: Sequence[decide.Left] = leaving) -> str:
                return decide.without(body, leaving)

            _edit(memory, cold, added, done, f"# Archived: {title}\n")
            _edit(memory, stat.path, taken, done)
            yield from (cold, stat.path)


def _people(memory: Memory) -> dict[str, tuple[str, Source]]:
    found = {}
    for stat in memory.files.walk("knowledge/people/"):
        name = stat.path.rsplit("/", 1)[-1].removesuffix(".md")
        text = memory.files.readable(stat.path) if stat.path.endswith(".md") and name[0] != "_" else None
        line = page_indexes.description(split_front_matter(text).body) if text is not None else None
        if line is not None:
            found[f"[[{name}]]"] = line
    return found


def _projects(memory: Memory, today: date) -> dict[str, tuple[str, Source]]:
    """Returns where the projects of the last `ACTIVE_DAYS` days are."""
    bodies: dict[str, list[str]] = {}
    for stat in memory.files.walk(PROJECTS):
        parts = stat.path.split("/")
        text = memory.files.readable(stat.path) if len(parts) == 4 and stat.path.endswith(".md") else None
        if text is not None:
            bodies.setdefault(parts[2], []).append(split_front_matter(text).body)
    since = (today - timedelta(days=ACTIVE_DAYS)).isoformat()
    found = (standing_of(slug, texts) for slug, texts in bodies.items())
    return {one.label: (one.text, one.source) for one in found if one is not None and one.day >= since}


# ------------------------------------------------------------ shared


def _edit(memory: Memory, path: str, change: Callable[[str], str], done: Condensed, template: str = "") -> bool:
    """Rewrites the body of a file; whether it changed."""

    def edit() -> bool:
        before = memory.files.text_or_none(path)
        text = before if before is not None else template
        start = split_front_matter(text)
        body = change(start.body)
        if body == start.body:
            return False
        after = stamped(path, text[: len(text) - len(start.body)] + body, memory.clock(), None)
        if not done.dry_run:
            memory.files.write_atomic(path, after, before, new=before is None)
        done.add(path, before or "", after)
        return True

    return despite_editors(edit)


async def _locked(memory: Memory, done: Condensed, work: Callable[[], list[str]]) -> None:
    """Runs `work` under the files' lock (a dry run takes none), and tells what it changed."""
    if done.dry_run:
        await run_sync(work)
        return
    async with memory.locks.files():
        changed = await run_sync(work)
    for path in changed:
        memory.changes.publish(Change("file", path))
