"""Prune what is known: the oldest entries of MEMORY.md, and knowledge files that nobody needs, go to `archive/`.

Search still finds them there, nothing loads them by itself, and `recover` brings them back. What is done here is noted
under one id, which takes all of it back at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, ContextManagerError
from mcp_server.history.three_way import merged
from mcp_server.knowledge.anchor import anchors
from mcp_server.knowledge.anchors import anchored_entries
from mcp_server.knowledge.editing import WARN_LINES, archive, despite_editors, stamped
from mcp_server.knowledge.eviction import LEAST_DAYS, Eviction, KnowledgeFile, archived_path, decide
from mcp_server.knowledge.pruning import Fated, Pruned
from mcp_server.memory import Memory
from mcp_server.storage.journal import KeptCopies
from mcp_server.storage.values import Change
from mcp_server.text import entries
from mcp_server.text.derived_lines import sources_of
from mcp_server.text.destinations import ARCHIVE, MEMORY
from mcp_server.text.entries import entry_id
from mcp_server.text.links import linked, links
from mcp_server.text.markdown import split_front_matter
from mcp_server.text.transcript_head import title_of
from mcp_server.topics import front_matter

_PATH = re.compile(r"[\w./-]+\.md\b")

COMMITS = 100_000
"""So many commits are looked through for a file's last one."""


# ------------------------------------------------------------ MEMORY.md


async def prune_memory(memory: Memory, target: int | None, dry_run: bool) -> Pruned:
    """Archives the oldest entries of MEMORY.md until it has at most `target` lines: by default the length at which it
    warns, or the cap where that is shorter. Derived lines stay, as they follow other pages; so do anchored and undated
    entries."""
    if dry_run:
        return await run_sync(_memory, memory, target, True)
    async with memory.locks.files():
        done = await run_sync(despite_editors, partial(_memory, memory, target, False))
    if done.changes:
        for path in (MEMORY, ARCHIVE):
            memory.changes.publish(Change("file", path))
    return done


def _most(memory: Memory, target: int | None) -> int:
    return min(WARN_LINES, memory.settings.lifecycle.memory_line_cap) if target is None else target


def _memory(memory: Memory, target: int | None, dry_run: bool) -> Pruned:
    if not memory.files.exists(MEMORY):
        return Pruned("memory", dry_run, MEMORY, where=ARCHIVE, notes=(f"there is no {MEMORY} yet",))
    before = memory.files.read_text(MEMORY)
    start = split_front_matter(before)
    lines, head = before.count("\n"), before.count("\n") - start.body.count("\n")
    most = _most(memory, target)
    listed = entries.entries(start.body)
    spared = anchored_entries((anchor.item for anchor in anchors(memory)), MEMORY, listed, head)
    derived = frozenset(one.start for one in listed if sources_of(one.text))
    body, leaving = entries.without_oldest(start.body, max(0, lines - most), spared | derived)
    undo: tuple[str, ...] = ()
    if leaving and not dry_run:
        archived = memory.files.read_text(ARCHIVE) if memory.files.exists(ARCHIVE) else None
        undo = (KeptCopies(memory.files).keep({MEMORY: before, ARCHIVE: archived}, "prune memory", memory.clock()),)
        archive(memory, leaving)
        after = stamped(MEMORY, before[: len(before) - len(start.body)] + body, memory.clock(), None)
        memory.files.write_atomic(MEMORY, after, before)
    gone = {entry.start for entry in leaving}
    left = lines - sum(entry.end - entry.start + 1 for entry in leaving)
    fates = []
    for entry in listed:
        why = f"the oldest go until {most} lines are left"
        if entry.start in derived:
            why = "derived: it follows another page"
        elif entry.start not in gone:
            why = "anchored" if entry.start in spared else "newer" if entry.date else "without a date"
        what = title_of(entry.text)
        fates.append(Fated(entry_id(entry.text), what, "gone" if entry.start in gone else "keep", why))
    notes = [f"{MEMORY}: {lines} lines, {left} afterwards; it is asked to have at most {most}."]
    if left > most:
        notes.append("What is left over that has no date, or is anchored: shorten it by hand.")
    return Pruned("memory", dry_run, MEMORY, tuple(fates), where=ARCHIVE, notes=tuple(notes), undo=undo)


# ------------------------------------------------------------ files


async def prune_files(memory: Memory, dry_run: bool) -> Pruned:
    """Moves knowledge files with a low eviction score to `archive/`; none before the log of reads covers 30 days."""
    since = await memory.state.access_since()
    covered = (memory.clock() - since).days if since else 0
    if covered < LEAST_DAYS:
        wait = (
            f"The log of reads covers {covered} days; nothing is judged by it before it covers {LEAST_DAYS}: "
            f"a file that nobody has read may only not have been needed yet."
        )
        return Pruned("files", dry_run, "knowledge files", where="archive/", notes=(wait,))
    paths = await run_sync(lambda: [path for path, _ in _knowledge(memory)])
    reads = _Reads(await memory.state.references(paths), await memory.state.last_accesses(paths))
    if dry_run:
        return _told(await run_sync(_decided, memory, reads), dry_run, (), ())
    async with memory.locks.files():
        decided = await run_sync(_decided, memory, reads)
        going = [one.file.path for one in decided if one.goes]
        moved, undo, notes = await run_sync(_evicted, memory, going, "prune files")
    _tell(memory, moved)
    stayed = {one.file.path for one in decided if one.goes} - set(moved)
    return _told([one for one in decided if one.file.path not in stayed], dry_run, undo, notes)


@dataclass(frozen=True, slots=True)
class _Reads:
    """How often files were read or recovered, and when last."""

    counts: Mapping[str, int]
    last: Mapping[str, datetime]


def _told(decided: list[Eviction], dry_run: bool, undo: tuple[str, ...], notes: tuple[str, ...]) -> Pruned:
    fates = tuple(
        Fated(one.file.path, one.file.path, "gone" if one.goes else "keep", one.why)
        for one in sorted(decided, key=lambda one: not one.goes)
    )
    return Pruned("files", dry_run, "knowledge files", fates, where="archive/", notes=notes, undo=undo)


async def moved_to_archive(
    memory: Memory, paths: Sequence[str], why: str
) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """Moves knowledge files to archive/: those that moved, the id that brings them back, what to say of the others."""
    async with memory.locks.files():
        moved, undo, notes = await run_sync(_evicted, memory, paths, why)
    _tell(memory, moved)
    return moved, undo, notes


def _tell(memory: Memory, moved: Sequence[str]) -> None:
    for path in moved:
        memory.changes.publish(Change("file", path))
        memory.changes.publish(Change("file", archived_path(path)))


def _evicted(memory: Memory, paths: Sequence[str], why: str) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """Moves files; returns those that moved, the id that brings them back, and what to say of the others. One of which
    the archive has derived lines already, such as old plans, joins them."""
    moved: list[str] = []
    notes: list[str] = []
    going = {path: memory.files.read_text(path) for path in paths if memory.files.exists(path)}
    there = {path: memory.files.text_or_none(archived_path(path)) for path in going}
    for path in [path for path, text in there.items() if text is not None and not sources_of(text)]:
        notes.append(f"{path} stays: {archived_path(path)} exists already; rename one of them")
        del going[path], there[path]
    if not going:
        return [], (), tuple(notes)
    before: dict[str, str | None] = {**going, **{archived_path(path): text for path, text in there.items()}}
    undo = KeptCopies(memory.files).keep(before, why, memory.clock())
    today = memory.local_date(memory.clock())
    for path, text in going.items():
        archived = there[path]
        try:
            if archived is None:
                memory.files.move(path, archived_path(path))
            else:
                both = merged(path, None, archived, text, (today, today)).text
                memory.files.write_atomic(archived_path(path), both, archived)
                if memory.files.read_text(path) != text:
                    raise Conflict("it was changed while it was archived")
                memory.files.remove(path)
        except ContextManagerError as error:
            notes.append(f"{path} stays: {error}")
        else:
            moved.append(path)
    return moved, (undo,) if moved else (), tuple(notes)


def _decided(memory: Memory, reads: _Reads) -> list[Eviction]:
    """A decision for every knowledge file."""
    now = memory.clock()
    texts: dict[str, str] = {}
    touched: dict[str, datetime] = {}
    for path, mtime in _knowledge(memory):
        try:
            texts[path] = memory.files.read_text(path)
        except ContextManagerError:  # unreadable: somebody has to look at it, so it stays
            continue
        touched[path] = mtime
    commits = _last_commits(memory)
    pointed = _pointed_to(memory, texts)
    held = {anchor.item.partition("#")[0] for anchor in anchors(memory) if anchor.kind in ("file", "passage")}
    files = []
    for path, text in texts.items():
        at = _updated(path, text) or commits.get(path) or touched[path]
        spared = "anchored" if path in held else "linked from elsewhere" if path in pointed else ""
        read = reads.last.get(path)
        files.append(
            KnowledgeFile(
                path,
                days=_days(now, at),
                unchanged=_days(now, touched[path]),
                references=reads.counts.get(path, 0),
                unread=_days(now, read) if read else None,
                spared=spared,
            )
        )
    return decide(files)


def _knowledge(memory: Memory) -> Iterator[tuple[str, datetime]]:
    """Every markdown file of knowledge, and when its bytes last changed."""
    for stat in memory.files.walk("knowledge/"):
        if stat.path.endswith(".md"):
            yield stat.path, datetime.fromtimestamp(stat.mtime_ns / 1e9, UTC)


def _updated(path: str, text: str) -> datetime | None:
    try:
        return front_matter.check(text, path).known.updated
    except ContextManagerError:
        return None


def _last_commits(memory: Memory) -> dict[str, datetime]:
    """The last commit of each file; empty without git."""
    last: dict[str, datetime] = {}
    try:
        for version in memory.git.versions(["knowledge"], COMMITS):
            last.setdefault(version.path, version.at)
    except ContextManagerError:
        return {}
    return last


def _pointed_to(memory: Memory, knowledge: dict[str, str]) -> frozenset[str]:
    """The files that another knowledge file or a topic links to, subscribes to, or names by its path."""
    sources = dict(knowledge)
    for stat in memory.files.walk("topics/"):
        if stat.path.endswith(".md"):
            try:
                sources[stat.path] = memory.files.read_text(stat.path)
            except ContextManagerError:
                continue
    found: set[str] = set()
    for path, text in sources.items():
        # A link to the file itself is none; what two files call the same way is resolved over all of them.
        found |= linked((link.name for link in links(text)), knowledge) - {path}
        found |= knowledge.keys() & set(_PATH.findall(text)) - {path}
    return frozenset(found)


def _days(now: datetime, at: datetime) -> int:
    return max(0, (now - at).days)
