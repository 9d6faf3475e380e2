"""Explore: a branch of the memory in its own folder, to be merged or dropped within a week.

The live files never change branch. An exploration's folder is a complete workspace: edit it, or use it with any command
through `--workspace`.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from anyio import CancelScope
from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound, Refused
from mcp_server.history import merging
from mcp_server.history.commit_rules import Type, message
from mcp_server.history.committing import OURS, commit_changes
from mcp_server.history.merging import Joined, join
from mcp_server.memory import Memory
from mcp_server.model import unused
from mcp_server.settings import MACHINE_FILE
from mcp_server.storage.history_values import TAG_PREFIX, Branch
from mcp_server.storage.local import durable
from mcp_server.storage.ports import History
from mcp_server.text.redaction import secrets

LOCAL, MAKING = ".local", ".making"
"""Suffixes for paths next to the folder NAME: the branch's own state while it is made, and the mark that it is
unfinished."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")


@dataclass(frozen=True, slots=True)
class BranchFolders:
    """A kind of branch. `type` is the type of its commits, and the prefix of its branch names and folders (`explore/`).
    Messages use `noun` and `command`."""

    type: Type
    noun: str
    command: str

    @property
    def prefix(self) -> str:
        return f"{self.type}/"

    async def check(self, memory: Memory, name: str) -> None:
        """Raises Invalid if the name is not valid, Unavailable if git is missing or busy."""
        if not _NAME.fullmatch(name) or name.endswith((".lock", LOCAL, MAKING, ".")) or ".." in name or secrets(name):
            raise Invalid(
                f"{name!r} is not a valid name for the {self.noun}; use small letters, digits, '-', '_' and '.'"
            )
        await run_sync(memory.git.check_free)

    @asynccontextmanager
    async def making(self, memory: Memory, name: str) -> AsyncIterator[Path]:
        """Creates a branch from the last commit and yields its folder; an error inside deletes it again.

        Raises Conflict if the name is taken, NotFound if nothing was committed yet, and as `check`.
        """
        await self.check(memory, name)
        await self.clear(memory)
        taken = Conflict(f"the {self.noun} {name!r} exists already; merge or drop it, or choose another name")
        held = await run_sync(memory.locks.try_exclusive, self.prefix + name)
        if held is None:
            raise taken
        with held:
            place = self._place(memory, name)
            async with memory.locks.git():
                head = await run_sync(memory.git.head)
                if head is None:
                    raise NotFound("nothing was committed yet, so a branch cannot be created")
                known = await run_sync(memory.git.worktrees.branches, self.prefix)
                if place.exists() or any(one.name == self.prefix + name for one in known):
                    raise taken
                await run_sync(lambda: durable.put(beside(place, MAKING), b"", name, new=False, mode=0o600))
            try:
                async with memory.locks.git():
                    await run_sync(memory.git.worktrees.add, self.prefix + name, place, head)
                yield place
                await run_sync(beside(place, MAKING).unlink)
            except BaseException:
                with CancelScope(shield=True):
                    await self._cleared(memory, name)
                raise

    async def all(self, memory: Memory) -> list[Branch]:
        """Returns all branches of this kind. Raises Unavailable without git."""
        await self.clear(memory)
        return await run_sync(memory.git.worktrees.branches, self.prefix)

    async def find(self, memory: Memory, name: str) -> Branch:
        """Returns the branch of this name. Raises NotFound naming the existing ones, Unavailable without git."""
        branches = {self.short(one): one for one in await self.all(memory)}
        if name not in branches:
            raise NotFound(f"no {self.noun} {name!r}; there are: {', '.join(branches) or 'none'} ({self.command} list)")
        return branches[name]

    def short(self, branch: Branch) -> str:
        return branch.name.removeprefix(self.prefix)

    async def commit(self, memory: Memory, there: History, paths: Sequence[str]) -> Mapping[str, str]:
        """Commits the changes of these paths in a branch's folder, `there`. Returns the files that were left out, each
        with the reason."""
        found = await run_sync(there.changes, paths)
        if not found:
            return {}
        text = await run_sync(message, self.type, found)
        async with memory.locks.git():
            return (await run_sync(there.commit_files, [one.path for one in found], text)).left_out

    async def tag(self, memory: Memory, name: str, commit: str) -> str:
        """Tags a commit as `memory/NAME`, or NAME-2, NAME-3 … if that is taken. Returns the tag."""
        taken = {found.name for found in await run_sync(memory.git.tags.all)}
        tag = unused(f"{TAG_PREFIX}{name}", taken)
        async with memory.locks.git():
            await run_sync(memory.git.tags.create, tag, commit)
        return tag

    async def remove(self, memory: Memory, branch: Branch) -> None:
        async with memory.locks.git():
            await run_sync(memory.git.worktrees.remove, branch.name, branch.place)

    async def clear(self, memory: Memory) -> None:
        """Deletes unfinished branches of killed processes, not those that another process is making."""
        for mark in list((memory.disk.local / self.prefix).glob(f"*{MAKING}")):
            name = mark.name.removesuffix(MAKING)
            held = await run_sync(memory.locks.try_exclusive, self.prefix + name)
            if held is not None:
                with held:
                    await self._cleared(memory, name)

    async def _cleared(self, memory: Memory, name: str) -> None:
        place = self._place(memory, name)
        async with memory.locks.git():
            await run_sync(memory.git.worktrees.remove, self.prefix + name, place)
        await run_sync(lambda: shutil.rmtree(beside(place, LOCAL), ignore_errors=True))
        await run_sync(lambda: beside(place, MAKING).unlink(missing_ok=True))

    def _place(self, memory: Memory, name: str) -> Path:
        return memory.disk.local / self.prefix / name


def beside(place: Path, ending: str) -> Path:
    """Returns the path of a branch's folder with a suffix: LOCAL or MAKING."""
    return place.with_name(place.name + ending)


log = logging.getLogger(__name__)

EXPLORATIONS = BranchFolders("explore", "exploration", "explore")

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
        Refused: changes from another machine wait for approval; in the new folder they would take effect.
        Unavailable: git is missing.
    """
    await EXPLORATIONS.check(memory, name)
    if held := sorted(await run_sync(merging.held_paths, memory)):
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
        tag = await EXPLORATIONS.tag(memory, f"before/drop-{name}", branch.commit)
    await _remove(memory, branch)
    return Dropped(name, tag)


async def drop_old(memory: Memory) -> list[Dropped]:
    """Drops the expired explorations, and returns those that were dropped. Logs why if one cannot be dropped."""
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
    branch = await EXPLORATIONS.find(memory, name)
    if branch.place is not None:
        there = memory.git.in_folder(branch.place)
        if left_out := await EXPLORATIONS.commit(memory, there, OURS):
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
    until = (max(since, branch.at) if branch.ahead else since) + timedelta(days=DAYS)
    name, shown = EXPLORATIONS.short(branch), None if place is None else str(place)
    return Exploration(name, shown, since, branch.ahead, uncommitted, until)
