"""Sync: synchronizes this memory with its copies on other machines, through a git remote.

Local changes are committed, the remote's are fetched and merged (`merging`), and the result is pushed, never by force.
If another machine pushes in between, this is repeated. Without a network, local changes are still committed. Another
machine's changes of identity, topics and settings wait for approval (`incoming`).
"""

from __future__ import annotations

from dataclasses import dataclass

from anyio.to_thread import run_sync

from mcp_server.conversations import closed_sessions, sessions
from mcp_server.errors import ContextManagerError, Unavailable
from mcp_server.history import merging
from mcp_server.history.commit_rules import label
from mcp_server.history.committing import commit_changes
from mcp_server.history.merging import TRIES, Joined, join
from mcp_server.memory import Memory
from mcp_server.storage.files import SETTINGS as SETTINGS_FILE
from mcp_server.storage.history_values import MergePlan
from mcp_server.text.prose import counted


async def take_in(memory: Memory) -> int:
    """Reads transcripts that the state does not know yet and returns how many. `status` reports unreadable ones."""
    known = {row.path for row in await memory.state.sessions()}
    taken = 0
    for path in await run_sync(lambda: sorted(set(memory.transcripts.all()) - known)):
        try:
            session = (await run_sync(memory.transcripts.head, path)).session_id
            async with memory.locks.transcript(session):
                row = await memory.state.session(session)
                if row is not None and row.status == "open":
                    continue  # it is open here; after it is closed, the later of both transcripts is current
                if row is not None and (await run_sync(memory.transcripts.find, session))[-1] == row.path:
                    continue  # an earlier transcript of the session
                await sessions.restore(memory, path)
        except ContextManagerError:
            continue
        taken += 1
    return taken


MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Synced:
    """The result of a sync.

    `committed` are the commits of local changes, `received` is the number of commits from the remote, `changed` are the
    files that changed here, and `contested` the files that now contain both versions. `waiting` are sentences about
    incoming changes that wait for approval. `refused` are sentences about incoming changes that are ignored: of this
    machine's own settings and files, and symbolic links.
    """

    remote: str
    branch: str
    committed: tuple[str, ...]
    received: int
    changed: tuple[str, ...]
    contested: tuple[str, ...]
    pushed: bool
    left_out: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def markdown(self) -> str:
        lines = [
            f"{self.remote}/{self.branch}: {counted(len(self.committed), 'commit')} made, "
            f"{counted(self.received, 'commit')} received, {counted(len(self.changed), 'file')} changed here, "
            f"{'pushed' if self.pushed else 'nothing to push'}"
        ]
        lines += [f"- {path}: edited on both sides; the file contains both versions" for path in self.contested]
        lines += [f"- waits for your approval: {said}" for said in self.waiting]
        lines += [f"- ignored: {said}" for said in self.refused]
        lines += [f"- left out: {said}" for said in self.left_out]
        return "\n".join(lines)


async def sync(memory: Memory, remote: str | None = None) -> Synced:
    """Synchronizes this copy with the remote. `remote` defaults to `git.remote`, else to the only remote.

    Raises:
        NotFound: no such remote, or none at all.
        Refused: files that the other side changed are staged here with changes.
        Unavailable: no network, no permission, git is missing or busy.
    """
    git = memory.git
    await run_sync(git.check_free)
    name = await run_sync(git.remote.chosen, remote or memory.settings.git.remote)
    await sessions.ready(memory)
    await closed_sessions.commit_pending(memory)
    swept = await commit_changes(memory)
    branch = await run_sync(git.branch) or "main"
    received, joined = 0, list[Joined]()
    for _ in range(TRIES):
        await run_sync(git.remote.fetch, name)
        branch = await run_sync(git.remote.counterpart, name, branch)
        tip = await run_sync(git.remote.tip, name, branch)
        if tip is not None:
            apart = await run_sync(git.remote.ahead_behind, name, branch)
            received += apart[1] if apart else 0
            done = await join(memory, tip, lambda plan: _message(name, plan), remote=f"{name}/{branch}")
            joined += [done] if done else []
            await take_in(memory)
        apart = await run_sync(git.remote.ahead_behind, name, branch)
        pushed = apart is None or apart[0] > 0
        if not pushed or await run_sync(git.remote.push, name, branch) == "pushed":
            break
    else:
        raise Unavailable(f"{name} keeps changing; local changes are committed, sync again later")
    async with memory.locks.files(), memory.locks.git():
        waiting = await run_sync(merging.settle, memory)
    refused = sorted({sentence for one in joined for sentence in one.refused})
    if ignored := await run_sync(merging.ignored_settings, memory):
        refused.append(f"{', '.join(ignored)} in {SETTINGS_FILE}: each machine has its own values for these settings")
    return Synced(
        name,
        branch,
        swept.commits,
        received,
        changed=tuple(sorted({path for one in joined for path in one.paths})),
        contested=tuple(sorted({path for one in joined for path in one.contested})),
        pushed=pushed,
        left_out=tuple(f"{path}: {reason}" for path, reason in swept.left_out.items()),
        waiting=tuple(f"{one.path}: context-manager approve {one.id}" for one in waiting),
        refused=tuple(refused),
    )


async def push_if_wanted(memory: Memory) -> str:
    """Pushes new commits if `git.auto_push` is on, without merging. Returns what went wrong; empty if nothing did."""
    knobs = memory.settings.git
    if not knobs.auto_push:
        return ""
    if knobs.remote is None:
        return "git.auto_push is on and git.remote names no remote: nothing is pushed"
    name = await run_sync(memory.git.remote.chosen, knobs.remote)
    own = await run_sync(memory.git.branch)
    if own is None:
        return ""
    branch = await run_sync(memory.git.remote.counterpart, name, own)
    apart = await run_sync(memory.git.remote.ahead_behind, name, branch)
    if apart is not None and apart[0] == 0:
        return ""
    if await run_sync(memory.git.remote.push, name, branch) == "behind":
        return f"{name} has commits that are not here; `context-manager sync` merges both"
    return ""


def _message(remote: str, plan: MergePlan) -> str:
    both = sorted(plan.both)
    subject = f"memory: sync with {remote}" + (f": {', '.join(map(label, both[:2]))}" if both else "")
    body = [f"- {path}: changed on both sides" for path in both[:MOST_NAMED]]
    return "\n".join([subject[:72], *(["", *body] if body else [])])
