"""Moves knowledge to `archive/`: the oldest entries of MEMORY.md, old journals, unused files, and files that are named.

Search still finds archived texts, but no context includes them by default. `recover` restores them: each call returns
an id that restores everything that the call moved.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Literal

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, ContextManagerError, Refused
from mcp_server.history.three_way import merged
from mcp_server.knowledge.anchor import anchors
from mcp_server.knowledge.anchors import anchored_entries
from mcp_server.knowledge.editing import WARN_LINES, archive, despite_editors, stamped
from mcp_server.memory import Memory
from mcp_server.storage.journal import KeptCopies
from mcp_server.storage.values import Change
from mcp_server.text import entries
from mcp_server.text.destinations import ARCHIVE, JOURNALS, MEMORY, archived_path
from mcp_server.text.entries import entry_id, sources_of
from mcp_server.text.fencing import neutralise
from mcp_server.text.markdown import link_targets, links, resolve, split_front_matter
from mcp_server.text.prose import counted
from mcp_server.text.transcript_head import title_of
from mcp_server.topics import front_matter

DECAY_PER_DAY = 0.05
LEAST_SCORE = 0.01
LEAST_DAYS = 30
"""An unused file is archived only if it is older than this number of days, and if the log of reads covers at least as
many days."""

NEVER = ("knowledge/identity/", "knowledge/memory/")

Strategy = Literal["auto", "clarity", "advisor", "compact", "memory", "files"]
Fate = Literal["keep", "fading", "gone"]

LISTED = 10
"""Maximum number of items of each fate in the text for people. Programs get all."""


@dataclass(frozen=True, slots=True)
class Fated:
    """A file or entry (`what`), and what happens to it: its `fate` and the reason (`why`). `tokens` and `after` are its
    tokens before and after the pruning, if they were counted."""

    id: str
    what: str
    fate: Fate
    why: str
    tokens: int | None = None
    after: int | None = None

    @property
    def line(self) -> str:
        """The file or entry on one line."""
        named = self.what if self.id in self.what else f"{self.id} {self.what}"
        size = ""
        if self.tokens is not None:
            size = f" ({self.tokens:,} tokens" + (f" → {self.after:,})" if self.fate == "fading" else ")")
        return f"- {neutralise(named)}{size}: {self.why}"


@dataclass(frozen=True, slots=True)
class Pruned:
    """The report of a pruning. `of` says in words what is pruned, and `where` to which place it moves. `undo` are ids
    for `recover`. `before` and `after` are the tokens of the live context, if that was pruned; with `mirror` they are
    those of the server's copy of the client's context."""

    strategy: Strategy
    dry_run: bool
    of: str
    fates: tuple[Fated, ...] = ()
    session: str | None = None
    where: str = "cold storage"
    before: int | None = None
    after: int | None = None
    limit: int | None = None
    mirror: bool = False
    notes: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()

    def of_fate(self, fate: Fate) -> list[Fated]:
        """Returns the files or entries of one fate, in order."""
        return [one for one in self.fates if one.fate == fate]

    @property
    def changes(self) -> bool:
        """Returns whether anything is moved away or shortened."""
        return any(one.fate != "keep" for one in self.fates)

    @property
    def markdown(self) -> str:
        """The report for people and models."""
        counts = ", ".join(f"{fate} {len(self.of_fate(fate))}" for fate in ("keep", "fading", "gone"))
        lines = [f"prune {self.strategy}: {self.of}: {counts}{self._gauge}"]
        if not self.changes:
            lines.append(f"There {'is' if self.dry_run else 'was'} nothing to prune.")
        goes, shorter = ("would go", "would get shorter") if self.dry_run else ("went", "got shorter")
        lines += _listed(f"gone ({goes} to {self.where}):", self.of_fate("gone"))
        lines += _listed(f"fading ({shorter} or is next):", self.of_fate("fading"))
        lines += _kept(self.of_fate("keep"))
        lines += self.notes
        if self.undo:
            more = " …" if len(self.undo) > LISTED else ""
            lines.append(f"bring back: recover {' | '.join(self.undo[:LISTED])}{more}")
        if self.dry_run and self.changes:
            lines.append("This was a dry run: nothing has changed.")
        return "\n".join(lines)

    @property
    def _gauge(self) -> str:
        if self.before is None or self.after is None or self.limit is None:
            return ""
        will = "would become" if self.dry_run else "became"
        whose = "our mirror" if self.mirror else "live context"
        return f"; {whose} {self.before:,} {will} {self.after:,} of {self.limit:,} tokens"


def _listed(head: str, things: Sequence[Fated]) -> list[str]:
    if not things:
        return []
    rest = len(things) - LISTED
    return [head, *(one.line for one in things[:LISTED]), *([f"- … and {rest} more"] if rest > 0 else [])]


def _kept(things: Sequence[Fated]) -> list[str]:
    """Returns a line that counts the kept files or entries by reason."""
    reasons = Counter(one.why for one in things if one.why)
    said = [f"{why} ({count})" for why, count in reasons.most_common()]
    return [f"keep: {'; '.join(said)}"] if said else []


# ---------------------------------------------------------------- named files and old journals


def never(path: str) -> str:
    """Returns why a file is never archived; empty if it may be."""
    if path.startswith(NEVER):
        return "identity and core memory are never archived"
    return "an index" if path.rsplit("/", 1)[-1].startswith("_") else ""


def journal_days(memory: Memory) -> dict[str, date]:
    """Returns the day of every readable journal, by path."""
    found = {}
    for stat in memory.files.walk(JOURNALS):
        with suppress(ValueError):  # not a journal
            day = date.fromisoformat(stat.path.rsplit("/", 1)[-1].removesuffix(".md"))
            if memory.files.readable(stat.path) is not None:
                found[stat.path] = day
    return found


def last_day(memory: Memory) -> date:
    """Returns the day of the newest journal, or today if that is earlier or there is no journal. The age of knowledge
    is counted up to this day, so that imported conversations of last year do not make their knowledge a year old."""
    today = date.fromisoformat(memory.local_date(memory.clock()))
    return min(today, max(journal_days(memory).values(), default=today))


async def archive_journals(memory: Memory, dry_run: bool) -> Pruned:
    """Moves journals to `archive/` that are more than `lifecycle.journal_retention_days` older than `last_day`, except
    anchored ones."""
    most = memory.settings.lifecycle.journal_retention_days

    def old() -> list[str]:
        days, held, last = journal_days(memory), anchored_files(memory), last_day(memory)
        return sorted(path for path, day in days.items() if (last - day).days > most and path not in held)

    return await _archived(memory, await run_sync(old), f"older than {most} days", "journals", dry_run)


async def archive_files(memory: Memory, paths: Sequence[str], dry_run: bool) -> Pruned:
    """Moves knowledge files to `archive/`. Raises NotFound, or Refused for identity, core memory and indexes."""
    chosen = []
    for given in paths:
        path = memory.files.relative(given)
        if not memory.files.exists(path):
            raise memory.files.missing(path)
        if not path.startswith("knowledge/") or not path.endswith(".md"):
            raise Refused(f"{path} is not a knowledge file; only .md files under knowledge/ can be archived")
        if never(path):
            raise Refused(
                f"{path} stays: {never(path)}; delete the parts that you do not need with `remember` or an editor"
            )
        chosen.append(path)
    return await _archived(memory, chosen, "asked for", "knowledge files", dry_run)


async def _archived(memory: Memory, paths: Sequence[str], why: str, of: str, dry_run: bool) -> Pruned:
    fates = tuple(Fated(path, archived_path(path), "gone", why) for path in paths)
    report = Pruned("files", dry_run, of, fates, where="archive/")
    if dry_run or not paths:
        return report
    return await _make_and_carry_out(memory, lambda: report, f"archive {of}")


async def _make_and_carry_out(memory: Memory, report: Callable[[], Pruned], why: str) -> Pruned:
    """Makes a report under the lock of the files, and moves its files. Returns the report of the moved files."""
    async with memory.locks.files():
        done = await run_sync(lambda: _moved(memory, report(), why))
    for one in done.of_fate("gone"):
        memory.changes.publish(Change("file", one.id))
        memory.changes.publish(Change("file", archived_path(one.id)))
    return done


def _moved(memory: Memory, report: Pruned, why: str) -> Pruned:
    """Moves the files that are `gone` in a report. Returns the report of the moved files, with the id that restores
    them, and a note for each file that was not moved. If a part of a file is archived already, such as old plans, the
    file is merged with that part."""
    notes: list[str] = []
    files = memory.files
    going = {one.id: files.read_text(one.id) for one in report.of_fate("gone") if files.exists(one.id)}
    there = {path: files.text_or_none(archived_path(path)) for path in going}
    for path in [path for path, text in there.items() if text is not None and not sources_of(text)]:
        notes.append(f"{path} stays: {archived_path(path)} exists already; rename one of them")
        del going[path]
    moved: list[str] = []
    undo: tuple[str, ...] = ()
    if going:
        before: dict[str, str | None] = {**going, **{archived_path(path): there[path] for path in going}}
        undo = (KeptCopies(files).keep(before, why, memory.clock()),)
    today = memory.local_date(memory.clock())
    for path, text in going.items():
        archived = there[path]
        try:
            if archived is None:
                files.move(path, archived_path(path))
            else:
                both = merged(path, None, archived, text, (today, today))[0]
                files.write_atomic(archived_path(path), both, archived)
                if files.read_text(path) != text:
                    raise Conflict("it was changed while it was archived")
                files.remove(path)
        except ContextManagerError as error:
            notes.append(f"{path} stays: {error}")
        else:
            moved.append(path)
    fates = tuple(one for one in report.fates if one.fate != "gone" or one.id in moved)
    return replace(report, fates=fates, notes=tuple(notes), undo=undo if moved else ())


# ---------------------------------------------------------------- MEMORY.md


async def prune_memory(memory: Memory, target: int | None, dry_run: bool) -> Pruned:
    """Archives the oldest entries of MEMORY.md until it has at most `target` lines, by default WARN_LINES or a
    smaller cap. Derived, anchored and undated entries stay."""
    if dry_run:
        return await run_sync(_memory, memory, target, True)
    async with memory.locks.files():
        done = await run_sync(despite_editors, partial(_memory, memory, target, False))
    if done.changes:
        for path in (MEMORY, ARCHIVE):
            memory.changes.publish(Change("file", path))
    return done


def _memory(memory: Memory, target: int | None, dry_run: bool) -> Pruned:
    before = memory.files.text_or_none(MEMORY)
    if before is None:
        return Pruned("memory", dry_run, MEMORY, where=ARCHIVE, notes=(f"there is no {MEMORY} yet",))
    most = min(WARN_LINES, memory.settings.lifecycle.memory_line_cap) if target is None else target
    start = split_front_matter(before)
    lines = before.count("\n")
    listed = entries.entries(start.body)
    spared = anchored_entries((one.item for one in anchors(memory)), MEMORY, listed, start.head.count("\n"))
    derived = frozenset(one.start for one in listed if sources_of(one.text))
    body, leaving = entries.without_oldest(start.body, max(0, lines - most), spared | derived)
    undo: tuple[str, ...] = ()
    if leaving and not dry_run:
        kept = {MEMORY: before, ARCHIVE: memory.files.text_or_none(ARCHIVE)}
        undo = (KeptCopies(memory.files).keep(kept, "prune memory", memory.clock()),)
        archive(memory, leaving)
        memory.files.write_atomic(MEMORY, stamped(MEMORY, start.head + body, memory.clock(), None), before)

    def fate(one: entries.Entry) -> Fated:
        fate: Fate = "gone" if one in leaving else "keep"
        why = f"the oldest entries are archived until {most} lines are left"
        if one.start in derived:
            why = "derived from another page"
        elif fate == "keep":
            why = "anchored" if one.start in spared else "newer" if one.date else "without a date"
        return Fated(entry_id(one.text), title_of(one.text), fate, why)

    left = lines - sum(one.end - one.start + 1 for one in leaving)
    notes = [f"{MEMORY}: {lines} lines, {left} afterwards; the target is at most {most}."]
    if left > most:
        notes.append("Derived and anchored entries and entries without a date stay; shorten the file by hand.")
    fates = tuple(map(fate, listed))
    return Pruned("memory", dry_run, MEMORY, fates, where=ARCHIVE, notes=tuple(notes), undo=undo)


# ---------------------------------------------------------------- unused files

_PATH = re.compile(r"[\w./-]+\.md\b")

COMMITS = 100_000
"""Maximum number of commits that are searched for the last commit of each file."""


async def prune_files(memory: Memory, dry_run: bool) -> Pruned:
    """Moves unused knowledge files to `archive/`. Moves none before the log of reads covers LEAST_DAYS."""
    since = await memory.state.access_since()
    covered = (memory.clock() - since).days if since else 0
    if covered < LEAST_DAYS:
        wait = (
            f"The log of reads covers {covered} days; files are judged by it only when it covers {LEAST_DAYS}: "
            f"a file that nobody has read may just not have been needed yet."
        )
        return Pruned("files", dry_run, "knowledge files", where="archive/", notes=(wait,))
    paths = await run_sync(lambda: [path for path, _ in _knowledge(memory)])
    counts, last = await memory.state.references(paths), await memory.state.last_accesses(paths)

    def report() -> Pruned:
        decided = sorted(_decided(memory, counts, last), key=lambda one: one.fate != "gone")
        return Pruned("files", dry_run, "knowledge files", tuple(decided), where="archive/")

    if dry_run:
        return await run_sync(report)
    return await _make_and_carry_out(memory, report, "prune files")


def _decided(memory: Memory, counts: Mapping[str, int], last: Mapping[str, datetime]) -> list[Fated]:
    """Returns a decision for every readable knowledge file, the lowest score first; files of one score are sorted by
    path. `counts` says how often a file was read or recovered, `last` when it was read last."""
    now = memory.clock()
    changed = dict(_knowledge(memory))
    texts = {path: text for path in changed if (text := memory.files.readable(path)) is not None}
    commits = _last_commits(memory)
    linked_to, anchored = _linked_to(memory, texts), anchored_files(memory)

    def days(at: datetime) -> int:
        return max(0, (now - at).days)

    def decided(path: str) -> tuple[float, str, Fated]:
        age = days(_updated(path, texts[path]) or commits.get(path) or changed[path])
        references = counts.get(path, 0)
        score = math.exp(-DECAY_PER_DAY * age) * (references + 1)
        used = f"{age} days old, {counted(references, 'reference')}"
        kept = "anchored" if path in anchored else "linked from another file" if path in linked_to else never(path)
        if not kept and (score >= LEAST_SCORE or age <= LEAST_DAYS):
            kept = f"still of use: {used}"
        if not kept and days(changed[path]) <= LEAST_DAYS:
            kept = "changed on disk lately"
        if not kept and path in last and days(last[path]) <= LEAST_DAYS:
            kept = "read lately"
        why = kept or f"{used}: {score:.4f} points, under {LEAST_SCORE:g}"
        return score, path, Fated(path, path, "keep" if kept else "gone", why)

    return [fate for _, _, fate in sorted(map(decided, texts))]


def anchored_files(memory: Memory) -> frozenset[str]:
    """Returns the paths of the files that are anchored or have an anchored passage."""
    return frozenset(one.item.partition("#")[0] for one in anchors(memory) if one.kind in ("file", "passage"))


def _knowledge(memory: Memory) -> Iterator[tuple[str, datetime]]:
    """Yields every markdown file of knowledge, and when its bytes last changed."""
    for stat in memory.files.walk("knowledge/"):
        if stat.path.endswith(".md"):
            yield stat.path, datetime.fromtimestamp(stat.mtime_ns / 1e9, UTC)


def _updated(path: str, text: str) -> datetime | None:
    """Returns the `updated` of a file's front matter, if it is valid."""
    try:
        return front_matter.check(text, path).known.updated
    except ContextManagerError:
        return None


def _last_commits(memory: Memory) -> dict[str, datetime]:
    """Returns the time of each file's last commit; nothing without git."""
    last: dict[str, datetime] = {}
    with suppress(ContextManagerError):
        for version in memory.git.versions(["knowledge"], COMMITS):
            last.setdefault(version.path, version.at)
    return last


def _linked_to(memory: Memory, knowledge: Mapping[str, str]) -> frozenset[str]:
    """Returns the files that another knowledge file or a topic links to, subscribes to, or names by path."""
    topics = {stat.path: memory.files.readable(stat.path) for stat in memory.files.walk("topics/")}
    targets = link_targets(knowledge)
    found: set[str] = set()
    for path, text in {**knowledge, **topics}.items():
        if text and path.endswith(".md"):
            names = {resolve(link.name, targets) for link in links(text)} | set(_PATH.findall(text))
            found |= knowledge.keys() & names - {path}  # a link to the file itself does not count
    return frozenset(found)
