"""Approve: shows the user the changes that agents or other machines propose, and writes or drops them.

Proposals change identity, topics and settings only.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.errors import Conflict, ContextManagerError, Refused
from mcp_server.history import merging
from mcp_server.knowledge.editing import NewFact, edited
from mcp_server.knowledge.remember import Remembered, checked, write
from mcp_server.memory import Memory
from mcp_server.storage.journal import Pending, Proposal, hash_of
from mcp_server.text.destinations import Place, is_for_own_hand


@dataclass(frozen=True, slots=True)
class Waiting:
    """A proposal and the change that it would make now.

    `problem` says why it cannot be carried out; the diff may then be empty. `changed`: the file has changed since the
    proposal was made.
    """

    proposal: Proposal
    diff: str
    changed: bool = False
    problem: str = ""

    @property
    def mark(self) -> str:
        """Returns a hash of what the user sees of this change."""
        return hash_of(f"{self.proposal.id}\n{self.changed}\n{self.diff}") or ""

    def as_dict(self) -> dict[str, object]:
        """Returns JSON values."""
        proposal = self.proposal
        return {
            "id": proposal.id,
            "at": proposal.at.isoformat(),
            "path": proposal.path,
            "by": proposal.by,
            "session": proposal.session,
            "action": proposal.fact.get("action"),
            "content": proposal.fact.get("content"),
            "diff": self.diff,
            "changed": self.changed,
            "problem": self.problem,
        }


async def waiting(memory: Memory, number: str | None = None) -> list[Waiting]:
    """Returns the proposals, oldest first, or only the one with the id `number`. Raises NotFound with all ids."""

    def look() -> list[Waiting]:
        pending = Pending(memory.files)
        return [_shown(memory, found) for found in ([pending.get(number)] if number else pending.all())]

    return await run_sync(look)


async def approve(memory: Memory, number: str, *, anyway: bool = False) -> Remembered:
    """Writes a proposal into its file, as `remember` does, and drops the proposal.

    Raises:
        NotFound: no such proposal.
        Conflict: the file has changed since. With `anyway` the proposal is written into the changed file.
    """
    pending = Pending(memory.files)
    proposal = await run_sync(pending.get, number)
    found = await run_sync(_shown, memory, proposal)
    if found.changed and not anyway:
        raise Conflict(
            f"{proposal.path} has changed since {number} was proposed; `context-manager approve {number}` shows the "
            "change as it would be now; --yes --anyway makes it"
        )
    if merging.is_incoming(proposal):
        async with memory.locks.files(), memory.locks.git():
            return Remembered(proposal.path, "taken over", await run_sync(merging.accept, memory, proposal))
    fact, place = await run_sync(_meant, memory, proposal)
    before = await run_sync(_hash_now, memory, proposal.path)
    done = await write(memory, fact, place, proposal.session)
    async with memory.locks.files():
        await run_sync(pending.remove, number)
        await run_sync(pending.rebase, proposal.path, before, await run_sync(_hash_now, memory, proposal.path))
    return done


async def reject(memory: Memory, number: str) -> Proposal:
    """Drops a proposal. Raises NotFound."""
    pending = Pending(memory.files)
    proposal = await run_sync(pending.get, number)
    if merging.is_incoming(proposal):
        async with memory.locks.files(), memory.locks.git():
            await run_sync(merging.release, memory, proposal)
        return proposal
    async with memory.locks.files():
        await run_sync(pending.remove, number)
    return proposal


def waiting_sentence(memory: Memory) -> str:
    """Returns the sentence about waiting proposals for `status` and `doctor`; empty if there are none."""
    found = Pending(memory.files).all()
    if not found:
        return ""
    paths = ", ".join(sorted({proposal.path for proposal in found})[:5])
    what = f"{len(found)} changes wait" if len(found) > 1 else "1 change waits"
    return f"{what} for your approval ({paths}): context-manager approve"


def _shown(memory: Memory, proposal: Proposal) -> Waiting:
    changed = _hash_now(memory, proposal.path) != proposal.base
    try:
        if merging.is_incoming(proposal):
            diff, problem = merging.shown(memory, proposal)
            return Waiting(proposal, diff, changed, problem)
        edit = edited(memory, *_meant(memory, proposal), proposal.session)
    except ContextManagerError as error:
        return Waiting(proposal, "", changed, str(error))
    if not edit.changes:
        return Waiting(proposal, "", changed, "the file already says this")
    return Waiting(proposal, edit.difference(proposal.path), changed)


def _meant(memory: Memory, proposal: Proposal) -> tuple[NewFact, Place]:
    """Returns the fact and its place. The proposal's file is untrusted: the fact is validated again."""
    path = memory.files.relative(proposal.path)
    if path != proposal.path or not is_for_own_hand(path) or not path.endswith(".md"):
        raise Refused(f"{proposal.path} is not a file whose changes are proposed; reject {proposal.id}")
    given = proposal.fact
    fact = NewFact(
        content=given.get("content") or "",
        kind=given.get("kind") or "fact",
        path=path,
        section=given.get("section") or None,
        action=given.get("action") or "append",
        old_text=given.get("old_text"),
    )
    fact = checked(fact)
    return fact, Place(path, given.get("section") or "", given.get("template") or "")


def _hash_now(memory: Memory, path: str) -> str | None:
    return hash_of(memory.files.text_or_none(path))
