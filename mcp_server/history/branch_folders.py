"""Branches with their own folders below `.local/`, for explorations and reconstructions.

The live files never change branch. While a branch is made, a file beside its folder marks it and a lock is held. A
killed process leaves the mark; the next call then deletes the unfinished branch.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import CancelScope
from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.storage.history_values import Branch
from mcp_server.storage.local import durable
from mcp_server.text.redaction import secrets

LOCAL, MAKING = ".local", ".making"
"""Endings beside the folder NAME: the branch's own state while it is made, and the mark that it is unfinished."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")


@dataclass(frozen=True, slots=True)
class BranchFolders:
    """A kind of branch. `prefix` begins its names and folders (`explore/`); messages use `noun` and `command`."""

    prefix: str
    noun: str
    command: str

    async def check(self, memory: Memory, name: str) -> None:
        """Raises Invalid if the name is not valid, Unavailable if git is missing or busy."""
        if not _NAME.fullmatch(name) or name.endswith((".lock", LOCAL, MAKING, ".")) or ".." in name or secrets(name):
            raise Invalid(f"{name!r} is no name for the {self.noun}; use small letters, digits, '-', '_' and '.'")
        await run_sync(memory.git.check_free)

    @asynccontextmanager
    async def making(self, memory: Memory, name: str) -> AsyncIterator[Path]:
        """Creates a branch from the last commit and yields its folder; an error inside deletes it again.

        Raises Conflict if the name is taken, NotFound if nothing was committed yet, and as `check`.
        """
        await self.check(memory, name)
        await self.clear(memory)
        taken = Conflict(f"there is the {self.noun} {name!r} already; merge or drop it, or choose another name")
        held = await run_sync(memory.locks.try_exclusive, self.prefix + name)
        if held is None:
            raise taken
        try:
            place = self._place(memory, name)
            async with memory.locks.git():
                head = await run_sync(memory.git.head)
                if head is None:
                    raise NotFound("nothing was committed yet, so there is nothing to begin from")
                known = await run_sync(memory.git.worktrees.branches, self.prefix)
                if place.exists() or any(one.name == self.prefix + name for one in known):
                    raise taken
                await run_sync(_mark, _beside(place, MAKING))
            try:
                async with memory.locks.git():
                    await run_sync(memory.git.worktrees.add, self.prefix + name, place, head)
                yield place
                await run_sync(_beside(place, MAKING).unlink)
            except BaseException:
                with CancelScope(shield=True):
                    await self._cleared(memory, name)
                raise
        finally:
            held.release()

    async def all(self, memory: Memory) -> list[Branch]:
        """Returns all branches of this kind. Raises Unavailable without git."""
        await self.clear(memory)
        return await run_sync(memory.git.worktrees.branches, self.prefix)

    async def find(self, memory: Memory, name: str) -> Branch:
        """Returns the branch of this name. Raises NotFound naming the existing ones, Unavailable without git."""
        branches = await self.all(memory)
        found = next((one for one in branches if one.name == self.prefix + name), None)
        if found is None:
            known = ", ".join(map(self.short, branches)) or "none"
            raise NotFound(f"no {self.noun} {name!r}; there are: {known} ({self.command} list)")
        return found

    def short(self, branch: Branch) -> str:
        """Returns a branch's name for people."""
        return branch.name.removeprefix(self.prefix)

    async def remove(self, memory: Memory, branch: Branch) -> None:
        """Deletes a branch and its folder."""
        async with memory.locks.git():
            await run_sync(memory.git.worktrees.remove, branch.name, branch.place)

    async def clear(self, memory: Memory) -> None:
        """Deletes unfinished branches of killed processes, not those that another process is making."""
        for mark in list((memory.disk.local / self.prefix).glob(f"*{MAKING}")):
            name = mark.name.removesuffix(MAKING)
            held = await run_sync(memory.locks.try_exclusive, self.prefix + name)
            if held is not None:
                try:
                    await self._cleared(memory, name)
                finally:
                    held.release()

    async def _cleared(self, memory: Memory, name: str) -> None:
        place = self._place(memory, name)
        async with memory.locks.git():
            await run_sync(memory.git.worktrees.remove, self.prefix + name, place)
        await run_sync(lambda: shutil.rmtree(_beside(place, LOCAL), ignore_errors=True))
        await run_sync(lambda: _beside(place, MAKING).unlink(missing_ok=True))

    def _place(self, memory: Memory, name: str) -> Path:
        return memory.disk.local / self.prefix / name


def local_folder(place: Path) -> Path:
    """Returns the folder for the state and locks of a branch while it is made."""
    return _beside(place, LOCAL)


def _beside(place: Path, ending: str) -> Path:
    return place.with_name(place.name + ending)


def _mark(place: Path) -> None:
    durable.put(place, b"", place.name, new=False, mode=0o600)
