"""Condense: brings journals, indexes and MEMORY.md up to date with the other pages. Repeating it changes nothing.

daily    extracts knowledge from closed conversations
weekly   renews the derived lines of MEMORY.md, keeps it within its cap, and renews the indexes of people and projects
monthly  weekly, and moves old journals and old plans to archive/
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import Any, Literal

from anyio.to_thread import run_sync

from mcp_server.knowledge import summaries
from mcp_server.knowledge.editing import despite_editors, stamped
from mcp_server.knowledge.extract import extract
from mcp_server.knowledge.prune_knowledge import archive_journals, last_day, prune_memory
from mcp_server.knowledge.writing import ChangedFile, renew_links, renew_memory
from mcp_server.memory import Memory
from mcp_server.storage.values import Change
from mcp_server.text import entries
from mcp_server.text.destinations import ARCHIVE, MEMORY, archived_path
from mcp_server.text.markdown import split_front_matter

Period = Literal["daily", "weekly", "monthly"]

PROJECTS = "knowledge/projects/"
OLD_PLANS_DAYS = 180
"""The age in days from which on a derived plan moves to archive/."""

ACTIVE_DAYS = 30
"""Days after its newest item for which a project is listed as active."""


@dataclass(slots=True)
class Condensed:
    """The result: changed files by path, and sentences for people. A dry run has changed nothing."""

    period: Period
    dry_run: bool
    files: dict[str, ChangedFile] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, path: str, before: str, after: str) -> None:
        """Records the change of a file."""
        if before != after:
            self.files[path] = ChangedFile.of(path, before, after)

    def as_dict(self) -> dict[str, Any]:
        """Returns JSON values."""
        return {
            "period": self.period,
            "dry_run": self.dry_run,
            "files": [asdict(one) for one in self.files.values()],
            "notes": self.notes,
        }


async def condense(memory: Memory, period: Period, *, dry_run: bool = False, with_indexes: bool = True) -> Condensed:
    """Condenses the workspace. A dry run writes nothing. Without `with_indexes` the indexes stay as they are: they
    repeat lines of other pages, and so are left out of comparisons of two memories."""
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
    for linked in await renew_links(memory, done.dry_run):
        done.files[linked.path] = linked
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
    today = await run_sync(last_day, memory)

    await _locked(memory, done, lambda: _outdated(memory, today, done))


async def _indexes(memory: Memory, done: Condensed) -> None:
    today = await run_sync(last_day, memory)

    def write() -> list[str]:
        changed = []
        for path, lines in (
            (summaries.PEOPLE_INDEX, _people(memory)),
            (summaries.PROJECT_INDEX, _projects(memory, today)),
        ):
            if memory.files.readable(path) is None and (not lines or memory.files.exists(path)):
                continue
            if _edit(memory, path, partial(summaries.index_with, lines=lines), done):
                changed.append(path)
        return changed

    await _locked(memory, done, write)


def _outdated(memory: Memory, today: date, done: Condensed) -> list[str]:
    """Moves old plans, and what happened longest ago in a long page, to the file of the same name in archive/, which is
    written first. Returns the paths of the changed files."""
    before = (today - timedelta(days=OLD_PLANS_DAYS)).isoformat()
    changed: list[str] = []
    for folder in ("knowledge/people/", PROJECTS):
        for stat in list(memory.files.walk(folder)):
            text = memory.files.readable(stat.path) if stat.path.endswith(".md") else None
            leaving = summaries.outdated(split_front_matter(text or "").body, before)
            if leaving:
                cold, title = archived_path(stat.path), stat.path.rsplit("/", 1)[-1].removesuffix(".md")
                _edit(memory, cold, partial(_with, added=leaving), done, f"# Archived: {title}\n")
                _edit(memory, stat.path, partial(entries.without, leaving=leaving), done)
                changed += (cold, stat.path)
    return changed


def _with(body: str, added: Sequence[entries.Entry]) -> str:
    """Returns the body of an archived page with these entries, each in its section, without those that it has."""
    for one in added:
        if entries.same_entry(body, one.text) is None:
            body = entries.appended(body, one.section, one.text)
    return body


def _people(memory: Memory) -> dict[str, summaries.Summary]:
    """Returns a line for each person's page, by its link."""
    found = {}
    for stat in memory.files.walk("knowledge/people/"):
        name = stat.path.rsplit("/", 1)[-1].removesuffix(".md")
        text = memory.files.readable(stat.path) if stat.path.endswith(".md") and name[0] != "_" else None
        line = summaries.of_person(split_front_matter(text).body) if text is not None else None
        if line is not None:
            found[f"[[{name}]]"] = line
    return found


def _projects(memory: Memory, today: date) -> dict[str, summaries.Summary]:
    """Returns a line for each project with an item of the last ACTIVE_DAYS days before `today`, by its name."""
    bodies: dict[str, list[str]] = {}
    for stat in memory.files.walk(PROJECTS):
        parts = stat.path.split("/")
        text = memory.files.readable(stat.path) if len(parts) == 4 and stat.path.endswith(".md") else None
        if text is not None:
            bodies.setdefault(parts[2], []).append(split_front_matter(text).body)
    since = (today - timedelta(days=ACTIVE_DAYS)).isoformat()
    found = {summaries.link_to_project(slug): summaries.of_project(texts) for slug, texts in bodies.items()}
    return {label: line for label, line in found.items() if line is not None and line.day >= since}


# ------------------------------------------------------------ shared


def _edit(memory: Memory, path: str, change: Callable[[str], str], done: Condensed, template: str = "") -> bool:
    """Rewrites the body of a file, in a dry run only in `done`. Returns whether the body changed."""

    def edit() -> bool:
        before = memory.files.text_or_none(path)
        text = before if before is not None else template
        start = split_front_matter(text)
        body = change(start.body)
        if body == start.body:
            return False
        after = stamped(path, start.head + body, memory.clock(), None)
        if not done.dry_run:
            memory.files.write_atomic(path, after, before, new=before is None)
        done.add(path, before or "", after)
        return True

    return despite_editors(edit)


async def _locked(memory: Memory, done: Condensed, work: Callable[[], list[str]]) -> None:
    """Runs `work` under the lock of the files (a dry run takes none), and publishes the paths that it returns."""
    if done.dry_run:
        await run_sync(work)
        return
    async with memory.locks.files():
        changed = await run_sync(work)
    for path in changed:
        memory.changes.publish(Change("file", path))
