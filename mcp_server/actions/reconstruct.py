"""Reconstruct: all that was derived, derived again from the conversations, on a branch of its own (S4 §8.6).

The live tree is never touched: `extract/NAME` has a folder of its own, with a state of its own. Only lines with an
extractor's provenance are made anew; what people and agents wrote, and what was imported, is carried over as it is. Two
reconstructions can be compared with the memory and with each other; one comes into the memory when it is asked for.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from anyio import CancelScope
from anyio.to_thread import run_sync

from mcp_server.actions.committing import OURS, commit_changes
from mcp_server.actions.condense import condense
from mcp_server.actions.deriving import chosen, versions
from mcp_server.actions.extract import FLUSHED, FOLDERS, extract
from mcp_server.actions.merging import Joined, join
from mcp_server.core.history.messages import message
from mcp_server.core.lifecycle.regenerating import holds_nothing, stripped, without_empty
from mcp_server.core.text.markdown import split_front_matter
from mcp_server.core.text.redaction import secrets
from mcp_server.core.text.remembering import MEMORY
from mcp_server.errors import Conflict, ContextManagerError, Invalid, NotFound
from mcp_server.memory import Memory
from mcp_server.store import durable
from mcp_server.store.changes import Changes
from mcp_server.store.files import WorkspaceFiles
from mcp_server.store.git import Git
from mcp_server.store.git_changes import changes
from mcp_server.store.git_worktrees import Branch
from mcp_server.store.locks import Locks
from mcp_server.store.state import State
from mcp_server.store.transcripts import Transcripts

EXTRACT = "extract/"

STATE = "reconstruct"
"""Namespace of the state: name → when and by what it was made."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_BENCH = ".local"


@dataclass(frozen=True, slots=True)
class Reconstruction:
    """One: its folder (None: it is gone), when it was made and by what, how many derived lines were taken out and made
    anew, from how many conversations."""

    name: str
    place: str | None
    made: datetime
    by: str
    conversations: int
    before: int
    lines: int
    notes: tuple[str, ...] = ()


async def reconstruct(
    memory: Memory,
    name: str,
    extractors: Sequence[str] = (),
    *,
    use_model: bool = True,
    show: Callable[[float, float, str], None] = lambda done, total, label: None,
) -> Reconstruction:
    """Makes one from all closed conversations, by these extractors (all without any), with a model if there is one.

    What is not committed yet is committed first, as the next cadence would. What an interrupted one of this name left
    is cleared away.

    Raises:
        Invalid: a name that is none, or no such extractor. Conflict: the name is taken. Unavailable: no git.
    """
    if not _NAME.fullmatch(name) or name.endswith((".lock", ".local", ".")) or ".." in name or secrets(name):
        raise Invalid(f"{name!r} is no name for a reconstruction; use small letters, digits, '-', '_' and '.'")
    used = versions(chosen(extractors))
    by = f"{used}; {'a model' if use_model and memory.llm is not None else 'rules'}"
    await run_sync(memory.git.check_free)
    await commit_changes(memory)
    place = _place(memory, name)
    async with _alone(memory, name):
        async with memory.locks.git():
            head = await run_sync(memory.git.head)
            if head is None:
                raise NotFound("nothing was committed yet, so there is nothing to reconstruct from")
            await run_sync(_clear, memory, name)
            if place.exists() or any(one.name == EXTRACT + name for one in await run_sync(_branches, memory)):
                raise Conflict(f"there is a reconstruction {name!r} already; merge or drop it, or choose another name")
            await run_sync(durable.make_folders, _workbench(place))
            await run_sync(memory.git.worktrees.add, EXTRACT + name, place, head)
        try:
            made = await _made(memory, name, place, extractors, use_model, by, show)
        except BaseException:
            with CancelScope(shield=True):
                await _remove(memory, EXTRACT + name, place)  # half a memory is none
            raise
        await memory.state.put(STATE, name, _as_json(made))
        await run_sync(partial(shutil.rmtree, _workbench(place), ignore_errors=True))
    return made


async def reconstructions(memory: Memory) -> list[Reconstruction]:
    """All of them, the oldest first. Raises Unavailable without git."""
    known = await memory.state.entries(STATE)
    found = [_read(branch, known.get(_short(branch), {})) for branch in await run_sync(_branches, memory)]
    found = [
        replace(one, by="not finished: being made, or interrupted")
        if _workbench(_place(memory, one.name)).exists()
        else one
        for one in found
    ]
    return sorted(found, key=lambda one: (one.made, one.name))


async def merge(memory: Memory, name: str) -> Joined | None:
    """Brings a reconstruction into the memory and ends it; None if it differs in nothing. Edits that were made
    meanwhile stay. Raises NotFound, Refused if files that it changes are staged, Conflict if it is not finished,
    Unavailable."""
    async with _alone(memory, name):
        branch = await branch_of(memory, name)
        joined = await join(memory, branch.commit, lambda plan: f"extract: merge reconstruction {name}")
        await _end(memory, branch)
    return joined


async def drop(memory: Memory, name: str) -> None:
    """Ends a reconstruction, finished or not. It can be made again, so it keeps no tag. Raises NotFound, Conflict if it
    is just being made, Unavailable."""
    async with _alone(memory, name):
        await _end(memory, await _found(memory, name))


async def clear(memory: Memory) -> list[str]:
    """Clears away what interrupted ones left; returns their names. Those that are being made are left to it."""
    cleared: list[str] = []
    for bench in sorted((memory.files.local / "extract").glob(f"*{_BENCH}")):
        name = bench.name.removesuffix(_BENCH)
        try:
            async with _alone(memory, name), memory.locks.git():
                await run_sync(_clear, memory, name)
        except ContextManagerError:
            continue
        cleared.append(name)
    return cleared


async def branch_of(memory: Memory, name: str) -> Branch:
    """The branch of a finished reconstruction. Raises NotFound naming those there are, Conflict for one that is not
    finished, Unavailable without git."""
    found = await _found(memory, name)
    if _workbench(_place(memory, name)).exists():
        raise Conflict(
            f"the reconstruction {name!r} is being made, or was interrupted; "
            f"`reconstruct --branch {name}` makes it again, `reconstruct drop {name}` ends it"
        )
    return found


async def _found(memory: Memory, name: str) -> Branch:
    branches = await run_sync(_branches, memory)
    found = next((one for one in branches if one.name == EXTRACT + name), None)
    if found is None:
        known = ", ".join(map(_short, branches)) or "none"
        raise NotFound(f"no reconstruction {name!r}; there are: {known} (reconstruct list)")
    return found


async def _made(
    memory: Memory,
    name: str,
    place: Path,
    extractors: Sequence[str],
    use_model: bool,
    by: str,
    show: Callable[[float, float, str], None],
) -> Reconstruction:
    async with _beside(memory, place, use_model) as there:
        emptied, before = await run_sync(_strip, there.files)
        done = await extract(there, names=extractors, show=show)
        weekly = await condense(there, "weekly")
        await run_sync(_tidy, there.files, emptied)
        found = await run_sync(changes, there.git, place, OURS)
        if found:
            text = await run_sync(message, "extract", found)
            async with memory.locks.git():
                left_out = (await run_sync(there.git.commit_files, [one.path for one in found], text)).left_out
            done.notes += [f"{path} is not part of it: {reason}" for path, reason in left_out.items()]
    notes = (*done.notes, *weekly.notes)
    return Reconstruction(name, str(place), memory.clock(), by, done.read, before, done.lines, notes)


@asynccontextmanager
async def _beside(memory: Memory, place: Path, use_model: bool) -> AsyncIterator[Memory]:
    """The memory of another work tree: files, state and locks are its own, so that nothing of the live one changes."""
    local = _workbench(place)
    files = WorkspaceFiles(place, local)
    locks = Locks(local)
    state = await State.open(local / "state.db", locks)
    try:
        yield replace(
            memory,
            files=files,
            transcripts=Transcripts(files),
            state=state,
            locks=locks,
            git=Git(place, memory.git.clock),
            changes=Changes(),
            llm=memory.llm if use_model else None,
        )
    finally:
        await state.close()


def _strip(files: WorkspaceFiles) -> tuple[dict[str, frozenset[str]], int]:
    """Takes the derived lines out of every file; returns which headings that left empty, by path, and how many lines
    it were."""
    emptied: dict[str, frozenset[str]] = {}
    removed = 0
    for path in _derived_files(files):
        text = files.text_or_none(path)
        if text is None:
            continue
        body = split_front_matter(text).body
        without = stripped(body, FLUSHED)
        if without.removed:
            files.write_atomic(path, text[: len(text) - len(body)] + without.body, text)
            emptied[path] = without.emptied
            removed += without.removed
    return emptied, removed


def _tidy(files: WorkspaceFiles, emptied: dict[str, frozenset[str]]) -> None:
    """Takes out headings that are empty now and were not, and files in which nothing is left."""
    for path, headings in emptied.items():
        text = files.text_or_none(path)
        if text is None:
            continue
        body = split_front_matter(text).body
        after = without_empty(body, headings)
        if path != MEMORY and holds_nothing(after):
            files.remove(path)
        elif after != body:
            files.write_atomic(path, text[: len(text) - len(body)] + after, text)


def _derived_files(files: WorkspaceFiles) -> list[str]:
    found = [stat.path for folder in FOLDERS for stat in files.walk(folder) if stat.path.endswith(".md")]
    return [*found, *([MEMORY] if files.exists(MEMORY) else [])]


def _place(memory: Memory, name: str) -> Path:
    return memory.files.local / "extract" / name


def _workbench(place: Path) -> Path:
    """The folder for the state of one that is being made: while it is there, the reconstruction is not finished."""
    return place.with_name(f"{place.name}{_BENCH}")


@asynccontextmanager
async def _alone(memory: Memory, name: str) -> AsyncIterator[None]:
    """No other process makes, merges or drops it meanwhile."""
    held = await run_sync(memory.locks.try_exclusive, f"extract-{name[:80]}")
    if held is None:
        raise Conflict(f"the reconstruction {name!r} is in the hands of another process; wait until it is done")
    try:
        yield
    finally:
        held.release()


def _clear(memory: Memory, name: str) -> None:
    """What is left of one that was interrupted, under `locks.git()`; one that is finished stays."""
    place = _place(memory, name)
    if not _workbench(place).exists():
        return
    if any(one.name == EXTRACT + name for one in _branches(memory)):
        memory.git.worktrees.remove(EXTRACT + name, None)
    shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(_workbench(place), ignore_errors=True)


def _branches(memory: Memory) -> list[Branch]:
    return memory.git.worktrees.branches(EXTRACT)


def _short(branch: Branch) -> str:
    return branch.name.removeprefix(EXTRACT)


async def _end(memory: Memory, branch: Branch) -> None:
    await _remove(memory, branch.name, branch.place)
    await memory.state.remove(STATE, _short(branch))


async def _remove(memory: Memory, branch: str, place: Path | None) -> None:
    async with memory.locks.git():
        await run_sync(memory.git.worktrees.remove, branch, place)
    workbench = _workbench(_place(memory, branch.removeprefix(EXTRACT)))
    await run_sync(partial(shutil.rmtree, workbench, ignore_errors=True))


def _as_json(made: Reconstruction) -> dict[str, object]:
    return {
        "made": made.made.isoformat(),
        "by": made.by,
        "conversations": made.conversations,
        "before": made.before,
        "lines": made.lines,
    }


def _read(branch: Branch, noted: dict[str, object]) -> Reconstruction:
    made = noted.get("made")
    return Reconstruction(
        _short(branch),
        str(branch.place) if branch.place else None,
        datetime.fromisoformat(made) if isinstance(made, str) else branch.at,
        str(noted.get("by", "not known")),
        int(str(noted.get("conversations", 0))),
        int(str(noted.get("before", 0))),
        int(str(noted.get("lines", 0))),
    )
