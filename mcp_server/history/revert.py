"""Revert: reverses a commit of the memory with a new one. Later changes stay.

Only knowledge, topics, archive and anchors are written; conversations stay (`forget` deletes those). Reverting the new
commit undoes the revert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anyio.to_thread import run_sync

from mcp_server.errors import NotFound, Refused
from mcp_server.history.committing import commit_changes
from mcp_server.history.history import KNOWLEDGE
from mcp_server.history.merging import refuse_staged, resolver, retried
from mcp_server.memory import Memory
from mcp_server.model import Caller
from mcp_server.storage.history_values import Commit, Plan
from mcp_server.storage.values import Change
from mcp_server.text.destinations import is_for_own_hand
from mcp_server.text.fencing import neutralise

MAX_REVERTS_READ = 200
"""The newest reverts that are considered."""


def reverts(memory: Memory) -> Mapping[str, Commit]:
    """Returns the commits that are reverted now, each with the commit that reverted it, newest first.

    Leaves out reverts that were reverted themselves. Raises Unavailable.
    """
    found: dict[str, Commit] = {}
    gone: set[str] = set()
    for commit, target in memory.git.past.reverts(MAX_REVERTS_READ):
        if commit.id not in gone:
            gone.add(target)
            found.setdefault(target, commit)
    return found


def reverted_commits(memory: Memory) -> list[Commit]:
    """Returns the commits that are reverted now, newest revert first, without reverts. Raises Unavailable."""
    found = list(reverts(memory))
    known = memory.git.past.commits(found)
    return [known[one] for one in found if one in known and not known[one].reverts]


async def revert_revert(memory: Memory, what: str, caller: Caller, *, apply: bool) -> Reverted:
    """Undoes a revert. `what` is the reverted commit or the revert itself.

    Raises NotFound if the commit was not reverted, and as `revert` does.
    """

    def asked() -> str:
        commit = memory.git.past.commit(what)
        by = reverts(memory)
        if commit.id in by:
            return by[commit.id].id
        if any(one.id == commit.id for one in by.values()):
            return commit.id
        raise NotFound(f"{what[:10]} ({commit.subject}) was not taken back; `context-manager history revert` does that")

    return await revert(memory, await run_sync(asked), caller, apply=apply)


@dataclass(frozen=True, slots=True)
class Reverted:
    """The result of a revert; `commit` is the new commit, None if nothing was done."""

    reverts: str
    subject: str
    paths: tuple[str, ...]
    diff: str
    commit: str | None = None

    @property
    def markdown(self) -> str:
        """The result in markdown."""
        head = f"{self.reverts[:10]} ({self.subject})"
        if not self.paths:
            return neutralise(f"nothing to do: what {head} changed in knowledge is gone already, or was no knowledge")
        done = f"taken back: {head}; undo: revert {self.commit[:10]}" if self.commit else f"would take back {head}"
        return neutralise("\n".join([done, "```diff", self.diff, "```"]))


async def revert(memory: Memory, commit: str, caller: Caller, *, apply: bool = False) -> Reverted:
    """Returns what reverting a commit would change; with `apply` does it.

    Raises:
        NotFound: no such commit.
        Refused: a merge; the same lines were changed since; files that only the user may change; staged changes.
        Unavailable: git is missing or busy.
    """
    if apply:  # what was written since is a version of its own, not part of the revert
        await commit_changes(memory, ask=False)
    done = await retried(memory, lambda: _reverted(memory, commit, caller, apply))
    for path in done.paths if done.commit else ():
        memory.changes.publish(Change("file", path))
    return done


def _reverted(memory: Memory, revision: str, caller: Caller, apply: bool) -> Reverted | None:
    git, merger = memory.git, memory.git.merging
    git.check_free()
    commit = git.past.commit(revision)
    parents = git.past.parents(commit.id)
    if len(parents) > 1:
        raise Refused(f"{commit.id[:10]} joins two lines of history; revert the commits that it brought, one by one")
    head = git.head()
    if head is None:
        raise NotFound("nothing was committed yet; there is nothing to take back")
    contested: set[str] = set()
    resolve = resolver(memory, head, commit.id, contested)
    parent = parents[0] if parents else git.past.empty_tree()
    plan = merger.plan(head, commit.id, parent, resolve, keep=lambda path: not path.startswith(KNOWLEDGE))
    if contested.intersection(plan.changed):
        names = ", ".join(sorted(contested.intersection(plan.changed))[:3])
        raise Refused(
            f"the same lines of {names} were changed since {commit.id[:10]}; "
            f"`recover PATH@{parents[0][:10] if parents else 'REV'}` brings a whole file back"
        )
    _check(memory, plan, caller)
    diff = memory.forgotten.clean(git.past.between(head, plan.tree, ())) if plan.changed else ""
    told = Reverted(commit.id, memory.forgotten.clean(commit.subject), tuple(sorted(plan.changed)), diff)
    if not apply or not plan.changed:
        return told
    refuse_staged(memory, plan)
    message = f'maintenance: revert "{commit.subject}"\n\nThis reverts commit {commit.id}.'
    merger.apply(plan, resolve)
    made = merger.commit(plan, [head], message)
    return None if made is None else replace(told, commit=made)


def _check(memory: Memory, plan: Plan, caller: Caller) -> None:
    """Raises Refused if the caller may not change one of the files, or if the revert brings forgotten text back."""
    for path, (_, new) in plan.changed.items():
        if caller.source != "cli" and memory.settings.knowledge.approve and is_for_own_hand(path):
            raise Refused(f"{path} is for the user's own hand; they run `context-manager history revert` themselves")
        data = memory.git.merging.content(path, new)
        text = None if data is None else data.decode("utf-8", "surrogateescape")
        if text is not None and memory.forgotten.document(path, text) != text:
            raise Refused(f"{path} would bring back what was forgotten on request (forgotten.jsonl)")
