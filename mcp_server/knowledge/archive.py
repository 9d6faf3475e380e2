"""Moves old journals, and files that the user names, to `archive/`.

Search still finds archived files, no context includes them by default, and `recover` restores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import date

from anyio.to_thread import run_sync

from mcp_server.errors import NotFound, Refused
from mcp_server.knowledge.anchor import anchors
from mcp_server.knowledge.eviction import archived_path, never
from mcp_server.knowledge.prune_knowledge import moved_to_archive
from mcp_server.knowledge.pruning import Fated, Pruned
from mcp_server.memory import Memory

JOURNALS = "knowledge/journal/"


def journal_days(memory: Memory) -> dict[str, date]:
    """The paths of the journals that can be read, each with its day."""
    found = {}
    for stat in memory.files.walk(JOURNALS):
        with suppress(ValueError):  # a note that somebody put there
            day = date.fromisoformat(stat.path.rsplit("/", 1)[-1].removesuffix(".md"))
            if memory.files.readable(stat.path) is not None:
                found[stat.path] = day
    return found


async def archive_journals(memory: Memory, dry_run: bool) -> Pruned:
    """Moves journals that are older than `lifecycle.journal_retention_days`; anchored ones stay."""
    today = date.fromisoformat(memory.local_date(memory.clock()))
    most = memory.settings.lifecycle.journal_retention_days
    held = {anchor.item.partition("#")[0] for anchor in anchors(memory) if anchor.kind in ("file", "passage")}

    def old() -> list[str]:
        return sorted(
            path for path, day in journal_days(memory).items() if (today - day).days > most and path not in held
        )

    return await _archived(memory, await run_sync(old), f"older than {most} days", "journals", dry_run)


async def archive_files(memory: Memory, paths: Sequence[str], dry_run: bool) -> Pruned:
    """Moves these knowledge files. Raises NotFound, or Refused for what never goes: identity, core memory, indexes."""
    chosen = []
    for given in paths:
        path = memory.files.relative(given)
        if not memory.files.exists(path):
            near = memory.files.nearest(path)
            raise NotFound(f"no file {path}" + (f"; did you mean {near}?" if near else ""))
        if not path.startswith("knowledge/") or not path.endswith(".md"):
            raise Refused(f"{path} is no knowledge file; what is archived lies under knowledge/ and ends with .md")
        if never(path):
            raise Refused(
                f"{path} stays: {never(path)}; take out of it what is not needed with `remember` or an editor"
            )
        chosen.append(path)
    return await _archived(memory, chosen, "asked for", "knowledge files", dry_run)


async def _archived(memory: Memory, paths: Sequence[str], why: str, of: str, dry_run: bool) -> Pruned:
    undo: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if paths and not dry_run:
        moved, undo, notes = await moved_to_archive(memory, paths, f"archive {of}")
        paths = moved
    fates = tuple(Fated(path, archived_path(path), "gone", why) for path in paths)
    return Pruned("files", dry_run, of, fates, where="archive/", notes=notes, undo=undo)
