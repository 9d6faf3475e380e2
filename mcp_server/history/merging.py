"""Merges another commit into the current branch, for `sync`, `explore merge` and `revert`.

Nothing of either side is lost, and no conflict marker is written (`three_way`). Forgotten words that the other side
still has do not come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TypeVar
from zoneinfo import ZoneInfo

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, Refused, Unavailable
from mcp_server.history import incoming
from mcp_server.history.three_way import merged
from mcp_server.memory import Memory
from mcp_server.storage.history_values import Plan, Resolve
from mcp_server.storage.values import Change
from mcp_server.text.markdown import split_front_matter

TRIES = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a merge.

    `commit` is the new HEAD, `paths` are the files that changed here. `contested` files were edited on both sides in
    the same place and contain both versions. `tag` is the commit's tag, if any. `refused` files were not merged,
    because they belong to this machine.
    """

    commit: str
    paths: tuple[str, ...] = ()
    contested: tuple[str, ...] = ()
    tag: str | None = None
    refused: tuple[str, ...] = ()


async def join(
    memory: Memory,
    theirs: str,
    message: Callable[[Plan], str],
    begun: str | None = None,
    *,
    remote: str | None = None,
) -> Joined | None:
    """Merges the commit `theirs` into the current branch and the work tree. Returns None if there is nothing to merge.

    Args:
        begun: the commit that changes of `theirs` are counted from, if it is not the merge base.
        remote: the remote that `theirs` comes from. Its changes of identity, topics and settings wait for approval.

    Raises Refused if files that it changes are staged, Unavailable if git is busy, Conflict if files keep changing.
    """
    joined, moved = await retried(memory, lambda: _joined(memory, theirs, message, begun, remote))
    for path in moved:
        memory.changes.publish(Change("file", path))
    return joined


async def retried(memory: Memory, work: Callable[[], T | None]) -> T:
    """Returns the result of `work`, which holds the locks of files and git. Repeats it if it returns None because HEAD
    moved, or raises Conflict because an editor, which takes no lock, changed a file."""
    for attempt in range(TRIES):
        try:
            async with memory.locks.files(), memory.locks.git():
                done = await run_sync(work)
        except Conflict:
            if attempt == TRIES - 1:
                raise
            continue
        if done is not None:
            return done
    raise Unavailable("the branch keeps changing meanwhile; try again")


def _joined(
    memory: Memory, theirs: str, message: Callable[[Plan], str], begun: str | None, remote: str | None
) -> tuple[Joined | None, list[str]] | None:
    """Returns (the result, the written files), or None if HEAD moved meanwhile."""
    git, merger = memory.git, memory.git.merging
    git.check_free()
    ours = git.head()
    if ours is None:
        raise Unavailable("nothing was committed here yet; `git checkout` the other branch instead")
    base = merger.base(ours, theirs)
    if theirs in (base, begun):
        return None, []
    contested: set[str] = set()
    beside: dict[str, bytes | None] = {}
    resolve = resolver(memory, ours, theirs, contested, beside)
    plan = merger.plan(ours, begun or base, theirs, resolve)
    if begun and not plan.changed:
        return None, []
    foreign = incoming.of_this_machine(memory, plan) if remote else []
    cleaned = merger.replaced(plan, _forgotten(memory, plan) | beside | dict.fromkeys(foreign))
    refuse_staged(memory, cleaned)
    held = incoming.hold(memory, cleaned, remote) if remote else frozenset()
    known = set(beside)
    written = merger.apply(cleaned, resolve, held)
    for path in sorted(set(beside) - known):  # second versions of uncommitted files
        if not memory.files.exists(path):
            memory.files.write_bytes_atomic(path, beside[path] or b"", new=True)
            written.append(path)
    forward = theirs if base == ours and begun in (None, base) and cleaned.tree == plan.tree else None
    commit = merger.commit(cleaned, [ours, theirs], message(cleaned), forward, held)
    if commit is None:
        return None
    changed = tuple(sorted(set(cleaned.changed) - held))
    return Joined(commit, changed, tuple(sorted(contested)), refused=tuple(foreign)), written


def resolver(
    memory: Memory, ours: str, theirs: str, contested: set[str], beside: dict[str, bytes | None] | None = None
) -> Resolve:
    """Returns the function that merges a file which both sides changed.

    It adds files that both sides edited in the same place to `contested`. Versions that cannot be merged into one file,
    such as pictures, are added to `beside` under a second name.
    """
    days = (_day(memory, memory.git.past.commit(ours).at), _day(memory, memory.git.past.commit(theirs).at))

    def resolve(path: str, base: bytes | None, one: bytes, other: bytes) -> bytes:
        is_transcript = path.startswith("raw/")
        if is_transcript:
            bodies = [split_front_matter(_text(data)).body for data in (one, other)]
            if base is not None or bodies[0].startswith(bodies[1]):
                return one
            if bodies[1].startswith(bodies[0]):  # theirs continues ours
                return other
        if is_transcript or b"\0" in one or b"\0" in other:  # keep both
            if beside is not None:
                beside[_other_name(path, other, days[1])] = other
            contested.update(() if is_transcript else (path,))
            return one
        before = None if base is None else _text(base)
        found = merged(path, before, _text(one), _text(other), days)
        if found.contested:
            contested.add(path)
        return found.text.encode("utf-8", "surrogateescape")

    return resolve


def refuse_staged(memory: Memory, plan: Plan) -> None:
    """Raises Refused if the user has staged changes of files that the plan changes."""
    staged = memory.git.merging.staged_by_user(plan)
    if staged:
        raise Refused(
            f"{', '.join(staged[:3])} {'is' if len(staged) == 1 else 'are'} staged with changes of yours, and changed "
            "on the other side, too; commit them (`git commit`) or unstage them (`git restore --staged`) first"
        )


def _forgotten(memory: Memory, plan: Plan) -> dict[str, bytes | None]:
    """Returns the files of the plan that contain forgotten words, without those words."""
    cleaned: dict[str, bytes | None] = {}
    if not memory.forgotten.requests():
        return cleaned
    for path, (_, new) in plan.changed.items():
        data = memory.git.merging.content(path, new)
        if data is None or b"\0" in data or path == "forgotten.jsonl":
            continue
        text = data.decode("utf-8", "surrogateescape")
        without = memory.forgotten.document(path, text)
        if without != text:
            cleaned[path] = None if without is None else without.encode("utf-8", "surrogateescape")
    return cleaned


def _other_name(path: str, data: bytes, day: str) -> str:
    """Returns `a.other-2026-02-16-1a2b3c.png` for `a.png`, the same on every machine."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.partition(".")
    return f"{folder}{slash}{stem}.other-{day}-{sha256(data).hexdigest()[:6]}{dot}{ending}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _day(memory: Memory, at: datetime) -> str:
    return at.astimezone(ZoneInfo(memory.timezone)).date().isoformat()
