"""Incoming changes: another machine's changes of identity, topics and settings wait for the user's approval.

These files steer agents, and everyone with access to the remote can write them. After a merge, HEAD has the remote's
version, so that a later push does not undo it on the other machine. The work tree keeps this machine's version, and
only the work tree is compiled, searched and used for triggers. A proposal in `.local/pending/`, written before HEAD
moves, records the difference. Git's skip-worktree bit hides the difference from `git status`.
"""

from __future__ import annotations

from hashlib import sha256

from mcp_server.errors import ContextManagerError, NotFound, Refused
from mcp_server.history.three_way import merged
from mcp_server.memory import Memory
from mcp_server.settings import machine_settings
from mcp_server.storage.history_values import Plan
from mcp_server.storage.journal import Pending, Proposal, hash_of
from mcp_server.storage.templates import SETTINGS
from mcp_server.storage.values import LOCAL, Change
from mcp_server.text.destinations import is_for_own_hand
from mcp_server.text.markdown import difference
from mcp_server.text.yaml import load

ACTION = "incoming"
"""Value of `fact["action"]` in a proposal of this module. Its `fact["base"]` is git's entry of the file before the
merge."""


def is_incoming(proposal: Proposal) -> bool:
    """Returns whether a proposal is about a change from another machine."""
    return proposal.fact.get("action") == ACTION


def held_paths(memory: Memory) -> frozenset[str]:
    """Returns the files whose incoming changes wait. Until then this machine's version is not committed."""
    return frozenset(one.path for one in Pending(memory.files).all() if is_incoming(one))


def of_this_machine(memory: Memory, plan: Plan) -> list[str]:
    """Returns the paths of a plan that are in `.local/`; other machines must not write there."""
    return sorted(path for path in plan.changed if _real(memory, path).split("/")[0].casefold() == LOCAL)


def hold(memory: Memory, plan: Plan, remote: str) -> frozenset[str]:
    """Writes a proposal for each file of the plan whose change must wait, and returns the files' paths.

    Call it under `locks.files()`.
    """
    pending = Pending(memory.files)
    known = {one.path for one in pending.all() if is_incoming(one)}
    asked = memory.settings.knowledge.approve
    held = {path for path in plan.changed if path in known or (asked and _waits(memory, path))}
    for path in sorted(held - known):
        proposal = Proposal(
            id=f"sync_{sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}",
            at=memory.clock(),
            path=path,
            fact={"action": ACTION, "base": plan.changed[path][0]},
            base=hash_of(_here(memory, path)),
            by=remote,
        )
        pending.add(proposal)
    return frozenset(held)


def settle(memory: Memory) -> list[Proposal]:
    """Drops proposals that no longer change anything and returns the others.

    Such proposals remain after a killed merge, or if the other machine reverts its change. Call it under
    `locks.files()` and `locks.git()`.
    """
    waiting: list[Proposal] = []
    for proposal in filter(is_incoming, Pending(memory.files).all()):
        if _here(memory, proposal.path) == _there(memory, proposal.path):
            release(memory, proposal)
        else:
            waiting.append(proposal)
    memory.git.merging.leave_out([one.path for one in waiting])
    return waiting


def ignored_settings(memory: Memory) -> list[str]:
    """Returns the settings in the last commit that this machine ignores, because each machine has its own."""
    try:
        return sorted(machine_settings(load(_there(memory, SETTINGS) or "", SETTINGS)))
    except ContextManagerError:
        return []


def shown(memory: Memory, proposal: Proposal) -> tuple[str, str]:
    """Returns the diff that `accept` would make; if it is empty, also the reason."""
    before, after = _here(memory, proposal.path), _accepted(memory, proposal)
    if before == after:
        return "", "the file already has this content"
    return difference(before or "", after or "", proposal.path), ""


def accept(memory: Memory, proposal: Proposal) -> str:
    """Merges the incoming version into this machine's file and returns the diff.

    Call it under `locks.files()` and `locks.git()`.
    """
    path = proposal.path
    before, after = _here(memory, path), _accepted(memory, proposal)
    diff = difference(before or "", after or "", path)
    if after is None and before is not None:
        memory.files.remove(path)
    elif after is not None and after != before:
        data = after.encode("utf-8", "surrogateescape")
        old = None if before is None else before.encode("utf-8", "surrogateescape")
        memory.files.write_bytes_atomic(path, data, old, new=before is None)
    release(memory, proposal)
    memory.changes.publish(Change("file", path))
    return diff


def _accepted(memory: Memory, proposal: Proposal) -> str | None:
    """Returns the file's text after `accept`, None if the file is deleted. Raises Refused for a proposal that this
    module did not write."""
    path = proposal.path
    if not _waits(memory, path):
        raise Refused(f"{path} is not a file whose incoming changes wait; reject {proposal.id}")
    here, there = _here(memory, path), _there(memory, path)
    entry = proposal.fact.get("base") or ""
    base = _text(memory.git.merging.content(path, entry) if entry else None)
    if here is None or there is None or here == base:
        return there
    day = memory.local_date(memory.clock())
    return merged(path, base, here, there, (day, day)).text


def release(memory: Memory, proposal: Proposal) -> None:
    """Lets git compare the file again, then drops the proposal. The next commit takes this machine's version.

    Call it under `locks.files()` and `locks.git()`.
    """
    memory.git.merging.take_in([proposal.path])
    Pending(memory.files).remove(proposal.id)


def _waits(memory: Memory, path: str) -> bool:
    return any(is_for_own_hand(one) or one.casefold() == SETTINGS for one in (path, _real(memory, path)))


def _real(memory: Memory, path: str) -> str:
    """Returns the path behind symbolic links, which an earlier push may have brought."""
    try:
        return memory.files.relative(path)
    except Refused:  # the merge refuses it too
        return path


def _here(memory: Memory, path: str) -> str | None:
    try:
        return _text(memory.files.read_bytes(path))
    except NotFound:
        return None


def _there(memory: Memory, path: str) -> str | None:
    return _text(memory.git.merging.committed(path))


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")
