"""Reverted commits: those that were taken back and can come back, by taking their revert back (SPEC §3, `recover`)."""

from __future__ import annotations

from collections.abc import Mapping

from anyio.to_thread import run_sync

from mcp_server.actions.history.revert import Reverted, revert
from mcp_server.core.model import Caller
from mcp_server.errors import NotFound
from mcp_server.memory import Memory
from mcp_server.store.git_past import Commit

LOOKED_AT = 200
"""So many of the newest reverts are known."""


def reverts(memory: Memory) -> Mapping[str, Commit]:
    """Commit → the commit that took it back and was not taken back itself, the newest first. Raises Unavailable."""
    found: dict[str, Commit] = {}
    gone: set[str] = set()
    for commit, target in memory.git.past.reverts(LOOKED_AT):
        if commit.id not in gone:
            gone.add(target)
            found.setdefault(target, commit)
    return found


def taken_back(memory: Memory) -> list[Commit]:
    """The commits that are taken back now, the newest revert first, without reverts. Raises Unavailable."""
    found = list(reverts(memory))
    known = memory.git.past.commits(found)
    return [known[one] for one in found if one in known and not known[one].reverts]


async def bring_back(memory: Memory, what: str, caller: Caller, *, apply: bool) -> Reverted:
    """Takes the revert of a commit back; of a commit that is a revert itself, that one. Raises NotFound for a commit
    that nobody has taken back, and as `revert` does."""

    def asked() -> str:
        commit = memory.git.past.commit(what)
        by = reverts(memory)
        if commit.id in by:
            return by[commit.id].id
        if any(one.id == commit.id for one in by.values()):
            return commit.id
        raise NotFound(f"{what[:10]} ({commit.subject}) was not taken back; `context-manager history revert` does that")

    return await revert(memory, await run_sync(asked), caller, apply=apply)
