"""Condense: what the days left becomes what lasts (S4 §8.4). Daily, weekly, monthly; done again at once, each changes
nothing.

daily    what was closed becomes knowledge; journals over their budget lose the lines that hold least
weekly   of each week's journals a few lines go into MEMORY.md, which every context carries: not what a project's own
         context says, nor of weeks that are long past when an import brings them, which search finds; what is not
         active leaves it; the cap holds; the indexes of people and projects are written anew
monthly  weekly; old journals and old plans go to archive/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import Any, Literal

from anyio.to_thread import run_sync

from mcp_server.actions.despite_editors import despite_editors
from mcp_server.actions.editing import archive, stamped
from mcp_server.actions.lifecycle.archive import archive_journals, journal_days
from mcp_server.actions.lifecycle.extract import ChangedFile, extract
from mcp_server.actions.lifecycle.prune_knowledge import prune_memory
from mcp_server.actions.projects import slugs_of
from mcp_server.core.lifecycle import condense as decide
from mcp_server.core.lifecycle import indexes
from mcp_server.core.lifecycle.changing import without_overtaken
from mcp_server.core.lifecycle.lines import Source, sources_of, without_sources
from mcp_server.core.text import entries
from mcp_server.core.text.fencing import neutralise
from mcp_server.core.text.markdown import split_front_matter
from mcp_server.core.text.remembering import ARCHIVE, MEMORY, place_for
from mcp_server.llm import LlmUnavailable
from mcp_server.memory import Memory
from mcp_server.store.changes import Change

Period = Literal["daily", "weekly", "monthly"]

PROJECTS = "knowledge/projects/"
OLD_PLANS_DAYS = 180
"""A derived plan that old leaves the file of its person or project for the same file in archive/."""
ACTIVE_DAYS = 30
"""A project of which nothing was said for so long is not listed as active by us."""
SHOWN = 40
"""Lines that a model chooses from."""


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

    def trim() -> list[str]:
        changed = []
        for path in sorted(journal_days(memory)):
            after = _edit(memory, path, _trimmed, done)
            if after:
                changed.append(path)
        return changed

    await _locked(memory, done, trim)


def _trimmed(body: str) -> str:
    return decide.without(body, decide.over_budget(body, len(without_sources(body).encode())))


# ------------------------------------------------------------ weekly


async def _weekly(memory: Memory, done: Condensed) -> None:
    today = date.fromisoformat(memory.local_date(memory.clock()))
    chosen: list[decide.Chosen] = []
    weeks = await run_sync(_weeks, memory)
    known = await run_sync(_known, memory)
    promoted = await run_sync(_promoted, memory)
    projects = await run_sync(slugs_of, memory)
    for monday, journals in sorted(weeks.items()):
        room = decide.A_WEEK - promoted[monday]
        late = (today - date.fromisoformat(monday)).days >= decide.STALE_DAYS - 7
        if room <= 0 or late:
            continue
        listed = decide.candidates(journals, [*known, *(one.text for one in chosen)], projects)
        chosen += await _best(memory, listed, room)

    def write() -> list[str]:
        return despite_editors(partial(_into_memory, memory, chosen, today, done))

    await _locked(memory, done, write)
    lines = (await run_sync(memory.files.text_or_none, MEMORY) or "").count("\n")
    cap = memory.settings.lifecycle.memory_line_cap
    if lines > cap:
        pruned = await prune_memory(memory, cap, done.dry_run)
        done.notes += [f"{len(pruned.of_fate('gone'))} entries of {MEMORY} moved to {ARCHIVE}"]
        done.notes += [f"bring back: recover {one}" for one in pruned.undo]


async def _best(memory: Memory, listed: Sequence[decide.Chosen], most: int) -> list[decide.Chosen]:
    """The best of a week: as a model says, where there is one and more to choose from than there is room."""
    if memory.llm is not None and len(listed) > most:
        shown = listed[:SHOWN]
        lines = "\n".join(f"{number}. {one.day}: {neutralise(one.text)}" for number, one in enumerate(shown, 1))
        prompt = memory.templates("condense").replace("{most}", str(most)).replace("{lines}", lines)
        try:
            answer = await memory.llm.complete(prompt, purpose="condensation", max_tokens=100)
        except LlmUnavailable:
            answer = ""
        places = decide.picked(answer, len(shown), most)
        if places is not None:
            return [shown[place] for place in places]
    return list(listed[:most])


def _into_memory(memory: Memory, chosen: Sequence[decide.Chosen], today: date, done: Condensed) -> list[str]:
    """Writes the chosen lines and takes out what is stale, the archive first. Decides anew what is known by now."""
    before = memory.files.text_or_none(MEMORY)
    text = before or place_for("fact", "x", None, today.isoformat(), None).template
    start = split_front_matter(text)
    body = start.body
    leaving = [*decide.stale(body, today), *decide.replaced(body, chosen)]
    body = decide.without(body, leaving)
    for one in chosen:
        if one.text not in body:
            body = entries.appended(body, one.section, one.entry)
    if body == start.body:
        return []
    after = stamped(MEMORY, text[: len(text) - len(start.body)] + body, memory.clock(), None)
    if not done.dry_run:
        archive(memory, [left.entry for left in leaving])
        memory.files.write_atomic(MEMORY, after, before, new=before is None)
    done.add(MEMORY, before or "", after)
    if leaving:
        done.notes.append(f"{len(leaving)} lines that are not active any more, or no longer so, move to {ARCHIVE}")
    return [] if done.dry_run else [MEMORY, *([ARCHIVE] if leaving else [])]


def _weeks(memory: Memory) -> Mapping[str, list[tuple[str, str]]]:
    """The journals as (day, body) by their week's Monday."""
    weeks: dict[str, list[tuple[str, str]]] = {}
    for path, day in sorted(journal_days(memory).items()):
        text = memory.files.text_or_none(path)
        if text is not None:
            weeks.setdefault(_monday(day), []).append((day.isoformat(), split_front_matter(text).body))
    return weeks


def _known(memory: Memory) -> list[str]:
    """What MEMORY.md and its archive say, and the projects' contexts: their sessions are shown those beside it."""
    contexts = [stat.path for stat in memory.files.walk(PROJECTS) if stat.path.endswith("/context.md")]
    return [
        entries.normalised(without_sources(one.text))
        for path in (MEMORY, ARCHIVE, *contexts)
        for one in entries.entries(split_front_matter(memory.files.text_or_none(path) or "").body)
    ]


def _promoted(memory: Memory) -> Counter[str]:
    """How many derived lines MEMORY.md and its archive have of each week, by its Monday."""
    found: Counter[str] = Counter()
    for path in (MEMORY, ARCHIVE):
        for one in entries.entries(split_front_matter(memory.files.text_or_none(path) or "").body):
            if one.date and sources_of(one.text):
                with suppress(ValueError):  # a day that is none
                    found[_monday(date.fromisoformat(one.date))] += 1
    return found


def _monday(day: date) -> str:
    return (day - timedelta(days=day.weekday())).isoformat()


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
        for path, lines in ((indexes.PEOPLE_INDEX, _people(memory)), (indexes.PROJECT_INDEX, _projects(memory, today))):
            if memory.files.readable(path) is None and (not lines or memory.files.exists(path)):
                continue
            if _edit(memory, path, lambda body, lines=lines: indexes.rewritten(body, lines), done):  # type: ignore[misc]
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
        line = indexes.description([split_front_matter(text).body]) if text is not None else None
        if line is not None:
            found[f"[[{name}]]"] = line
    return found


def _projects(memory: Memory, today: date) -> dict[str, tuple[str, Source]]:
    """The projects of which something was said lately."""
    bodies: dict[str, list[str]] = {}
    for stat in memory.files.walk(PROJECTS):
        parts = stat.path.split("/")
        text = memory.files.readable(stat.path) if len(parts) == 4 and stat.path.endswith(".md") else None
        if text is not None:
            bodies.setdefault(parts[2], []).append(without_overtaken(split_front_matter(text).body))
    since = (today - timedelta(days=ACTIVE_DAYS)).isoformat()
    found = {}
    for slug, texts in bodies.items():
        line = indexes.description(texts)
        days = [one.date for text in texts for one in entries.entries(text)]
        if line is not None and max(days, default="") >= since:
            found[f"**{slug}**"] = line
    return found


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
