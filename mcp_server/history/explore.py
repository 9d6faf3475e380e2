"""Explore: a branch of the memory in its own folder, to be merged or dropped within a week.

The live files never change branch. An exploration's folder is a complete workspace: edit it, or use it with any command
through `--workspace`.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, ContextManagerError, Refused
from mcp_server.history import incoming
from mcp_server.history.branch_folders import BranchFolders
from mcp_server.history.commit_rules import message
from mcp_server.history.committing import OURS, commit_changes
from mcp_server.history.merging import Joined, join
from mcp_server.memory import Memory
from mcp_server.settings import MACHINE_FILE
from mcp_server.storage.history_values import TAG_PREFIX, Branch, unused
from mcp_server.storage.local import durable
from mcp_server.storage.ports import History

log = logging.getLogger(__name__)

EXPLORATIONS = BranchFolders("explore/", "exploration", "explore")

DAYS = 7
"""Days after which an exploration is dropped. Unmerged work keeps a tag."""

STATE = "explore"
"""Namespace of the state: name → when it was begun."""


@dataclass(frozen=True, slots=True)
class Exploration:
    """An exploration: its folder (None if it is gone), when it began, the number of its own commits and uncommitted
    files, and when it is dropped."""

    name: str
    place: str | None
    begun: datetime
    commits: int
    uncommitted: int
    until: datetime


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped exploration, and the tag of its unmerged work."""

    name: str
    tag: str | None


async def create(memory: Memory, name: str) -> Exploration:
    """Creates an exploration from the memory as it is now, with this machine's settings.

    Raises:
        Invalid: `name` is not valid for a branch.
        Conflict: an exploration of this name exists.
        Refused: changes from another machine wait for approval; in the new folder they would have effect.
        Unavailable: git is missing.
    """
    await EXPLORATIONS.check(memory, name)
    if held := sorted(await run_sync(incoming.held_paths, memory)):
        raise Refused(f"changes from another machine wait ({', '.join(held[:5])}); first: context-manager approve")
    await commit_changes(memory)
    async with EXPLORATIONS.making(memory, name) as place:
        await run_sync(_copy_machine_settings, memory.disk.root, place)
        await memory.state.put(STATE, name, memory.clock().isoformat())
    found, begun = await EXPLORATIONS.find(memory, name), await memory.state.get(STATE, name)
    return await run_sync(_shown, memory.git, found, begun)


def _copy_machine_settings(root: Path, place: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        data = (root / MACHINE_FILE).read_bytes()
        durable.put(place / MACHINE_FILE, data, MACHINE_FILE, new=False, mode=0o600)


async def explorations(memory: Memory) -> list[Exploration]:
    """Returns all explorations, oldest first. Raises Unavailable without git."""
    branches = await EXPLORATIONS.all(memory)
    begun = await memory.state.entries(STATE)
    found = [await run_sync(_shown, memory.git, branch, begun.get(EXPLORATIONS.short(branch))) for branch in branches]
    return sorted(found, key=lambda one: one.begun)


async def merge(memory: Memory, name: str) -> Joined | None:
    """Merges an exploration into the memory and ends it. Returns None if it had no changes.

    Raises NotFound, Refused if files that it changes are staged, Unavailable.
    """
    branch = await _committed(memory, name)
    joined = await join(memory, branch.commit, lambda plan: f"explore: merge {name}")
    await _remove(memory, branch)
    return joined


async def drop(memory: Memory, name: str) -> Dropped:
    """Deletes an exploration and tags its unmerged work under `memory/before/`. Raises NotFound, Unavailable."""
    branch = await _committed(memory, name)
    tag: str | None = None
    if branch.ahead:
        taken = {found.name for found in await run_sync(memory.git.tags.all)}
        tag = unused(f"{TAG_PREFIX}before/drop-{name}", taken.__contains__)
        async with memory.locks.git():
            await run_sync(memory.git.tags.create, tag, branch.commit)
    await _remove(memory, branch)
    return Dropped(name, tag)


async def drop_old(memory: Memory) -> list[Dropped]:
    """Drops every expired exploration and returns those. Logs why if one cannot be dropped."""
    if not await run_sync(memory.git.worktrees.any, EXPLORATIONS.prefix):
        return []
    now = memory.clock()
    dropped: list[Dropped] = []
    for one in await explorations(memory):
        if one.until <= now:
            try:
                dropped.append(await drop(memory, one.name))
            except ContextManagerError as error:  # such as a secret in its folder; the others are still dropped
                log.warning("the exploration %s has expired and was not dropped: %s", one.name, error)
    return dropped


async def _committed(memory: Memory, name: str) -> Branch:
    """Commits the changes in an exploration's folder and returns its branch."""
    branch = await EXPLORATIONS.find(memory, name)
    if branch.place is not None:
        there = memory.git.in_folder(branch.place)
        found = await run_sync(there.changes, OURS)
        if found:
            text = await run_sync(message, "explore", found)
            async with memory.locks.git():
                left_out = (await run_sync(there.commit_files, [one.path for one in found], text)).left_out
            if left_out:
                path, reason = next(iter(left_out.items()))
                raise Conflict(f"{path} in the exploration cannot be committed: {reason}. Correct or delete it first")
    return await EXPLORATIONS.find(memory, name)


async def _remove(memory: Memory, branch: Branch) -> None:
    await EXPLORATIONS.remove(memory, branch)
    await memory.state.remove(STATE, EXPLORATIONS.short(branch))


def _shown(git: History, branch: Branch, begun: str | None) -> Exploration:
    since = datetime.fromisoformat(begun) if begun else branch.at
    place: Path | None = branch.place
    uncommitted = len(git.in_folder(place).uncommitted(OURS)) if place is not None else 0
    last = max(since, branch.at) if branch.ahead else since
    return Exploration(
        EXPLORATIONS.short(branch),
        str(place) if place is not None else None,
        since,
        branch.ahead,
        uncommitted,
        last + timedelta(days=DAYS),
    )
