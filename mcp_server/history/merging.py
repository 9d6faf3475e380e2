"""Merges another commit into the current branch, for `sync`, `explore merge` and `revert`.

Nothing of either side is lost, and no conflict marker is written (`three_way`). Forgotten words that the other side
still has do not come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar
from zoneinfo import ZoneInfo

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, ContextManagerError, NotFound, Refused, Unavailable
from mcp_server.history.three_way import merged
from mcp_server.memory import Memory
from mcp_server.settings import machine_settings
from mcp_server.storage.files import SETTINGS
from mcp_server.storage.history_values import MergePlan, Resolve
from mcp_server.storage.journal import Pending, Proposal, hash_of
from mcp_server.storage.values import LOCAL, Change
from mcp_server.text.destinations import is_for_own_hand
from mcp_server.text.markdown import difference, load, split_front_matter

ACTION = "incoming"
"""Value of `fact["action"]` in a proposal of this module. Its `fact["base"]` is git's entry of the file before the
merge."""


def is_incoming(proposal: Proposal) -> bool:
    """Returns whether a proposal is about a change from another machine."""
    return proposal.fact.get("action") == ACTION


def held_paths(memory: Memory) -> frozenset[str]:
    """Returns the files whose incoming changes wait for approval. This machine's versions of these files are not
    committed meanwhile."""
    return frozenset(one.path for one in Pending(memory.files).all() if is_incoming(one))


def hold(memory: Memory, plan: MergePlan, remote: str) -> frozenset[str]:
    """Writes a proposal for each file of the plan whose change needs approval, and returns the paths of these files.

    Call it under `locks.files()`.
    """
    pending = Pending(memory.files)
    known = {one.path for one in pending.all() if is_incoming(one)}
    asked = memory.settings.knowledge.approve
    held = {path for path in plan.changed if path in known or (asked and _needs_approval(memory, path))}
    for path in sorted(held - known):
        number = f"sync_{sha256(_data(path)).hexdigest()[:8]}"
        fact = {"action": ACTION, "base": plan.changed[path][0]}
        pending.add(Proposal(number, memory.clock(), path, fact, hash_of(_local_text(memory, path)), by=remote))
    return frozenset(held)


def settle(memory: Memory) -> list[Proposal]:
    """Drops proposals that no longer change anything and returns the others.

    Such proposals remain after a killed merge, or if the other machine reverts its change. Call it under
    `locks.files()` and `locks.git()`.
    """
    waiting: list[Proposal] = []
    for proposal in filter(is_incoming, Pending(memory.files).all()):
        if _local_text(memory, proposal.path) == _committed_text(memory, proposal.path):
            release(memory, proposal)
        else:
            waiting.append(proposal)
    memory.git.merging.leave_out([one.path for one in waiting])
    return waiting


def ignored_settings(memory: Memory) -> list[str]:
    """Returns the settings in the last commit that this machine ignores, because each machine has its own values for
    them."""
    try:
        return sorted(machine_settings(load(_committed_text(memory, SETTINGS) or "", SETTINGS)))
    except ContextManagerError:
        return []


def shown(memory: Memory, proposal: Proposal) -> tuple[str, str]:
    """Returns the diff that `accept` would make; if it is empty, also the reason."""
    before, after = _local_text(memory, proposal.path), _accepted(memory, proposal)
    if before == after:
        return "", "the file already has this content"
    return difference(before or "", after or "", proposal.path), ""


def accept(memory: Memory, proposal: Proposal) -> str:
    """Merges the incoming version into this machine's file and returns the diff.

    Call it under `locks.files()` and `locks.git()`.
    """
    path = proposal.path
    before, after = _local_text(memory, path), _accepted(memory, proposal)
    diff = difference(before or "", after or "", path)
    if after is None and before is not None:
        memory.files.remove(path)
    elif after is not None and after != before:
        old = None if before is None else _data(before)
        memory.files.write_bytes_atomic(path, _data(after), old, new=before is None)
    release(memory, proposal)
    memory.changes.publish(Change("file", path))
    return diff


def _accepted(memory: Memory, proposal: Proposal) -> str | None:
    """Returns the file's text after `accept`, None if the file is deleted. Raises Refused for a proposal that this
    module did not write."""
    path = proposal.path
    if not _needs_approval(memory, path):
        raise Refused(f"{path} is not a file whose incoming changes wait; reject {proposal.id}")
    here, there = _local_text(memory, path), _committed_text(memory, path)
    entry = proposal.fact.get("base") or ""
    base = _text_or_none(memory.git.merging.content(path, entry))
    if here is None or there is None or here == base:
        return there
    day = memory.local_date(memory.clock())
    return merged(path, base, here, there, (day, day))[0]


def release(memory: Memory, proposal: Proposal) -> None:
    """Makes git compare the file with its last commit again, then drops the proposal. The next commit contains this
    machine's version.

    Call it under `locks.files()` and `locks.git()`.
    """
    memory.git.merging.take_in([proposal.path])
    Pending(memory.files).remove(proposal.id)


def _needs_approval(memory: Memory, path: str) -> bool:
    return any(is_for_own_hand(one) or one.casefold() == SETTINGS for one in (path, _resolved(memory, path)))


def _resolved(memory: Memory, path: str) -> str:
    """Returns the path behind symbolic links, which an earlier push may have brought."""
    try:
        return memory.files.relative(path)
    except Refused:  # the merge refuses it too
        return path


def _local_text(memory: Memory, path: str) -> str | None:
    try:
        return _text_or_none(memory.files.read_bytes(path))
    except NotFound:
        return None


def _committed_text(memory: Memory, path: str) -> str | None:
    return _text_or_none(memory.git.merging.committed(path))


TRIES = 5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a merge.

    `commit` is the new HEAD, `paths` are the files that changed here. `contested` files were edited on both sides in
    the same place and contain both versions. `tag` is the commit's tag, if any. `refused` has a sentence for each file
    that was not merged.
    """

    commit: str
    paths: tuple[str, ...] = ()
    contested: tuple[str, ...] = ()
    tag: str | None = None
    refused: tuple[str, ...] = ()


async def join(
    memory: Memory,
    theirs: str,
    message: Callable[[MergePlan], str],
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
    raise Unavailable("the branch keeps changing; try again")


def _joined(
    memory: Memory, theirs: str, message: Callable[[MergePlan], str], begun: str | None, remote: str | None
) -> tuple[Joined | None, list[str]] | None:
    """Returns (the result, the written files), or None if HEAD moved meanwhile."""
    git, merger = memory.git, memory.git.merging
    git.check_free()
    ours = git.head()
    if ours is None:
        raise Unavailable("nothing was committed here yet; use `git checkout` for the other branch instead")
    base = merger.base(ours, theirs)
    if theirs in (base, begun):
        return None, []
    contested: set[str] = set()
    beside: dict[str, bytes | None] = {}
    resolve = resolver(memory, ours, theirs, contested, beside)
    plan = merger.plan(ours, begun or base, theirs, resolve)
    if begun and not plan.changed:
        return None, []
    foreign: list[str] = []
    if remote:  # other machines must not write into `.local/`
        foreign = sorted(path for path in plan.changed if _resolved(memory, path).split("/")[0].casefold() == LOCAL)
    cleaned = merger.replaced(plan, _forgotten(memory, plan) | beside | dict.fromkeys(foreign))
    refuse_staged(memory, cleaned)
    held = hold(memory, cleaned, remote) if remote else frozenset()
    known = set(beside)
    written = merger.apply(cleaned, resolve, held)
    for path in sorted(set(beside) - known):  # second versions of uncommitted files
        if not memory.files.exists(path):
            memory.files.write_bytes_atomic(path, beside[path] or b"", new=True)
            written.append(path)
    forward = theirs if base == ours and begun in (None, base) else None
    commit = merger.commit(cleaned, [ours, theirs], message(cleaned), forward, held)
    if commit is None:
        return None
    changed = tuple(sorted(set(cleaned.changed) - held))
    refused = [f"{path}: it belongs to this machine" for path in foreign]
    refused += [f"{path}: it is a symbolic link" for path in plan.links]
    return Joined(commit, changed, tuple(sorted(contested)), refused=tuple(refused)), written


def resolver(
    memory: Memory, ours: str, theirs: str, contested: set[str], beside: dict[str, bytes | None] | None = None
) -> Resolve:
    """Returns the function that merges a file which both sides changed.

    It adds files that both sides edited in the same place to `contested`. Versions that cannot be merged into one file,
    such as pictures, are added to `beside` under a second name.
    """
    zone, past = ZoneInfo(memory.timezone), memory.git.past
    ours_at, theirs_at = (past.commit(oid).at.astimezone(zone).date().isoformat() for oid in (ours, theirs))
    days = (ours_at, theirs_at)

    def resolve(path: str, base: bytes | None, one: bytes, other: bytes) -> bytes:
        is_transcript = path.startswith("raw/")
        if is_transcript:
            bodies = [split_front_matter(_text(data)).body for data in (one, other)]
            if base is not None or bodies[0].startswith(bodies[1]):
                return one
            if bodies[1].startswith(bodies[0]):  # the other version continues ours
                return other
        if is_transcript or b"\0" in one or b"\0" in other:  # keep both
            if beside is not None:
                beside[_other_name(path, other, days[1])] = other
            contested.update(() if is_transcript else (path,))
            return one
        text, places = merged(path, _text_or_none(base), _text(one), _text(other), days)
        contested.update((path,) if places else ())
        return _data(text)

    return resolve


def refuse_staged(memory: Memory, plan: MergePlan) -> None:
    """Raises Refused if the user has staged changes of files that the plan changes."""
    staged = memory.git.merging.staged_by_user(plan)
    if staged:
        raise Refused(
            f"{', '.join(staged[:3])} {'is' if len(staged) == 1 else 'are'} staged with changes of yours, and changed "
            "on the other side, too; commit them (`git commit`) or unstage them (`git restore --staged`) first"
        )


def _forgotten(memory: Memory, plan: MergePlan) -> dict[str, bytes | None]:
    """Returns the files of the plan that contain forgotten words, without those words."""
    cleaned: dict[str, bytes | None] = {}
    if not memory.forgotten.requests():
        return cleaned
    for path, (_, new) in plan.changed.items():
        data = memory.git.merging.content(path, new)
        if data is None or b"\0" in data or path == "forgotten.jsonl":
            continue
        without = memory.forgotten.document(path, _text(data))
        if without != _text(data):
            cleaned[path] = None if without is None else _data(without)
    return cleaned


def _other_name(path: str, data: bytes, day: str) -> str:
    """Returns `a.other-2026-02-16-1a2b3c.png` for `a.png`, the same on every machine."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.partition(".")
    return f"{folder}{slash}{stem}.other-{day}-{sha256(data).hexdigest()[:6]}{dot}{ending}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _data(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text_or_none(data: bytes | None) -> str | None:
    return None if data is None else _text(data)
